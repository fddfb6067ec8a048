"""An API with its built-in kinds, one custom kind in two versions, and a clock that stands still."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.lab.kube import api as apis
from moorage.lab.kube import builtin_kinds, kinds, options, problem, store, users

Object = dict[str, Any]

_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_PARTS = frozenset({"status", "scale"})
WIDGETS = kinds.Kind(
    "example.com",
    "v1",
    "Widget",
    "widgets",
    subresources=_PARTS,
    schema={"type": "object", "properties": {"spec": _ANYTHING, "status": _ANYTHING}},
    columns=(kinds.Column("Size", ".spec.size", "integer"),),
    scale=kinds.ScalePaths(selector=".status.selector"),
    custom=True,
)
OLD_WIDGETS = kinds.Kind(
    "example.com", "v1beta1", "Widget", "widgets", subresources=_PARTS, custom=True, preferred=False
)
ALICE = users.authenticated("alice")


class World:
    """The API and short ways to use it on config maps and widgets in the namespace ``default``."""

    def __init__(self, keep: int = store.KEPT_EVENTS) -> None:
        self.clock = clocks.ManualClock()
        self.store = store.Store(keep)
        self.kinds = kinds.Kinds()
        for kind in (*builtin_kinds.kinds(), WIDGETS, OLD_WIDGETS):
            self.kinds.add(kind)
        self.api = apis.Api(self.store, self.kinds, self.clock)
        for name in ("default", "other", "kube-system", "kube-public"):
            self.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.maps = self.api.kind("", "ConfigMap")
        self.pods = self.api.kind("", "Pod")

    def map(self, name: str, *, namespace: str = "default", labels: Object | None = None, **data: str) -> store.Entry:
        meta: Object = {"name": name, **({"labels": labels} if labels else {})}
        return self.api.create(self.maps, namespace, {"metadata": meta, "data": data})

    def change(self, name: str, *, labels: Object | None = None, **data: str) -> store.Entry:
        meta: Object = {"name": name, **({"labels": labels} if labels else {})}
        return self.api.update(self.maps, "default", name, {"metadata": meta, "data": data})

    def delete(self, name: str, **how: Any) -> store.Entry | None:
        return self.api.delete(self.maps, "default", name, options.DeleteOptions(**how))

    def widget(self, name: str, spec: Object | None = None, **meta: Any) -> store.Entry:
        content = {"metadata": {"name": name, **meta}, "spec": spec or {}, "status": {"sent": "by the client"}}
        return self.api.create(WIDGETS, "default", content)

    def pod(self, name: str, **spec: Any) -> store.Entry:
        whole = {"containers": [{"name": "main", "image": "example.com/app:1"}], **spec}
        return self.api.create(self.pods, "default", {"metadata": {"name": name}, "spec": whole})


def asked(**how: Any) -> options.Options:
    """How a client of alice's asks."""
    return options.Options(user=ALICE, manager="test", **how)


def names(entries: list[store.Entry]) -> list[str]:
    return [entry.object["metadata"]["name"] for entry in entries]


def meta(entry: store.Entry | None) -> Object:
    assert entry is not None
    found: Object = entry.object["metadata"]
    return found


class Refused:
    """``with Refused(409, "Conflict", "modified"):`` - and the refusal is kept."""

    def __init__(self, code: int, reason: str, words: str = "") -> None:
        self.code, self.reason, self.words = code, reason, words
        self.problem: problem.Problem

    def __enter__(self) -> Refused:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _trace: object) -> bool:
        if error is None:
            pytest.fail(f"nothing was refused, expected {self.code} {self.reason}")
        if not isinstance(error, problem.Problem):
            return False
        self.problem = error
        assert (error.code, error.reason) == (self.code, self.reason), error.message
        assert self.words in error.message
        return True
