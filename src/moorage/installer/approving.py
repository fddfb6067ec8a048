"""Letting in the workers that `create cluster` made: somebody must, in a cluster that has no machine controllers.

Where the cluster makes its workers itself, its own approver lets them in and nobody stands here. Otherwise a thread
stands at the door while the cluster is waited for. It looks at requests for certificates that name one of those
workers, asks the platform for the worker's machine, and approves what `machines.approval` finds in order. It knows no
other names, so it lets in nobody else. What goes wrong here is told, and tried again; the wait itself goes on
regardless, and says in the end who is missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from moorage import errors as top
from moorage.assets import platform as platforms
from moorage.assets import values
from moorage.engine import errors
from moorage.installer import diagnosis, kube, kubeconfig
from moorage.machines import approval
from moorage.platforms import contract, registry

#: ``tell(sentence)``: who was let in, who was not and why, and what is in the way.
Tell = Callable[[str], None]

#: Cloud seconds between two looks at the requests; real seconds below which looking more often tells nothing.
EVERY = 10.0
_SHORTEST = 0.05
#: Cloud seconds for which what the platform said about a machine is good enough.
FRESH = 20.0
#: Real seconds that the end of the stage waits for a call that is under way.
_FAREWELL = 5.0

_BIRTH = "/api/v1/namespaces/kube-system"
_CONDITION = {
    "type": "Approved",
    "status": "True",
    "reason": "MoorageApprove",
    "message": "moorage create cluster made this machine.",
}


def workers(cluster: contract.Cluster) -> tuple[contract.Machine, ...]:
    """The workers that `create cluster` makes itself; none where the cluster does, or the user brings them."""
    context = platforms.Context(cluster.config, cluster.cluster_id, cluster.release)
    found = registry.manifests(cluster.config.platform.name).worker_machines(context)
    return tuple(_wanted(manifest, cluster) for manifest in found)


def _wanted(manifest: values.Manifest, cluster: contract.Cluster) -> contract.Machine:
    machine = cast(Mapping[str, Any], manifest)
    return contract.Machine(
        name=machine["metadata"]["name"],
        infra_id=cluster.infra_id,
        role="worker",
        provider_spec=machine["spec"]["providerSpec"]["value"],
        user_data=cluster.ignition["worker"],
        # A worker that carries one of these for a while must not get a certificate for it.
        not_addresses=(*cluster.endpoints.api_vips, *cluster.endpoints.ingress_vips),
    )


@contextlib.contextmanager
def letting_in(
    cluster: contract.Cluster,
    directory: Path,
    around: contract.Surroundings,
    made: datetime.datetime,
    tell: Tell,
) -> Iterator[None]:
    """While inside, the cluster's first workers are let in. ``made`` is when they were, by the clock of ``around``."""
    machines = workers(cluster)
    actuator = _actuator(cluster, around) if machines else None
    if actuator is None:
        yield
        return
    over = threading.Event()

    def tell_in_time(sentence: str) -> None:
        if not over.is_set():
            tell(sentence)

    with contextlib.closing(Doorkeeper(machines, actuator, directory, around, made, tell_in_time)) as keeper:
        thread = threading.Thread(target=_stand, args=(keeper, over, around), name="doorkeeper", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(_FAREWELL)
        for sentence in keeper.left_outside():
            tell(sentence)


def _actuator(cluster: contract.Cluster, around: contract.Surroundings) -> contract.Actuator | None:
    """Who knows the platform's machines; None where nobody does: then nobody can say which are ours."""
    try:
        return registry.machines(cluster.config.platform.name).actuator(around)
    except registry.NotOffered:
        return None


def _stand(keeper: Doorkeeper, over: threading.Event, around: contract.Surroundings) -> None:
    """Look again and again, until it is over."""
    pause = max(EVERY / around.clock.speed, _SHORTEST)
    with contextlib.suppress(errors.Interrupted):
        while not over.is_set():
            keeper.try_to_look()
            over.wait(pause)


@dataclasses.dataclass(frozen=True)
class _Seen:
    """What the platform said about a machine, and when."""

    instance: contract.Instance | None
    at: float


class Doorkeeper:
    """Approves what the named machines may ask for."""

    def __init__(
        self,
        machines: Sequence[contract.Machine],
        actuator: contract.Actuator,
        directory: Path,
        around: contract.Surroundings,
        made: datetime.datetime,
        tell: Tell,
    ) -> None:
        self._machines = {machine.name: machine for machine in machines}
        self._actuator = actuator
        self._kubeconfig = directory / kubeconfig.FILE
        self._around = around
        self._made = made
        self._tell = tell
        self._began = around.clock.wall()
        self._editor: kube.Editor | None = None
        self._birth: datetime.datetime | None = None
        self._seen: dict[str, _Seen] = {}
        #: When the last approved request of a node was made, by node and signer.
        self._answered: dict[tuple[str, str], str] = {}
        #: The name of a request that is in order but for what we cannot see yet, and what that is, by node and signer.
        self._waiting: dict[tuple[str, str], tuple[str, str]] = {}
        self._told: set[tuple[str, str]] = set()
        self._trouble = ""

    def close(self) -> None:
        if self._editor is not None:
            self._editor.close()
            self._editor = None

    def left_outside(self) -> list[str]:
        """Who still waits for a certificate, why, and what would help: nobody looks after them when we are gone."""
        return [
            f"{node} still waits for a certificate ({reason}); if it is yours: oc adm certificate approve {name}"
            for (node, _), (name, reason) in sorted(self._waiting.items())
        ]

    def try_to_look(self) -> None:
        """`look`, and tell of what went wrong, once for each trouble; only the wish to stop gets through."""
        try:
            self.look()
            trouble = ""
        except errors.Interrupted:
            raise
        except (kube.Unreachable, kube.Distrusted, kube.Troubled):
            trouble = ""  # whoever waits for the cluster says so already
        except errors.PlatformFailure as problem:
            trouble = problem.told()
        except top.MoorageError as problem:
            trouble = problem.message
        except Exception as problem:  # noqa: BLE001 - whatever it is, the installation must not end of it
            trouble = f"{type(problem).__name__}: {problem}"
        if trouble and trouble != self._trouble:
            self._tell(f"workers cannot be let in at the moment: {trouble}")
        self._trouble = trouble

    def look(self) -> None:
        """One look at all requests; what is in order is approved."""
        editor = self._connected()
        requests = diagnosis.listed(editor, diagnosis.REQUESTS)
        ours = self._ours(requests)
        if not ours:
            return
        nodes = {diagnosis.name_of(node): _addresses(node) for node in diagnosis.listed(editor, diagnosis.NODES)}
        birth = self._born(editor)
        pending = approval.recently_pending(requests, self._cluster_time(birth, self._around.clock.wall()))
        troubles: list[top.MoorageError] = []
        for node, request in ours:
            if self._is_superseded(node, request):
                continue
            try:
                verdict = self._judged(node, request, nodes, pending, birth)
                if isinstance(verdict, approval.Approve):
                    self._approve(editor, request, verdict)
                else:
                    if isinstance(verdict, approval.Wait):
                        self._waiting[node, _signer(request)] = diagnosis.name_of(request), verdict.reason
                    self._tell_once(request, f"{node} is not let in: {verdict.reason}")
            except (errors.PlatformFailure, kube.ApiProblem) as trouble:
                troubles.append(trouble)  # one machine's trouble must not keep the others out
        if troubles:
            raise troubles[0]

    def _ours(self, requests: Sequence[diagnosis.Object]) -> list[tuple[str, diagnosis.Object]]:
        """Undecided requests that name a worker of ours, the newest first.

        A kubelet that waited in vain asks anew, and nobody waits for the answer to what it asked before.
        """
        named = [(approval.claimed(request), request) for request in requests if not approval.is_decided(request)]
        ours = [(node, each) for node, each in named if node in self._machines and not self._is_superseded(node, each)]
        return sorted(ours, key=lambda pair: _asked_at(pair[1]), reverse=True)

    def _is_superseded(self, node: str, request: diagnosis.Object) -> bool:
        return _asked_at(request) <= self._answered.get((node, _signer(request)), "")

    def _judged(
        self,
        node: str,
        request: diagnosis.Object,
        nodes: Mapping[str, tuple[str, ...]],
        pending: int,
        birth: datetime.datetime,
    ) -> approval.Verdict:
        """``nodes`` are all there are, with the addresses that they say they have."""
        instance = self._instance(node)
        if instance is None:
            return approval.Wait("the platform has no machine of this name")
        if not instance.ready:
            return approval.Wait(f"its machine is {instance.state}, and no finished machine asks for certificates")
        machine = approval.Machine(
            name=node,
            created=birth,
            vouched=self._cluster_time(birth, self._began),
            addresses=instance.addresses,
        )
        now = self._cluster_time(birth, self._around.clock.wall())
        # The others count, and what they have is theirs; but nothing is approved for them here.
        others = [
            approval.Machine(name, birth, addresses=nodes.get(name, ()), node=name if name in nodes else "")
            for name in {**self._machines, **nodes}
            if name != node
        ]
        return approval.judge(request, [machine, *others], nodes, pending, now)

    def _approve(self, editor: kube.Editor, request: diagnosis.Object, verdict: approval.Approve) -> None:
        name = diagnosis.name_of(request)
        # Items of a list do not say what they are; what is sent has to.
        content = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", **request}
        content["status"] = {**(request.get("status") or {}), "conditions": [_CONDITION]}
        try:
            editor.replace(f"{diagnosis.REQUESTS}/{name}/approval", content)
        except kube.Conflicting:
            return  # somebody else decided; the next look shows what
        self._answered[verdict.node, _signer(request)] = _asked_at(request)
        self._waiting.pop((verdict.node, _signer(request)), None)
        self._tell_once(request, f"{verdict.node} was let in: its {verdict.purpose} certificate is approved ({name})")

    def _instance(self, name: str) -> contract.Instance | None:
        """The platform's machine, not asked for at every look while it stays as it is."""
        now = self._around.clock.now()
        seen = self._seen.get(name)
        if seen is None or now - seen.at >= FRESH:
            seen = self._seen[name] = _Seen(self._actuator.exists(self._machines[name]), now)
        return seen.instance

    def _born(self, editor: kube.Editor) -> datetime.datetime:
        if self._birth is None:
            at = str(editor.get(_BIRTH)["metadata"]["creationTimestamp"])
            self._birth = datetime.datetime.fromisoformat(at)
        return self._birth

    def _cluster_time(self, birth: datetime.datetime, wall: datetime.datetime) -> datetime.datetime:
        """A moment of our clock by the cluster's, which may be set quite differently.

        The cluster came to life soon after its machines were made: so it is as old as they are, or a little younger.
        """
        return birth + max(wall - self._made, datetime.timedelta(0))

    def _connected(self) -> kube.Editor:
        if self._editor is None:
            access = kubeconfig.read(self._kubeconfig)
            self._editor = kube.Editor(access, self._around.clock, self._around.environ)
        return self._editor

    def _tell_once(self, request: diagnosis.Object, sentence: str) -> None:
        told = (diagnosis.name_of(request), sentence)
        if told not in self._told:
            self._told.add(told)
            self._tell(sentence)


def _addresses(node: diagnosis.Object) -> tuple[str, ...]:
    found = (node.get("status") or {}).get("addresses") or ()
    return tuple(str(each.get("address")) for each in found if each.get("type") in ("InternalIP", "ExternalIP"))


def _asked_at(request: diagnosis.Object) -> str:
    """When the request was made, as the API writes it: in text that sorts as time does."""
    return str((request.get("metadata") or {}).get("creationTimestamp") or "")


def _signer(request: diagnosis.Object) -> str:
    return str((request.get("spec") or {}).get("signerName") or "")
