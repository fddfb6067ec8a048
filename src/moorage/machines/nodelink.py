"""Which node is which machine's: written down on both, so that everybody else can read it instead of guessing.

A node is a machine's if both name the same instance (the provider id; of copies it is the oldest one's); else if it
bears the name under which the machine was let in, which its certificate proves; else if it has one of the machine's
addresses. Two machines that fit equally well are none, and one that never was an instance has no node, whatever bears
its name. A machine keeps its node for as long as that one is there; and when it is gone, too: that a node is missing is
what health checks want to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from moorage.machines import objects
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import controller, errors, informer, kinds, queue

Object = Mapping[str, Any]

_NAMES: Final = ("InternalDNS", "Hostname")
_PROVIDER_ID, _NAME, _ADDRESS, _NODE = "provider id", "name", "address", "node"


def addresses(thing: Object, *types: str) -> tuple[str, ...]:
    """The addresses of these types in the status of a machine or a node, in their order."""
    listed = objects.status(thing).get("addresses") or ()
    return tuple(str(each.get("address")) for each in listed if each.get("type") in types and each.get("address"))


def names(machine: Object) -> tuple[str, ...]:
    """What a node of this machine may be called."""
    return tuple(dict.fromkeys((objects.name(machine), *addresses(machine, *_NAMES))))


def index(machines: informer.Informer) -> None:
    """Let the machines be found by what `machine_of` and `nodes_of` look for."""
    machines.add_index(_PROVIDER_ID, lambda machine: filter(None, (objects.provider_id(machine),)))
    machines.add_index(_NAME, names)
    machines.add_index(_ADDRESS, lambda machine: addresses(machine, "InternalIP"))
    machines.add_index(_NODE, lambda machine: filter(None, (objects.node_name(machine),)))


def index_nodes(nodes: informer.Informer) -> None:
    """Let the nodes be found likewise."""
    nodes.add_index(_PROVIDER_ID, lambda node: filter(None, (objects.provider_id(node),)))
    nodes.add_index(_ADDRESS, lambda node: addresses(node, "InternalIP"))


def of_instance(provider_id: str, machines: informer.Informer) -> Sequence[Object]:
    """The machines that say they are this instance: one, unless somebody has copied it."""
    return machines.by_index(_PROVIDER_ID, provider_id) if provider_id else ()


def machine_of(node: Object, machines: informer.Informer) -> Object | None:
    """The machine that the node is, or None if there is no telling."""
    named = objects.provider_id(node)
    if named:
        found = of_instance(named, machines)
        if found:
            return min(found, key=objects.age)  # of copies the instance is the oldest one's: see `machine_twins`
    known = [
        each for each in machines.by_index(_NODE, objects.name(node)) if objects.node_uid(each) == objects.uid(node)
    ]
    candidates: Iterable[Sequence[Object]] = (
        known,
        [each for each in machines.by_index(_NAME, objects.name(node)) if objects.provider_id(each)],
        _distinct(each for own in addresses(node, "InternalIP") for each in machines.by_index(_ADDRESS, own)),
    )
    for listed in candidates:
        fitting = [each for each in listed if not (named and objects.provider_id(each))]  # theirs is another instance
        if fitting:
            return _only(fitting)
    return None


def nodes_of(machine: Object, nodes: informer.Informer) -> tuple[str, ...]:
    """The names of the nodes that may be the machine's: those to look at when it changes."""
    found = [name for name in (objects.node_name(machine), *names(machine)) if nodes.get(name) is not None]
    if named := objects.provider_id(machine):
        found += [objects.name(each) for each in nodes.by_index(_PROVIDER_ID, named)]
    for own in addresses(machine, "InternalIP"):
        found += [objects.name(each) for each in nodes.by_index(_ADDRESS, own)]
    return tuple(dict.fromkeys(found))


def wanted(node: Object, machine: Object) -> dict[str, Any]:
    """The merge patch that lets the node say whose it is and bear what its machine wants it to; empty if it does."""
    metadata, spec = objects.metadata(node), objects.spec(machine)
    asked = spec.get("metadata") or {}
    annotations = {**(asked.get("annotations") or {}), objects.MACHINE_ANNOTATION: objects.key(machine)}
    change: dict[str, Any] = {}
    for part, wished in (("annotations", annotations), ("labels", asked.get("labels") or {})):
        have = metadata.get(part) or {}
        if lacking := {key: value for key, value in wished.items() if have.get(key) != value}:
            change.setdefault("metadata", {})[part] = lacking
    taints = list(objects.spec(node).get("taints") or ())
    there = {(each.get("key"), each.get("effect")) for each in taints}
    # As the API promises: one that somebody takes away comes back, and others' are left alone.
    missing = [each for each in spec.get("taints") or () if (each.get("key"), each.get("effect")) not in there]
    if missing:
        change["spec"] = {"taints": [*taints, *(dict(each) for each in missing)]}
    return change


class NodeLink:
    """Writes down which node is whose; its keys are the names of nodes."""

    def __init__(
        self,
        client: clients.Client,
        nodes: informer.Informer,
        machines: informer.Informer,
        tell: Callable[[str], None],
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._machines = machines
        self._tell = tell

    def feed(self, keys: queue.Queue) -> None:
        """Have the nodes looked at that a change is about."""
        self._nodes.on(lambda change: keys.add(change.key))

        def machine_changed(change: informer.Change) -> None:
            if change.new is not None:
                for name in nodes_of(change.new, self._nodes):
                    keys.add(name)

        self._machines.on(machine_changed)

    def reconcile(self, key: str) -> controller.Result:
        node = self._nodes.get(key)
        if node is None or objects.is_deleted(node):
            return controller.Result()
        machine = machine_of(node, self._machines)
        if machine is None or not self._may_take(node, machine):
            return controller.Result()
        try:
            self._refer(machine, node)
            self._mark(node, machine)
        except errors.NotFound:
            pass  # one of them has gone, and with it the link
        return controller.Result()

    def _may_take(self, node: Object, machine: Object) -> bool:
        """Whether the machine has no other node. One that was replaced by this one is none."""
        other = objects.node_name(machine)
        if other in ("", objects.name(node)) or self._nodes.get(other) is None:
            return True
        self._tell(
            f"node {objects.name(node)} looks like machine {objects.name(machine)}, which is node {other} already"
        )
        return False

    def _refer(self, machine: Object, node: Object) -> None:
        reference = {"kind": "Node", "name": objects.name(node), "uid": objects.uid(node)}
        have = _reference(machine)
        if {key: have.get(key) for key in reference} == reference:
            return
        # The version makes two who come to different conclusions notice each other.
        body = {
            "metadata": {"resourceVersion": objects.revision(machine)},
            "status": {"nodeRef": reference},
        }
        where = objects.namespace(machine)
        self._client.patch(kinds.MACHINE, objects.name(machine), where, body, subresource="status")
        self._tell(f"machine {objects.name(machine)} is node {objects.name(node)}")

    def _mark(self, node: Object, machine: Object) -> None:
        change = wanted(node, machine)
        if not change:
            return
        # Taints are a list, which a patch replaces whole: not if somebody has changed it meanwhile.
        metadata = {**change.get("metadata", {}), "resourceVersion": objects.revision(node)}
        self._client.patch(kinds.NODE, objects.name(node), "", {**change, "metadata": metadata})


def _reference(machine: Object) -> Mapping[str, Any]:
    found: Mapping[str, Any] = objects.status(machine).get("nodeRef") or {}
    return found


def _distinct(machines: Iterable[Object]) -> list[Object]:
    return list({objects.key(each): each for each in machines}.values())


def _only(found: Sequence[Object]) -> Object | None:
    return found[0] if len(found) == 1 else None
