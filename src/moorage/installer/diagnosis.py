"""What a cluster that is not ready lacks, in sentences, from what its API shows.

`look` reads nodes, certificate requests, machines and who makes them, the cluster version and the operators once; all
else is pure. The aim is the sentence an experienced colleague would say after five minutes of looking around: not
"timed out", but "2 of 3 masters are Nodes, the other one has not asked for a certificate". What is true of several is
told once.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509 import oid

from moorage.installer import awaited_workers, kube, wording
from moorage.machines import overview

Object = Mapping[str, Any]

NODES = "/api/v1/nodes"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
MACHINES = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machines"
VERSION = "/apis/config.openshift.io/v1/clusterversions/version"
OPERATORS = "/apis/config.openshift.io/v1/clusteroperators"

_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
_SERVING_SIGNER = "kubernetes.io/kubelet-serving"
_NODE_USER = "system:node:"
#: What is told of machines that have asked to be let in, by the state of their request and whether they are several.
_JOINING = {
    ("denied", False): "the certificate request {names} of {nodes} was denied",
    ("denied", True): "the certificate requests {names} of {nodes} were denied",
    ("failed", False): "the certificate request {names} of {nodes} failed",
    ("failed", True): "the certificate requests {names} of {nodes} failed",
    ("pending", False): "{nodes} waits for its certificate request {names} to be approved",
    ("pending", True): "{nodes} wait for their certificate requests {names} to be approved",
    ("approved", False): "{nodes} has been let in, but is no Node yet",
    ("approved", True): "{nodes} have been let in, but are no Nodes yet",
}
_MASTER_LABELS = ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane")
_MOST_NAMED = 6


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known of the cluster beforehand; None where the install-config is not at hand."""

    masters: int | None = None
    workers: int | None = None
    hardware: bool = False


@dataclasses.dataclass(frozen=True)
class Sight:
    """What the API showed at one moment. What is not there (yet) is empty."""

    nodes: Sequence[Object] = ()
    requests: Sequence[Object] = ()
    machines: Sequence[Object] = ()
    makers: awaited_workers.Sight = dataclasses.field(default_factory=awaited_workers.Sight)
    version: Object = dataclasses.field(default_factory=dict)
    operators: Sequence[Object] = ()


@dataclasses.dataclass(frozen=True)
class Request:
    """A node's request for a certificate, reduced to what matters here."""

    name: str
    node: str
    signer: str
    created: str
    state: str


def diagnose(reader: kube.Reader, facts: Facts) -> str:
    """All that is missing for the cluster to be ready; empty if nothing can be seen to be."""
    return sentence(look(reader), facts)


def look(reader: kube.Reader) -> Sight:
    """Read what a diagnosis needs. What does not exist yet is left empty; other problems of the API are raised."""
    return Sight(
        nodes=listed(reader, NODES),
        requests=listed(reader, REQUESTS),
        machines=listed(reader, MACHINES),
        makers=_makers(reader),
        version=present(reader, VERSION),
        operators=listed(reader, OPERATORS),
    )


def _makers(reader: kube.Reader) -> awaited_workers.Sight:
    deployment = present(reader, awaited_workers.DEPLOYMENT)
    pods = () if awaited_workers.is_at_work(deployment) else listed(reader, awaited_workers.PODS)
    return awaited_workers.Sight(listed(reader, awaited_workers.SETS), deployment, pods)


def listed(reader: kube.Reader, path: str) -> Sequence[Object]:
    """The items of a list; none if the API does not have the kind (yet)."""
    items = present(reader, path).get("items")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def present(reader: kube.Reader, path: str) -> Object:
    """The object, or an empty one if it is not there (yet)."""
    try:
        return reader.get(path)
    except kube.Missing:
        return {}


def sentence(sight: Sight, facts: Facts) -> str:
    """Everything missing, the machines first: without them no operator can work."""
    return wording.joined(
        machines_missing(sight, facts),
        version_missing(sight.version),
        operators_missing(sight.operators),
    )


def machines_missing(sight: Sight, facts: Facts) -> str:
    """What is missing until all machines are nodes at work."""
    masters = [node for node in sight.nodes if is_master(node)]
    workers = [node for node in sight.nodes if not is_master(node)]
    wanted = _workers_wanted(sight, facts)
    return wording.joined(
        _arrival("master", len(masters), facts.masters, sight)
        or wording.joined(_arrival("worker", len(workers), wanted, sight), _unmade(len(workers), wanted, sight))
        or _joining([request for request in _newcomers(sight) if request.state != "approved"]),
        *_not_ready("master", masters),
        *_not_ready("worker", workers),
        _unapproved(sight),
        *(_failed_machine(machine) for machine in sight.machines),
    )


def still_missing(reader: kube.Reader, facts: Facts) -> str:
    """The machines that a cluster which is complete could do without; whoever cannot be asked lacks nothing."""
    try:
        return machines_missing(look(reader), facts)
    except kube.ApiProblem:
        return ""


def silent(sight: Sight, facts: Facts) -> str:
    """The role of which machines are missing that have not even asked to be let in; empty if there are none."""
    asked = len(_newcomers(sight))
    for role, wanted in (("master", facts.masters), ("worker", _workers_wanted(sight, facts))):
        have = sum(is_master(node) == (role == "master") for node in sight.nodes)
        if wanted is not None and have + asked < wanted:
            return role
    return ""


def _workers_wanted(sight: Sight, facts: Facts) -> int | None:
    """As many as MachineSets are to make: somebody may have scaled them since the install-config was written."""
    if facts.workers is None or not sight.makers.sets:
        return facts.workers
    return sum(awaited_workers.counts(found)[0] for found in sight.makers.sets)


def version_missing(version: Object) -> str:
    """What the cluster version operator says it is busy with, or stuck at."""
    if not version:
        return "there is no ClusterVersion yet"
    for kind in ("Failing", "Progressing"):
        found = condition(version, kind)
        if found.get("status") == "True":
            return f"the cluster version operator says: {_brief(found)}"
    return "" if condition(version, "Available").get("status") == "True" else "the cluster version is not available yet"


def operators_missing(operators: Iterable[Object]) -> str:
    """The operators that are not well, with their own words: degraded ones first."""
    troubles: tuple[tuple[str, str, str], ...] = (
        ("Degraded", "True", "degraded"),
        ("Available", "False", "not available"),
        ("Progressing", "True", "progressing"),
    )
    ranked: list[tuple[str, tuple[int, str]]] = []
    for operator in sorted(operators, key=name_of):
        for rank, (kind, status, _) in enumerate(troubles):
            found = condition(operator, kind)
            if found.get("status") == status:
                ranked.append((name_of(operator), (rank, _brief(found))))
                break
    told = [
        f"{', '.join(wording.cut(names, 'operators'))} {'is' if len(names) == 1 else 'are'} {troubles[rank][2]}: {why}"
        for (rank, why), names in sorted(wording.together(ranked).items(), key=lambda each: (each[0][0], each[1]))
    ]
    return wording.joined(*wording.cut(told, "reasons"))


def degraded(operators: Iterable[Object]) -> tuple[str, ...]:
    """The operators that call themselves degraded, with their own words."""
    found = ((name_of(operator), condition(operator, "Degraded")) for operator in operators)
    return tuple(f"{name} is degraded: {_brief(state)}" for name, state in found if state.get("status") == "True")


def etcd_missing(etcd: Object, endpoints: Object, facts: Facts) -> str:
    """What is missing until the bootstrap's member can leave etcd."""
    if not etcd:
        return "the etcd operator has not reported yet"
    members = endpoints.get("data")
    counted = ""
    if isinstance(members, dict):
        of = f" of {facts.masters}" if facts.masters else ""
        counted = f"etcd has {len(members)}{of} members besides the bootstrap's"
    running = condition(etcd, "EtcdRunningInCluster")
    degraded_etcd = condition(etcd, "EtcdMembersDegraded")
    return wording.joined(
        counted,
        f"the etcd operator says: {_brief(running)}" if running else "the etcd operator has not judged its members yet",
        f"members are degraded: {_brief(degraded_etcd)}" if degraded_etcd.get("status") == "True" else "",
    )


def advice(sight: Sight, root: Path) -> str:
    """What a person can do about it from here, if anything."""
    waiting = [request.name for request in _requests(sight) if request.state == "pending"]
    if not waiting:
        return awaited_workers.advice(sight.makers, sight.machines, root)
    named = " ".join(waiting[:_MOST_NAMED])
    more = f" (and {len(waiting) - _MOST_NAMED} more)" if len(waiting) > _MOST_NAMED else ""
    return f"if these machines are yours, let them in: oc adm certificate approve {named}{more}"


def condition(thing: Object, kind: str) -> Object:
    """The condition of that type in the object's status; empty if it has none."""
    status = thing.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    for found in conditions if isinstance(conditions, list) else ():
        if isinstance(found, dict) and found.get("type") == kind:
            return found
    return {}


def name_of(thing: Object) -> str:
    metadata = thing.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def is_master(node: Object) -> bool:
    labels = node.get("metadata", {}).get("labels") or {}
    return any(label in labels for label in _MASTER_LABELS)


def _arrival(role: str, have: int, want: int | None, sight: Sight) -> str:
    """How far the machines of a role have come; empty if all of them are nodes."""
    if want is None or have >= want:
        return ""
    if have == 0:
        counted = f"the {role} is not a Node yet" if want == 1 else f"none of {want} {role}s is a Node yet"
    else:
        counted = f"{have} of {want} {role}s {'is a Node' if have == 1 else 'are Nodes'}"
    asked = _newcomers(sight)
    return ", ".join(filter(None, (counted, _joining(asked), _still_silent(have, want, asked))))


def _unmade(have: int, want: int | None, sight: Sight) -> str:
    """What those say that make the workers, if some are missing."""
    if want is None or have >= want:
        return ""
    asking = {each.node: overview.Request(each.name) for each in _newcomers(sight) if each.state == "pending"}
    told = list(awaited_workers.sentences(sight.makers, sight.machines, asking))
    return wording.joined(*wording.cut(told, "machines"))


def _still_silent(have: int, want: int, asked: Sequence[Request]) -> str:
    """Those that have not even asked to be let in: they have not booted, or cannot reach the cluster."""
    silent = want - have - len(asked)
    if silent <= 0:
        return ""
    if asked:
        return f"{silent} more {'has' if silent == 1 else 'have'} not asked for a certificate"
    if have == 0:
        return "none has asked for a certificate" if silent > 1 else "it has not asked for a certificate"
    others = "none of the others has" if silent > 1 else "the other one has not"
    return f"{others} asked for a certificate"


def _joining(asked: Sequence[Request]) -> str:
    told = []
    for state in ("denied", "failed", "pending", "approved"):
        found = [request for request in asked if request.state == state]
        if found:
            nodes = ", ".join(wording.cut([request.node for request in found], "machines"))
            names = ", ".join(wording.cut([request.name for request in found], "requests"))
            told.append(_JOINING[state, len(found) > 1].format(nodes=nodes, names=names))
    return ", ".join(told)


def _newcomers(sight: Sight) -> list[Request]:
    """The latest request of every machine that asked to become a node and is none yet."""
    nodes = {name_of(node) for node in sight.nodes}
    asked = (request for request in _requests(sight) if request.signer == _CLIENT_SIGNER and request.node not in nodes)
    latest = {request.node: request for request in sorted(asked, key=lambda request: request.created)}
    return [latest[node] for node in sorted(latest)]


def _unapproved(sight: Sight) -> str:
    waiting = {
        request.node for request in _requests(sight) if request.signer == _SERVING_SIGNER and request.state == "pending"
    }
    if not waiting:
        return ""
    verb = "waits for its" if len(waiting) == 1 else "wait for their"
    return f"{', '.join(wording.cut(sorted(waiting), 'nodes'))} {verb} serving certificate to be approved"


def _requests(sight: Sight) -> list[Request]:
    found = []
    for item in sight.requests:
        spec = item.get("spec") or {}
        node = _requested_node(str(spec.get("request") or "")) or str(spec.get("username") or "")
        if not node.startswith(_NODE_USER):
            continue
        created = str(item.get("metadata", {}).get("creationTimestamp") or "")
        signer = str(spec.get("signerName") or "")
        found.append(Request(name_of(item), node.removeprefix(_NODE_USER), signer, created, _state(item)))
    return found


def _state(request: Object) -> str:
    for kind in ("Denied", "Failed", "Approved"):
        if condition(request, kind).get("status") == "True":
            return kind.lower()
    return "pending"


def _requested_node(request: str) -> str:
    """The name in a certificate request: before it is granted, nothing else tells which machine asks."""
    try:
        subject = x509.load_pem_x509_csr(base64.b64decode(request)).subject
    except (binascii.Error, ValueError):
        return ""
    names = subject.get_attributes_for_oid(oid.NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _not_ready(role: str, nodes: Sequence[Object]) -> list[str]:
    """Nodes of a role that are not Ready: by their names, or by their number if it is all there are."""
    waiting = [(name_of(node), ready) for node in nodes if (ready := condition(node, "Ready")).get("status") != "True"]
    told = []
    for why, names in wording.together((name, _brief(ready)) for name, ready in waiting).items():
        if len(names) == 1:
            told.append(f"{names[0]} is not Ready: {why}")
        elif len(names) == len(nodes):
            told.append(f"{len(names)} {role}s are not Ready: {why}")
        else:
            told.append(f"{', '.join(wording.cut(names, 'nodes'))} are not Ready: {why}")
    return wording.cut(told, "reasons")


def _failed_machine(machine: Object) -> str:
    status = machine.get("status") or {}
    if status.get("phase") != "Failed":
        return ""
    reason = wording.short(str(status.get("errorMessage") or status.get("errorReason") or "no reason given"))
    return f"the machine {name_of(machine)} has failed: {reason}"


def _brief(found: Object) -> str:
    return wording.short(str(found.get("message") or found.get("reason") or "no reason given"))
