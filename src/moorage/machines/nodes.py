"""What a cloud controller does for nodes, done by what the machines know: who they are, where they are, and their end.

A node is told its provider id, and its zone, region and type; one that waits for a cloud controller is told its
addresses too, and is then let go. A node is removed only if it was a machine's of ours, does not report any more, and
the platform said twice, some time apart, that there is no such instance. Doubt keeps the node.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from moorage.engine import clock as clocks
from moorage.engine import errors as platform_errors
from moorage.machines import nodelink, objects
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import controller, errors, informer, kinds, queue
from moorage.platforms import contract

Object = Mapping[str, Any]

UNINITIALIZED: Final = "node.cloudprovider.kubernetes.io/uninitialized"
LABELS: Final = {
    "topology.kubernetes.io/zone": objects.ZONE_LABEL,
    "topology.kubernetes.io/region": objects.REGION_LABEL,
    "node.kubernetes.io/instance-type": objects.TYPE_LABEL,
}
#: Cloud seconds between two answers of the platform that are two, and until a node that is away is looked at again.
APART: Final = 60.0
AWAY: Final = 60.0


@dataclasses.dataclass(frozen=True)
class Place:
    """What is the same for all machines of the cluster."""

    infra_id: str
    vips: tuple[str, ...] = ()
    namespace: str = "openshift-machine-api"


def is_silent(node: Object) -> bool:
    """Whether its kubelet has ceased to report, as the cluster notes after a while.

    One that reports that it is not ready is alive, as every node is in its first minute: nobody need be asked about it.
    """
    found = [each for each in objects.conditions(node) if each.get("type") == "Ready"]
    return bool(found) and found[0].get("status") == "Unknown"


def initialization(node: Object, machine: Object) -> dict[str, Any]:
    """The merge patch that completes a node by what its machine knows; empty if nothing is missing."""
    change: dict[str, Any] = {}
    spec, known = objects.spec(node), objects.provider_id(machine)
    if known and not spec.get("providerID"):
        change.setdefault("spec", {})["providerID"] = known
    # A zone is where a node's volumes are: what is set stays, whoever has set it.
    told = {label: objects.labels(machine).get(source) for label, source in LABELS.items()}
    if lacking := {key: value for key, value in told.items() if value and not objects.labels(node).get(key)}:
        change["metadata"] = {"labels": lacking}
    # Who is let go is told its addresses no more, so it has to have one that others can reach, or get it just now.
    is_reachable = _has_address(node) or _has_address(machine)
    if known and spec.get("providerID") in (None, "", known) and waits_for_a_cloud(node) and is_reachable:
        left = [each for each in spec.get("taints") or () if each.get("key") != UNINITIALIZED]
        change.setdefault("spec", {})["taints"] = left or None
    return change


def missing_addresses(node: Object, machine: Object) -> list[dict[str, str]]:
    """All addresses of a node that cannot tell them itself; empty if it can, or has them.

    A kubelet that was told to wait for a cloud controller leaves its addresses to it. Any other tells its own, and
    would take back what is written here.
    """
    if not waits_for_a_cloud(node) or not _has_address(machine):
        return []
    wanted = [
        {"type": str(each.get("type")), "address": str(each.get("address"))}
        for each in objects.status(machine).get("addresses") or ()
        if each.get("address")
    ]
    have = [dict(each) for each in objects.status(node).get("addresses") or ()]
    lacking = [each for each in wanted if each not in have]
    return [*have, *lacking] if lacking else []


def _has_address(holder: Object) -> bool:
    """Whether a node or a machine has an address within the cluster's network, and not names alone."""
    found = objects.status(holder).get("addresses") or ()
    return any(each.get("type") == "InternalIP" and each.get("address") for each in found)


def waits_for_a_cloud(node: Object) -> bool:
    return any(each.get("key") == UNINITIALIZED for each in objects.spec(node).get("taints") or ())


def _machine_key(node: Object) -> str:
    """The machine that was linked to the node, as ``namespace/name``."""
    return str(objects.notes(node).get(objects.MACHINE_ANNOTATION) or "")


@dataclasses.dataclass(frozen=True)
class _Absence:
    """The first time that the platform knew nothing of a node's instance."""

    uid: str
    since: float
    source: object


class Nodes:
    """Completes nodes, and removes those whose instances are gone; its keys are their names."""

    def __init__(
        self,
        client: clients.Client,
        nodes: informer.Informer,
        machines: informer.Informer,
        actuator: contract.Actuator,
        place: Place,
        *,
        source: Callable[[], object],
        clock: clocks.Clock,
        tell: Callable[[str], None],
        check: Callable[[], None],
    ) -> None:
        """``source`` tells by whose word ``actuator`` answers at the moment: two answers must be of the same."""
        self._client = client
        self._nodes = nodes
        self._machines = machines
        self._actuator = actuator
        self._source = source
        self._place = place
        self._clock = clock
        self._tell = tell
        self._check = check
        self._turn = threading.Lock()
        self._absences: dict[str, _Absence] = {}
        #: When the platform last had the instance of a silent node, and who said so.
        self._present: dict[str, tuple[float, object]] = {}

    def feed(self, keys: queue.Queue) -> None:
        """Have the nodes looked at that a change is about."""
        self._nodes.on(lambda change: keys.add(change.key))

        def machine_changed(change: informer.Change) -> None:
            for name in nodelink.nodes_of(change.object, self._nodes):
                keys.add(name)

        self._machines.on(machine_changed)

    def reconcile(self, key: str) -> controller.Result:
        node = self._nodes.get(key)
        if node is None or objects.is_deleted(node):
            self._forget(key)
            return controller.Result()
        machine = nodelink.machine_of(node, self._machines)
        if machine is not None:
            self._complete(node, machine)
        if not is_silent(node):
            self._forget(key)
            return controller.Result()
        wanted = self._ours(node, machine)
        return controller.Result() if wanted is None else self._away(node, wanted)

    # -- completing ------------------------------------------------------------------------------------------------

    def _complete(self, node: Object, machine: Object) -> None:
        name, version = objects.name(node), objects.revision(node)
        try:
            if addresses := missing_addresses(node, machine):
                body = {"metadata": {"resourceVersion": version}, "status": {"addresses": addresses}}
                answer = self._client.patch(kinds.NODE, name, "", body, subresource="status")
                version = objects.revision(answer)
            if change := initialization(node, machine):
                metadata = {**change.get("metadata", {}), "resourceVersion": version}
                self._client.patch(kinds.NODE, name, "", {**change, "metadata": metadata})
                if waits_for_a_cloud(node) and "taints" not in change.get("spec", {}):
                    self._tell(f"node {name} waits for what its machine does not tell yet: its instance or an address")
                else:
                    self._tell(f"node {name} is complete: {objects.provider_id(machine) or 'it has its labels'}")
        except errors.NotFound:
            pass  # it has gone meanwhile

    # -- removing --------------------------------------------------------------------------------------------------

    def _ours(self, node: Object, machine: Object | None) -> contract.Machine | None:
        """The machine that the node is or was, as the platform is asked for it; None if it never was one of ours."""
        if machine is not None:
            if not objects.node_name(machine) or objects.node_uid(machine) != objects.uid(node):
                return None  # it is not known for sure to be this one
            return self._wanted(objects.name(machine), objects.provider_id(machine) or objects.provider_id(node))
        namespace, name = objects.split(_machine_key(node))
        if namespace != self._place.namespace or not name or not objects.provider_id(node):
            return None
        if self._machines.get(f"{namespace}/{name}") is not None:
            return None  # its machine is there, but is another instance: whose the node is, is not known
        return self._wanted(name, objects.provider_id(node))

    def _wanted(self, name: str, provider_id: str) -> contract.Machine:
        """Enough to look for an instance, and not enough to make one."""
        return contract.Machine(name, self._place.infra_id, "worker", {}, b"", provider_id, self._place.vips)

    def _away(self, node: Object, wanted: contract.Machine) -> controller.Result:
        """What becomes of a node that does not report."""
        name, source = objects.name(node), self._source()
        if (rest := self._rest(name, source)) > 0:
            return controller.Result(rest)
        try:
            instance = self._actuator.exists(wanted)
        except platform_errors.PlatformFailure:
            self._forget(name)  # who cannot answer now may not have known before either
            raise
        if self._source() is not source:
            self._forget(name)  # the credentials changed just now: by which of them this was said is not known
            return controller.Result(APART)
        if instance is not None:
            with self._turn:
                self._absences.pop(name, None)
                self._present[name] = (self._clock.now(), source)
            return controller.Result(AWAY)
        first = self._absent(node, source)
        over = first.since + APART - self._clock.now()
        if over > 0:
            return controller.Result(over)
        self._remove(node)
        return controller.Result()

    def _rest(self, name: str, source: object) -> float:
        """Seconds for which the platform's last answer is good enough: a node may change often, and be silent."""
        with self._turn:
            at, said_by = self._present.get(name, (-AWAY, source))
        return at + AWAY - self._clock.now() if said_by is source else 0.0

    def _absent(self, node: Object, source: object) -> _Absence:
        name, uid = objects.name(node), objects.uid(node)
        with self._turn:
            known = self._absences.get(name)
            # New credentials may show another part of the platform, or another platform: they count anew.
            if known is None or known.uid != uid or known.source is not source:
                known = self._absences[name] = _Absence(uid, self._clock.now(), source)
            return known

    def _remove(self, node: Object) -> None:
        name = objects.name(node)
        try:
            present = self._client.get(kinds.NODE, name)
            if objects.uid(present) != objects.uid(node) or not is_silent(present):
                self._forget(name)
                return
            self._check()
            self._client.delete(kinds.NODE, name, uid=objects.uid(node))
        except (errors.NotFound, errors.Conflict):
            self._forget(name)
            return
        self._forget(name)
        self._tell(f"node {name} is removed: its instance is gone, as the platform said twice")

    def _forget(self, name: str) -> None:
        with self._turn:
            self._absences.pop(name, None)
            self._present.pop(name, None)
