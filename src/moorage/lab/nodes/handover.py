"""How a cluster moves from its bootstrap machine to its masters, and stays there.

Operators roll the parts of the control plane out to every master that is Ready, one master after the other, and report
how far they are; etcd members come with them, and the bootstrap's member leaves when the others are enough and bootkube
has said that it is done. All of this goes on for as long as the cluster lives: a master that comes back has its parts
started again, a new one gets them, and certificates are replaced before they are over.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from moorage.lab.nodes import cluster as clusters
from moorage.lab.nodes import conditions, etcd, instance, serving, signing, static_pods

Object = dict[str, Any]

# Cloud seconds: from the first Ready master to operators at work there; from the bootstrap's last word to its
# member's removal; between two looks at the age of certificates.
OPERATOR_SECONDS = 60.0
MEMBER_REMOVAL_SECONDS = 20.0
ROTATION_SECONDS = 3600.0

_GROUP = "operator.openshift.io"
_VERSION_OPERATOR = static_pods.Component(
    "cluster-version-operator", "openshift-cluster-version", "cluster-version-operator"
)


async def run(cluster: clusters.Cluster) -> None:
    """Do the operators' work for ever."""
    manager = signing.ControllerManager(cluster)
    async with asyncio.TaskGroup() as group:
        group.create_task(_look_after(cluster, manager))
        group.create_task(_rotate(cluster, manager))
        group.create_task(_run_version_operator(cluster))
        group.create_task(_remove_bootstrap_member(cluster))
        for component in static_pods.CONTROL_PLANE:
            group.create_task(_roll_out(cluster, component))


def ready_masters(cluster: clusters.Cluster) -> list[tuple[str, instance.Instance]]:
    """Names and machines of the masters that are Ready and can be reached."""
    return [
        (node["metadata"]["name"], machine)
        for node, machine in cluster.masters()
        if machine.reachable and conditions.true(node, "Ready")
    ]


# --- operators ---------------------------------------------------------------------------------------------------


async def _operators_at_work(cluster: clusters.Cluster) -> None:
    """Return when the operators' pods run: they need a master that is Ready, and some time."""
    while not (cluster.alive and ready_masters(cluster)):
        await cluster.tick()
    await cluster.passed(OPERATOR_SECONDS)


async def _roll_out(cluster: clusters.Cluster, component: static_pods.Component) -> None:
    await _operators_at_work(cluster)
    while True:
        await cluster.until_alive()
        for name, machine in ready_masters(cluster):
            if not static_pods.placed(component, machine):
                _report(cluster, component, target=name)
                await _install(cluster, component, name, machine)
                # One at a time, and after each look anew: who is Ready may have changed meanwhile.
                break
        else:
            await cluster.tick()


async def _install(
    cluster: clusters.Cluster, component: static_pods.Component, name: str, machine: instance.Instance
) -> None:
    await cluster.passed(component.install_seconds)
    await cluster.until_alive()
    if not machine.reachable or cluster.site.instances.get(machine.name) is not machine:
        return
    if component is static_pods.API_SERVER:
        try:
            cluster.certificates.pairs()
        except serving.NoSigner as missing:
            _report(cluster, component, target=name, trouble=f"CertRotationError: {missing}")
            return
    if component is static_pods.ETCD and not _add_member(cluster, name, machine):
        return
    static_pods.place(component, machine)
    await cluster.run(component, machine)
    machine.say(f"kubelet: started static pod {component.namespace}/{component.pod_name(name)}")


def _add_member(cluster: clusters.Cluster, name: str, machine: instance.Instance) -> bool:
    known = cluster.etcd.members.get(name)
    if known is not None and known.machine is not machine and not cluster.etcd.remove(name):
        return False
    return cluster.etcd.add(name, machine)


async def _run_version_operator(cluster: clusters.Cluster) -> None:
    """The version operator of the cluster itself, on one of the masters."""
    await _operators_at_work(cluster)
    while cluster.find("", "Pod", _VERSION_OPERATOR.namespace, _VERSION_OPERATOR.pod_name("0")) is None:
        await cluster.until_alive()
        for name, machine in ready_masters(cluster)[:1]:
            since = cluster.api.time()
            pod = static_pods.mirror(_VERSION_OPERATOR, name, machine.address, ready=True, since=since)
            pod["metadata"] |= {"name": _VERSION_OPERATOR.pod_name("0"), "annotations": {}}
            cluster.put(pod)
        await cluster.tick()


async def _remove_bootstrap_member(cluster: clusters.Cluster) -> None:
    while cluster.etcd.has_bootstrap or not cluster.etcd.members:
        await cluster.tick()
        said = cluster.find("", "ConfigMap", "kube-system", "bootstrap") or {}
        if (said.get("data") or {}).get("status") == "complete" and _members_suffice(cluster):
            await cluster.passed(MEMBER_REMOVAL_SECONDS)
            if _members_suffice(cluster):
                cluster.etcd.remove(etcd.BOOTSTRAP)


def _members_suffice(cluster: clusters.Cluster) -> bool:
    return cluster.etcd.may_lose_bootstrap(highly_available=cluster.facts.highly_available)


async def _rotate(cluster: clusters.Cluster, manager: signing.ControllerManager) -> None:
    """The cluster's own signer and certificates: made once the operators are at work, replaced before they are over."""
    await _operators_at_work(cluster)
    while True:
        await manager.make_signer()
        if cluster.certificates.worn:
            await cluster.serve_anew()
        await cluster.passed(ROTATION_SECONDS)


# --- what is seen of it ------------------------------------------------------------------------------------------


async def _look_after(cluster: clusters.Cluster, manager: signing.ControllerManager) -> None:
    """Start what should run on masters, and report what does."""
    while True:
        for _, machine in list(cluster.masters()):
            await cluster.supervise(machine)
        _forget_members(cluster)
        await manager.work()
        if cluster.alive:
            for component in static_pods.CONTROL_PLANE:
                _report_pods(cluster, component)
                _report(cluster, component)
            _report_etcd(cluster)
            _report_endpoints(cluster)
        await cluster.tick()


def _forget_members(cluster: clusters.Cluster) -> None:
    """Members whose machine and Node are both gone for ever leave etcd."""
    nodes = {node["metadata"]["name"] for node, _ in cluster.masters()}
    for member in list(cluster.etcd.members.values()):
        gone = cluster.site.instances.get(member.machine.name) is not member.machine
        if gone and member.name not in nodes and member.name != etcd.BOOTSTRAP:
            cluster.etcd.remove(member.name)


def _report_pods(cluster: clusters.Cluster, component: static_pods.Component) -> None:
    for node, machine in cluster.masters():
        if not static_pods.placed(component, machine):
            continue
        metadata = node["metadata"]
        ready = static_pods.runs(component, machine)
        known = cluster.find("", "Pod", component.namespace, component.pod_name(metadata["name"]))
        if known is None or static_pods.is_ready(known) != ready:
            since, uid = cluster.api.time(), metadata["uid"]
            cluster.put(
                static_pods.mirror(component, metadata["name"], machine.address, ready=ready, since=since, uid=uid)
            )


def _report(
    cluster: clusters.Cluster, component: static_pods.Component, *, target: str = "", trouble: str = ""
) -> None:
    """The operator's status: which master has which revision, and what is wrong."""
    if component.kind:
        edit = functools.partial(_operator_status, cluster, component, target, trouble)
        cluster.change(_GROUP, component.kind, "", "cluster", edit)


def _operator_status(
    cluster: clusters.Cluster, component: static_pods.Component, target: str, trouble: str, content: Object
) -> None:
    status = content.setdefault("status", {})
    before = {each["nodeName"]: each for each in status.get("nodeStatuses") or ()}
    nodes = []
    for node, machine in cluster.masters():
        name, done = node["metadata"]["name"], static_pods.placed(component, machine)
        revision = int(done)
        aim = int(done or name == target or bool((before.get(name) or {}).get("targetRevision")))
        nodes.append({"nodeName": name, "currentRevision": revision, "targetRevision": aim})
    status["nodeStatuses"] = nodes
    status["latestAvailableRevision"] = 1
    active = [node["metadata"]["name"] for node, machine in cluster.masters() if static_pods.runs(component, machine)]
    current = sum(each["currentRevision"] for each in nodes)
    told = f"{len(active)} nodes are active; {current} nodes are at revision 1; {len(nodes) - current} at revision 0"
    behind = current < len(nodes)
    lost = sorted({each["nodeName"] for each in nodes if each["currentRevision"]} - set(active))
    ill = "; ".join(f'pod "{component.pod_name(name)}" is not running' for name in lost)
    for kind, truth, reason, message in (
        ("StaticPodsAvailable", bool(active), "AsExpected" if active else "ZeroNodesActive", told),
        ("NodeInstallerProgressing", behind, "AsExpected" if not behind else "NodeInstaller", told),
        ("StaticPodsDegraded", bool(lost), "Error" if lost else "AsExpected", ill),
        ("NodeInstallerDegraded", bool(trouble), "InstallerFailed" if trouble else "AsExpected", trouble),
    ):
        conditions.put(content, cluster.api.time(), kind, str(truth), reason, message)


def _report_etcd(cluster: clusters.Cluster) -> None:
    def edit(content: Object) -> None:
        def condition(kind: str, truth: bool, reason: str, message: str) -> Object:
            return conditions.put(content, cluster.api.time(), kind, str(truth), reason, message)

        list(etcd.conditions(cluster.etcd, highly_available=cluster.facts.highly_available, condition=condition))

    cluster.change(_GROUP, static_pods.ETCD.kind, "", "cluster", edit)
    if cluster.find("", "Namespace", "", static_pods.ETCD.namespace) is None:
        return  # the manifests are still being created
    wanted = etcd.endpoints(cluster.etcd)
    known = cluster.find("", "ConfigMap", "openshift-etcd", "etcd-endpoints") or {}
    marks = (known.get("metadata") or {}).get("annotations") or {}
    if known.get("data") != wanted["data"] or marks != wanted["metadata"].get("annotations", {}):
        cluster.put(wanted)


def _report_endpoints(cluster: clusters.Cluster) -> None:
    """Where the API is, for those inside the cluster who look up the service `kubernetes`."""
    addresses = sorted(machine.address for machine in cluster.servers())
    ports = [{"name": "https", "port": clusters.API_PORT, "protocol": "TCP"}]
    wanted = [{"addresses": [{"ip": address} for address in addresses], "ports": ports}]
    known = cluster.find("", "Endpoints", "default", "kubernetes")
    if known is None or known.get("subsets") != wanted:
        metadata = {"name": "kubernetes", "namespace": "default"}
        cluster.put({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": wanted})
