"""A cluster's API in memory, in the place of `runtime.client.Client`: as strict as the real one where it matters.

Revisions guard writes, a status is written only through its subresource, finalizers and graces keep what is deleted,
and budgets refuse evictions. ``trouble`` orders a refusal of a coming call, before it takes effect or after.
"""

from __future__ import annotations

import copy
import datetime
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from moorage.engine import clock as clocks
from moorage.machines.runtime import errors, kinds

Object = dict[str, Any]
Place = tuple[str, str, str]


def stamp(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Memory:
    """Objects by kind, namespace and name. ``calls`` has a line for each call; ``writes`` those that change things."""

    def __init__(self, clock: clocks.Clock) -> None:
        self.clock = clock
        self.objects: dict[Place, Object] = {}
        self.calls: list[str] = []
        #: Pods that a budget protects: (namespace, name) -> the budget's name.
        self.budgets: dict[tuple[str, str], str] = {}
        #: Whether kubelets answer: pods that are deleted go at once, else they stay as terminating.
        self.lively = True
        self._troubles: list[tuple[str, Exception, str]] = []
        self._counter = itertools.count(1)

    # -- for tests -------------------------------------------------------------------------------------------------

    def put(self, kind: kinds.Kind, content: Mapping[str, Any]) -> Object:
        """Have an object as it is, status and all."""
        found = copy.deepcopy(dict(content))
        meta = found.setdefault("metadata", {})
        meta.setdefault("uid", f"uid-{next(self._counter)}")
        meta.setdefault("creationTimestamp", stamp(self.clock.wall()))
        meta["resourceVersion"] = str(next(self._counter))
        self.objects[self._place(kind, meta["name"], meta.get("namespace", ""))] = found
        return copy.deepcopy(found)

    def have(self, kind: kinds.Kind, name: str, namespace: str = "") -> Object | None:
        """The object as it is now, without a call."""
        found = self.objects.get(self._place(kind, name, namespace))
        return copy.deepcopy(found) if found is not None else None

    def change(self, kind: kinds.Kind, name: str, namespace: str, how: Callable[[Object], None]) -> Object:
        """Somebody else's write."""
        found = self.objects[self._place(kind, name, namespace)]
        how(found)
        self._touch(found)
        return copy.deepcopy(found)

    def trouble(self, call: str, failure: Exception, when: str = "before") -> None:
        """Refuse the next call that begins with ``call``; ``when`` is before it takes effect, or after."""
        self._troubles.append((call, failure, when))

    @property
    def writes(self) -> list[str]:
        return [call for call in self.calls if call.split()[0] not in ("get", "list")]

    def events(self) -> list[Object]:
        return [each for (kind, _, _), each in self.objects.items() if kind == str(kinds.EVENT)]

    # -- as `client.Client` ----------------------------------------------------------------------------------------

    def get(self, kind: kinds.Kind, name: str, ns: str = "") -> Object:
        with self._called(f"get {kind.plural} {self._key(ns, name)}"):
            return copy.deepcopy(self._find(kind, name, ns))

    def list(
        self, kind: kinds.Kind, ns: str = "", *, labels: str = "", fields: str = "", limit: int = 500
    ) -> tuple[list[Object], str]:
        with self._called(" ".join(filter(None, ("list", kind.plural, ns, fields)))):
            found = [
                copy.deepcopy(each)
                for (where, space, _), each in self.objects.items()
                if where == str(kind) and ns in ("", space) and _selected(each, labels, fields)
            ]
            return found, str(next(self._counter))

    def create(self, kind: kinds.Kind, body: Mapping[str, Any]) -> Object:
        space = body["metadata"].get("namespace", "")
        name = body["metadata"].get("name") or f"{body['metadata']['generateName']}{next(self._counter)}"
        with self._called(f"create {kind.plural} {self._key(space, name)}"):
            if self._place(kind, name, space) in self.objects:
                raise errors.AlreadyExists(f"{name} already exists", code=409, reason="AlreadyExists")
            made = {"apiVersion": kind.api_version, "kind": kind.kind, **copy.deepcopy(dict(body))}
            made["metadata"] = {**made["metadata"], "name": name}
            return self.put(kind, made)

    def patch(
        self,
        kind: kinds.Kind,
        name: str,
        ns: str,
        body: Any,
        *,
        type: str = "merge",
        subresource: str = "",
        owner: str = "",
    ) -> Object:
        target = f"{self._key(ns, name)}{'/' if subresource else ''}{subresource}"
        with self._called(f"patch {kind.plural} {target}"):
            assert type == "merge", "only merge patches are known here"
            found = self._find(kind, name, ns)
            self._guard(found, body)
            merged = _merged(found, body)
            if kind == kinds.MACHINE:
                if subresource == "status":
                    merged = {**copy.deepcopy(found), "status": merged.get("status", {})}
                else:
                    merged["status"] = copy.deepcopy(found.get("status", {}))
            if not merged.get("status"):
                merged.pop("status", None)
            merged["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
            if merged != found:
                found.clear()
                found.update(merged)
                self._touch(found)
                self._collect(kind, found)
            return copy.deepcopy(found)

    def delete(self, kind: kinds.Kind, name: str, ns: str = "", *, uid: str = "", **_: Any) -> None:
        with self._called(f"delete {kind.plural} {self._key(ns, name)}"):
            found = self._find(kind, name, ns)
            if uid and uid != found["metadata"]["uid"]:
                raise errors.Conflict("the UID in the precondition does not match", code=409)
            self._delete(kind, found)

    def evict(self, ns: str, pod: str, *, uid: str = "", grace: int | None = None) -> None:
        told = "" if grace is None else f" grace={grace}"
        with self._called(f"evict {ns}/{pod}{told}"):
            found = self._find(kinds.POD, pod, ns)
            if uid and uid != found["metadata"]["uid"]:
                raise errors.Conflict("the UID in the precondition does not match", code=409)
            meta = found["metadata"]
            budget = self.budgets.get((ns, pod))
            if budget and not meta.get("deletionTimestamp"):
                why = f"The disruption budget {budget} needs 2 healthy pods and has 2 currently"
                raise errors.TooManyRequests(
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                    code=429,
                    causes=(errors.Cause("DisruptionBudget", "", why),),
                )
            self._delete(kinds.POD, found, 30 if grace is None else grace)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _delete(self, kind: kinds.Kind, found: Object, grace: int = 0) -> None:
        meta = found["metadata"]
        stays = meta.get("finalizers") or (kind == kinds.POD and not self.lively)
        if not stays:
            del self.objects[self._place(kind, meta["name"], meta.get("namespace", ""))]
            return
        # A shorter grace is granted to what is going already, never a longer one.
        ends = stamp(self.clock.wall() + datetime.timedelta(seconds=grace))
        meta["deletionTimestamp"] = min(ends, meta.get("deletionTimestamp", ends))
        self._touch(found)

    def _collect(self, kind: kinds.Kind, found: Object) -> None:
        meta = found["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and kind != kinds.POD:
            del self.objects[self._place(kind, meta["name"], meta.get("namespace", ""))]

    def _guard(self, found: Object, body: Mapping[str, Any]) -> None:
        meta = body.get("metadata") or {}
        for field in ("resourceVersion", "uid"):
            if field in meta and meta[field] != found["metadata"][field]:
                raise errors.Conflict("the object has been modified", code=409, reason="Conflict")

    def _find(self, kind: kinds.Kind, name: str, namespace: str) -> Object:
        found = self.objects.get(self._place(kind, name, namespace))
        if found is None:
            raise errors.NotFound(f'{kind} "{name}" not found', code=404, reason="NotFound")
        return found

    def _touch(self, found: Object) -> None:
        found["metadata"]["resourceVersion"] = str(next(self._counter))

    def _called(self, call: str) -> _Call:
        self.calls.append(call)
        for order in self._troubles:
            if call.startswith(order[0]):
                self._troubles.remove(order)
                return _Call(order[1], order[2])
        return _Call(None, "")

    @staticmethod
    def _place(kind: kinds.Kind, name: str, namespace: str) -> Place:
        return (str(kind), namespace if kind.namespaced else "", name)

    @staticmethod
    def _key(namespace: str, name: str) -> str:
        return f"{namespace}/{name}" if namespace else name


class _Call:
    """One call, with the trouble that was ordered for it."""

    def __init__(self, failure: Exception | None, when: str) -> None:
        self._failure = failure
        self._when = when

    def __enter__(self) -> None:
        if self._failure is not None and self._when == "before":
            raise self._failure

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._failure is not None and self._when == "after":
            raise self._failure


def _merged(old: Any, change: Any) -> Any:
    """RFC 7396."""
    if not isinstance(change, Mapping):
        return copy.deepcopy(change)
    result = copy.deepcopy(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _selected(found: Object, labels: str, fields: str) -> bool:
    held = found["metadata"].get("labels") or {}
    for part in filter(None, labels.split(",")):
        name, _, value = part.partition("=")
        if held.get(name) != value:
            return False
    return all(_field(found, part) for part in filter(None, fields.split(",")))


def _field(found: Object, part: str) -> bool:
    path, _, value = part.partition("=")
    here: Any = found
    for step in path.split("."):
        here = (here or {}).get(step)
    return str(here or "") == value
