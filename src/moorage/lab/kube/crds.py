"""CustomResourceDefinitions at work: whoever writes one adds a kind to the API, whoever deletes one takes it away.

`Definitions` is told of every write in the store and answers at once, so that a definition is established before its
creator has read the answer. A definition that is deleted waits, by a finalizer it has from the start, until the last of
its objects is gone. Objects are stored once and shown in every version served, with another apiVersion and nothing
else changed; `crd_rules` refuses definitions that ask for more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import columns, crd_rules, discovery, kinds, options, problem, shapes, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

KEY: kinds.Key = ("apiextensions.k8s.io", "customresourcedefinitions")
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"

_TERMINATING = "Terminating"
# In the order in which a conflict is looked for; the last one found is told.
_NAMES = ("plural", "singular", "shortNames", "kind", "listKind")


class Definitions:
    """Serves the kinds that are defined in an API, from the moment it is made."""

    def __init__(self, api: apis.Api) -> None:
        self._api = api
        # Group and plural of the kinds served, and the definition each came from.
        self._served: dict[kinds.Key, str] = {}
        api.on_written.append(self._written)
        for entry in api.store.entries(KEY):
            self._settle(entry.object["metadata"]["name"])

    def _written(self, key: kinds.Key, event: store.Event) -> None:
        if key == KEY:
            name = event.name[1]
            if event.type == store.DELETED:
                self._withdraw(event.entry.object)
            else:
                self._settle(name)
        elif event.type == store.DELETED and key in self._served:
            self._finish(self._served[key])

    def _definition(self, name: str) -> Mapping[str, Any] | None:
        entry = self._api.store.get(KEY, ("", name))
        return None if entry is None else entry.object

    def _settle(self, name: str) -> None:
        """Bring the status of a definition, and what is served, in line with what it says."""
        definition = self._definition(name)
        if definition is None:
            return
        if definition["metadata"].get("deletionTimestamp"):
            self._terminate(name)
            return
        others = [other for other in self._others(name) if other["spec"]["group"] == definition["spec"]["group"]]
        time = self._api.time()
        self._change(name, lambda content: _establish(content, others, time))
        self._serve(name)

    def _others(self, name: str) -> Iterable[Mapping[str, Any]]:
        for entry in self._api.store.entries(KEY):
            if entry.object["metadata"]["name"] != name:
                yield entry.object

    def _change(self, name: str, edit: Callable[[Object], None]) -> None:
        self._api.apply_status(self._api.kind(KEY[0], "CustomResourceDefinition"), "", name, edit)

    def _serve(self, name: str, *, closing: bool = False) -> None:
        definition = self._definition(name)
        if definition is None or not _condition(definition, "Established"):
            return
        made = kinds_of(definition, closing=closing)
        key = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        known = [kind for kind in self._api.kinds if kind.key == key]
        self._served[key] = name
        if known != made:
            self._api.kinds.remove(*key)
            for kind in made:
                self._api.kinds.add(kind)

    def _terminate(self, name: str) -> None:
        """Delete the objects of a definition that is to go, and let it go with the last of them."""
        definition = self._definition(name)
        if definition is None or _condition(definition, _TERMINATING):
            return
        words = ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
        time = self._api.time()
        self._change(name, lambda content: _set_condition(content, _TERMINATING, *words, time))
        self._serve(name, closing=True)
        key = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        kind = self._api.kinds.stored(*key)
        if kind is not None and self._served.get(key) == name:
            for namespace, each in self._api.store.names(key):
                self._delete(kind, namespace, each)
        self._finish(name)

    def _delete(self, kind: kinds.Kind, namespace: str, name: str) -> None:
        try:
            self._api.delete(kind, namespace, name, options.DeleteOptions())
        except problem.Problem as refusal:
            # One may have gone as a consequence of another's going.
            if refusal.code != 404:
                raise

    def _finish(self, name: str) -> None:
        """Let a deleted definition go once it has no objects."""
        definition = self._definition(name)
        if definition is None or not definition["metadata"].get("deletionTimestamp"):
            return
        key = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        if self._served.get(key) == name and self._api.store.count(key):
            return
        if FINALIZER in definition["metadata"].get("finalizers", ()):
            self._change(name, _release)

    def _withdraw(self, definition: Mapping[str, Any]) -> None:
        """Stop serving what a definition defined; its names are free for others."""
        group, names = definition["spec"]["group"], definition["spec"]["names"]
        name, key = definition["metadata"]["name"], (group, names["plural"])
        if self._served.get(key) == name:
            del self._served[key]
            self._api.kinds.remove(*key)
        for other in list(self._others(name)):
            if other["spec"]["group"] == group:
                self._settle(other["metadata"]["name"])


def kinds_of(definition: Mapping[str, Any], *, closing: bool = False) -> list[kinds.Kind]:
    """The kinds that an established definition adds, one for each version served."""
    spec = definition["spec"]
    served = sorted((each for each in spec["versions"] if each["served"]), key=_offered)
    # Objects are stored in a version that is served, be it not the one marked: nothing depends on which.
    stored = next((each["name"] for each in served if each["storage"]), served[0]["name"] if served else "")
    return [_kind(definition, version, version["name"] == stored, closing) for version in served]


def _offered(version: Mapping[str, Any]) -> tuple[int, int, int, str]:
    return discovery.version_order(version["name"])


def _kind(definition: Mapping[str, Any], version: Mapping[str, Any], stored: bool, closing: bool) -> kinds.Kind:
    spec, names = definition["spec"], definition["status"]["acceptedNames"]
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    return kinds.Kind(
        group=spec["group"],
        version=version["name"],
        name=names["kind"],
        plural=names["plural"],
        namespaced=spec["scope"] == "Namespaced",
        singular=names.get("singular", ""),
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        subresources=frozenset(subresources),
        verbs=tuple(verb for verb in kinds.ALL_VERBS if not (closing and verb == "create")),
        schema=_completed(version["schema"]["openAPIV3Schema"]),
        columns=_columns(version),
        scale=None
        if scale is None
        else kinds.ScalePaths(
            scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath", "")
        ),
        custom=True,
        preferred=stored,
        deprecation=_deprecation(spec, version) if version.get("deprecated") else "",
        selectable=tuple(each["jsonPath"] for each in version.get("selectableFields", ())),
    )


def _completed(schema: kinds.Schema) -> kinds.Schema:
    """A schema with the fields that every object has: typed, beside what the schema itself asks of names."""
    given = schema.get("properties") or {}
    metadata = dict(shapes.resolved("meta.ObjectMeta"))
    asked = (given.get("metadata") or {}).get("properties") or {}
    metadata["properties"] = {
        **metadata["properties"],
        **{name: {**metadata["properties"][name], **rules} for name, rules in asked.items()},
    }
    if asked:
        # Then it is to be validated as any other field.
        del metadata[shapes.NATIVE]
    text = {"type": "string"}
    return {**schema, "properties": {**given, "apiVersion": text, "kind": text, "metadata": metadata}}


def _columns(version: Mapping[str, Any]) -> tuple[kinds.Column, ...]:
    given = version.get("additionalPrinterColumns") or []
    if not given:
        return columns.NAME, columns.AGE
    return (
        columns.NAME,
        *(
            kinds.Column(
                each["name"],
                each["jsonPath"],
                each["type"],
                each.get("format", ""),
                each.get("description", ""),
                each.get("priority", 0),
            )
            for each in given
        ),
    )


def _deprecation(spec: Mapping[str, Any], version: Mapping[str, Any]) -> str:
    if version.get("deprecationWarning"):
        return str(version["deprecationWarning"])
    group, kind = spec["group"], spec["names"]["kind"]
    words = f"{group}/{version['name']} {kind} is deprecated"
    newer = [
        each["name"]
        for each in sorted((each for each in spec["versions"] if each["served"]), key=_offered)
        if not each.get("deprecated") and _offered(each) < _offered(version)
    ]
    return f"{words}; use {group}/{newer[0]} {kind}" if newer else words


def _establish(content: Object, others: list[Mapping[str, Any]], time: str) -> None:
    """Accept the names that are free, and establish the definition once all of them have been."""
    meta, spec = content["metadata"], content["spec"]
    if FINALIZER not in meta.get("finalizers", ()):
        meta["finalizers"] = [*meta.get("finalizers", ()), FINALIZER]
    status = content.setdefault("status", {})
    if approved := (meta.get("annotations") or {}).get(crd_rules.APPROVED):
        words = ("True", "ApprovedAnnotation", f"approved in {approved}")
        _set_condition(content, "KubernetesAPIApprovalPolicyConformant", *words, time)
    accepted, conflict = _accepted(spec["names"], status.get("acceptedNames") or {}, others)
    status["acceptedNames"] = accepted
    if conflict:
        _set_condition(content, "NamesAccepted", "False", *conflict, time)
        if not _condition(content, "Established"):
            _set_condition(content, "Established", "False", "NotAccepted", "not all names are accepted", time)
    else:
        _set_condition(content, "NamesAccepted", "True", "NoConflicts", "no conflicts found", time)
        words = ("True", "InitialNamesAccepted", "the initial names have been accepted")
        _set_condition(content, "Established", *words, time)
    stored = next(version["name"] for version in spec["versions"] if version["storage"])
    known = status.setdefault("storedVersions", [])
    if stored not in known:
        known.append(stored)


def _accepted(
    wanted: Mapping[str, Any], had: Mapping[str, Any], others: list[Mapping[str, Any]]
) -> tuple[Object, tuple[str, str] | None]:
    """The names a definition may use: those it asks for, save those another one has; and the last conflict."""
    taken = [(other.get("status") or {}).get("acceptedNames") or {} for other in others]
    resources = {name for each in taken for name in (each.get("plural"), each.get("singular"))}
    resources |= {name for each in taken for name in each.get("shortNames", ())}
    names = {name for each in taken for name in (each.get("kind"), each.get("listKind"))}
    accepted: Object = {"plural": had.get("plural", ""), "kind": had.get("kind", "")}
    conflict = None
    for field in _NAMES:
        value = wanted.get(field)
        used = [name for name in (value if isinstance(value, list) else [value]) if name]
        clashes = [name for name in used if name in (names if field in ("kind", "listKind") else resources)]
        if clashes:
            conflict = (f"{field[0].upper()}{field[1:]}Conflict", f'"{clashes[0]}" is already in use')
            value = had.get(field)
        if value:
            accepted[field] = value
    if wanted.get("categories"):
        accepted["categories"] = wanted["categories"]
    return accepted, conflict


def _release(content: Object) -> None:
    content["metadata"]["finalizers"] = [each for each in content["metadata"]["finalizers"] if each != FINALIZER]


def _condition(content: Mapping[str, Any], kind: str) -> bool:
    conditions = (content.get("status") or {}).get("conditions") or []
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def _set_condition(content: Object, kind: str, status: str, reason: str, message: str, time: str) -> None:
    conditions = content["status"].setdefault("conditions", [])
    found = next((each for each in conditions if each["type"] == kind), None)
    if found is None:
        found = {"type": kind}
        conditions.append(found)
    if found.get("status") != status:
        found["lastTransitionTime"] = time
    found |= {"status": status, "reason": reason, "message": message}
