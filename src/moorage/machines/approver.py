"""Lets nodes in: approves those requests for certificates that `approval` finds in order, and nothing else, ever.

Requests, machines and nodes are read from caches, and a request that concerns a machine is looked at again when that
machine changes. A new machine is let in only after the API itself has confirmed that there is no such node yet and
that the machine is still there, is not going away and has an instance: caches may lag behind. Nothing is ever denied.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import prometheus_client
from cryptography import x509

from moorage.engine import clock as clocks
from moorage.machines import approval, kubelets, nodelink, objects, phases
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import controller, errors, informer, kinds, metrics, queue

Object = Mapping[str, Any]

PENDING: Final = prometheus_client.Gauge(
    "mapi_current_pending_csr", "Requests of nodes that wait for a decision.", registry=metrics.REGISTRY
)
MOST_PENDING: Final = prometheus_client.Gauge(
    "mapi_max_pending_csr", "Requests beyond which nothing is approved.", registry=metrics.REGISTRY
)

#: Cloud seconds until something that was missing is looked for again; most of it announces itself before.
AGAIN: Final = 30.0
_CLAIMED: Final = "claimed"
#: Types of addresses that a name in a request may be: a node is let in by its internal name alone.
_NAMES: Final = {
    approval.CLIENT: ("InternalDNS",),
    approval.SERVING: ("InternalDNS", "ExternalDNS", "Hostname"),
}
_CONDITION: Final = {
    "type": "Approved",
    "status": "True",
    "reason": "MachineApprove",
    "message": "The machine-api has a machine for this node.",
}


def known(machine: Object, signer: str) -> approval.Machine | None:
    """A Machine object as the rules see it; None if it does not even say when it was made."""
    created = _moment(objects.metadata(machine).get("creationTimestamp"))
    if created is None:
        return None
    return approval.Machine(
        name=objects.name(machine),
        created=created,
        names=nodelink.addresses(machine, *_NAMES[signer]),
        addresses=nodelink.addresses(machine, "InternalIP", "ExternalIP"),
        node=objects.node_name(machine),
    )


def may_join(machine: Object) -> str:
    """Why a machine cannot become a node now, or nothing if it can."""
    if objects.is_deleted(machine):
        return "its machine is being deleted"
    if not phases.is_provisioned(machine):
        return "its machine has no instance yet, so nobody can ask for it"
    return ""


class Approver:
    """Judges requests; its keys are their names."""

    def __init__(
        self,
        client: clients.Client,
        requests: informer.Informer,
        machines: informer.Informer,
        nodes: informer.Informer,
        *,
        clock: clocks.Clock,
        tell: Callable[[str], None],
        shown: Callable[[Object], x509.Certificate],
    ) -> None:
        self._client = client
        self._requests = requests
        self._machines = machines
        self._nodes = nodes
        self._clock = clock
        self._tell = tell
        self._shown = kubelets.Answers(shown, clock, AGAIN)
        self._turn = threading.Lock()
        #: When each request was made that waits for a decision: thousands need not be read anew for every one of them.
        self._pending: dict[str, datetime.datetime] = {}
        #: What the machines were the last time, by key: thousands need not be read anew for every request.
        self._read: dict[tuple[str, str], tuple[str, approval.Machine | None]] = {}
        #: The last word about each request that is still open.
        self._told: dict[str, str] = {}
        requests.on(self._note)
        requests.add_index(_CLAIMED, lambda request: filter(None, (approval.claimed(request),)))

    def feed(self, keys: queue.Queue) -> None:
        """Have the requests looked at that a change is about."""
        self._requests.on(lambda change: keys.add(change.key))

        def about(names: tuple[str, ...]) -> None:
            for name in names:
                for request in self._requests.by_index(_CLAIMED, name):
                    if not approval.is_decided(request):
                        keys.add(objects.name(request))

        self._nodes.on(lambda change: about((change.key,)))
        self._machines.on(lambda change: about(_all_names(change.object)))

    def reconcile(self, key: str) -> controller.Result:
        pending = self._count()
        request = self._requests.get(key)
        if request is None or approval.is_decided(request):
            self._told.pop(key, None)
            return controller.Result()
        if objects.spec(request).get("signerName") not in _NAMES:
            return controller.Result()
        verdict = self._judged(request, pending)
        if isinstance(verdict, approval.Approve):
            self._approve(request, verdict)
            return controller.Result()
        self._say(key, f"request {key} is left pending: {verdict.reason}")
        return controller.Result(AGAIN if isinstance(verdict, approval.Wait) else None)

    def _note(self, change: informer.Change) -> None:
        since = None if change.new is None else approval.pending_since(change.new)
        with self._turn:
            if since is None:
                self._pending.pop(change.key, None)
            else:
                self._pending[change.key] = since

    def _count(self) -> int:
        with self._turn:
            pending = approval.still_recent(self._pending.values(), self._clock.wall())
        PENDING.set(pending)
        MOST_PENDING.set(max(len(self._machines.list()), len(self._nodes.list())) + approval.SURPLUS)
        return pending

    def _judged(self, request: Object, pending: int) -> approval.Verdict:
        signer = str(request["spec"]["signerName"])
        machines = self._known(signer)
        nodes = {objects.name(node) for node in self._nodes.list()}
        # The only date that the rules compare with now is a certificate's, and certificates live by the real clock.
        now = datetime.datetime.now(datetime.UTC)
        verdict = approval.judge(request, machines, nodes, pending, now)
        if isinstance(verdict, approval.Approve):
            return self._confirmed(verdict) if signer == approval.CLIENT else verdict
        node = self._nodes.get(approval.claimed(request)) if verdict.renewable else None
        if node is None:
            return verdict
        try:
            certificate = self._shown(node)
        except (kubelets.NotShown, errors.ApiError) as problem:
            return approval.Wait(f"{verdict.reason}; and {problem.message}")
        return approval.judge(request, machines, nodes, pending, now, certificate)

    def _confirmed(self, verdict: approval.Approve) -> approval.Verdict:
        """The same again by what the API says now, for what can no longer be taken back."""
        for cached in [each for each in self._machines.list() if verdict.node in _all_names(each)]:
            name = objects.name(cached)
            try:
                machine = self._client.get(kinds.MACHINE, name, objects.namespace(cached))
            except errors.NotFound:
                return approval.Wait(f"its machine {name} is gone")
            if why := may_join(machine):
                return approval.Wait(why)
            if node := objects.node_name(machine):
                return approval.Wait(f"its machine {name} is the node {node} already")
        try:
            self._client.get(kinds.NODE, verdict.node, "")
        except errors.NotFound:
            return verdict
        return approval.Wait(f"there is a node {verdict.node} already")

    def _known(self, signer: str) -> list[approval.Machine]:
        """All machines as the rules see them."""
        found: dict[tuple[str, str], tuple[str, approval.Machine | None]] = {}
        with self._turn:
            for machine in self._machines.list():
                mark, version = (objects.key(machine), signer), objects.revision(machine)
                before = self._read.get(mark)
                found[mark] = before if before and before[0] == version else (version, known(machine, signer))
            self._read = {**{mark: read for mark, read in self._read.items() if mark[1] != signer}, **found}
        return [machine for _, machine in found.values() if machine is not None]

    def _approve(self, request: Object, verdict: approval.Approve) -> None:
        name = objects.name(request)
        body = {
            "metadata": {"resourceVersion": objects.revision(request)},
            "status": {"conditions": [_CONDITION]},
        }
        # A conflict means that it was changed meanwhile: the new state is on its way, and will be judged then.
        try:
            self._client.patch(kinds.CSR, name, "", body, subresource="approval")
        except errors.NotFound:
            return  # nobody waits for the answer any more
        self._told.pop(name, None)
        self._tell(f"{verdict.node} was let in: its {verdict.purpose} certificate is approved ({name})")

    def _say(self, key: str, sentence: str) -> None:
        if self._told.get(key) != sentence:
            self._told[key] = sentence
            self._tell(sentence)


def _all_names(machine: Object) -> tuple[str, ...]:
    """All that a node of this machine may be called, now or before."""
    return tuple(filter(None, dict.fromkeys((*nodelink.names(machine), objects.node_name(machine)))))


def _moment(text: object) -> datetime.datetime | None:
    try:
        found = datetime.datetime.fromisoformat(str(text or ""))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
