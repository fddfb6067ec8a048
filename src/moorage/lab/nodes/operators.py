"""The cluster version operator and the operators it waits for: what the installer sees after the bootstrap.

An operator becomes available when what it needs is really there in the lab: parts of the control plane on masters that
run, nodes that are Ready, routers that answer through the names and balancers of the site. Its words are those of the
real ones, so that a person learns here what they will read there.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import re
from collections.abc import Awaitable, Callable
from typing import Any

from moorage.lab.nodes import cluster as clusters
from moorage.lab.nodes import conditions, handover, instance, network, operands, router, static_pods

Object = dict[str, Any]

GROUP = "config.openshift.io"
# How many manifests a payload has, for the version operator's count.
_MANIFESTS = 960
# However fast the cloud's time runs, operators do not look around more often than this (real seconds); and where all
# is well, only now and then.
_FASTEST_LOOK, _FASTEST_REVIEW = 0.05, 0.5
_UNKNOWN_VERSION = "4.20.0"
_RELEASE = re.compile(r"^MOORAGE_RELEASE_IMAGE='?([^'\n]+)'?$", re.MULTILINE)
_TAG = re.compile(r":(\d+\.\d+\.\d+[\w.-]*?)(?:-(?:x86_64|aarch64|ppc64le|s390x|multi))?$")


@dataclasses.dataclass(frozen=True)
class Operator:
    """``seconds`` is how long it works once all it ``needs`` is available; ``check`` says what else is missing."""

    name: str
    needs: tuple[str, ...] = ()
    seconds: float = 60.0
    check: Callable[[Operators], Awaitable[str]] | None = None


class Operators:
    """The operators of one cluster, and how far each is."""

    def __init__(self, cluster: clusters.Cluster, version: str, image: str) -> None:
        self.cluster = cluster
        self.version = version
        self.image = image
        self.ingress = router.Ingress(cluster.domain)
        self.begun = cluster.api.time()
        self.available: set[str] = set()
        self.ever: set[str] = set()
        self.words: dict[str, str] = {}
        self._work: dict[str, float] = {}
        #: The nodes whose machines have been told to listen for the ingress.
        self._routers: set[str] = set()

    async def look(self) -> None:
        """Bring every operator as far as it can be now, and report."""
        self._keep_masters()
        await self._keep_routers()
        for operator in OPERATORS:
            await self._bring(operator)
        self._report_version()

    @property
    def busy(self) -> bool:
        """Whether some operator is not available."""
        return len(self.available) < len(OPERATORS)

    def running(self, component: static_pods.Component) -> str:
        """What a part of the control plane lacks."""
        masters = list(self.cluster.masters())
        wanted = self.cluster.facts.control_plane_replicas
        up = [node["metadata"]["name"] for node, machine in masters if static_pods.runs(component, machine)]
        if len(up) >= wanted:
            return ""
        placed = sum(static_pods.placed(component, machine) for _, machine in masters)
        return (
            f"NodeInstallerProgressing: {wanted - placed} nodes are at revision 0; {placed} nodes are at revision 1; "
            f"{len(up)} of {wanted} pods run"
        )

    def nodes(self, label: str = "") -> list[Object]:
        found = (entry.object for entry in self.cluster.api.entries(self.cluster.api.kind("", "Node")))
        return [node for node in found if not label or label in (node["metadata"].get("labels") or {})]

    def workers(self) -> list[Object]:
        """The Ready nodes on which the cluster's own workloads may run."""
        return [
            node
            for node in self.nodes(operands.WORKER)
            if conditions.true(node, "Ready") and not node["spec"].get("unschedulable")
        ]

    def caller(self) -> instance.Instance | None:
        """A machine from which operators look at the world: a master."""
        return next((machine for _, machine in handover.ready_masters(self.cluster)), None)

    def _keep_masters(self) -> None:
        """Masters are workers too where the Scheduler's settings say so: the machine-config operator labels them."""
        settings = (self.cluster.find(GROUP, "Scheduler", "", "cluster") or {}).get("spec") or {}
        edit = functools.partial(operands.as_worker, bool(settings.get("mastersSchedulable")))
        for node, _ in list(self.cluster.masters()):
            self.cluster.change("", "Node", "", node["metadata"]["name"], edit)

    async def _keep_routers(self) -> None:
        """Where a router pod runs its machine listens, and nowhere else."""
        pods = self.cluster.api.kind("", "Pod")
        found = (entry.object for entry in self.cluster.api.entries(pods, router.NAMESPACE, labels=router.LABEL))
        nodes = {pod["spec"].get("nodeName") for pod in found if (pod.get("status") or {}).get("phase") == "Running"}
        for name in sorted(nodes | self._routers):
            node = self.cluster.find("", "Node", "", name)
            machine = None if node is None else self.cluster.machine_of(node)
            if machine is None:
                self._routers.discard(name)
            elif machine.reachable:
                await self._keep_router(machine, name, wanted=name in nodes)

    async def _keep_router(self, machine: instance.Instance, node: str, *, wanted: bool) -> None:
        there = router.SERVICE in machine.wire.listening
        if wanted and not there:
            try:
                await machine.wire.serve(router.SERVICE, functools.partial(self._router, machine))
            except OSError as problem:
                await machine.wire.unserve(router.SERVICE)
                machine.say(f"kubelet: back-off restarting failed container router: {problem}")
        elif there and not wanted:
            await machine.wire.unserve(router.SERVICE)
        (self._routers.add if wanted else self._routers.discard)(node)

    def _router(self, machine: instance.Instance) -> router.Router:
        return router.Router(self.cluster, self.ingress, machine)

    async def _bring(self, operator: Operator) -> None:
        missing = [name for name in operator.needs if name not in self.available]
        lacks = f"waiting for {', '.join(missing)}" if missing else ""
        if not lacks and operator.check is not None:
            lacks = await operator.check(self)
        now = self.cluster.clock.now()
        if lacks:
            self._work.pop(operator.name, None)
            self.available.discard(operator.name)
        elif operator.name not in self.available:
            already = operator.name in self.ever
            if already or now - self._work.setdefault(operator.name, now) >= operator.seconds:
                self.available.add(operator.name)
                self.ever.add(operator.name)
            else:
                lacks = "the operands are being rolled out"
        self.words[operator.name] = lacks
        self._report(operator.name, lacks)

    def _report(self, name: str, lacks: str) -> None:
        """The operator's own object: one that was well and is not any more calls itself degraded."""
        api, fallen = self.cluster.api, bool(lacks) and name in self.ever
        if self.cluster.find(GROUP, "ClusterOperator", "", name) is None:
            self.cluster.put(
                {"apiVersion": f"{GROUP}/v1", "kind": "ClusterOperator", "metadata": {"name": name}, "spec": {}}
            )

        def edit(content: Object) -> None:
            now = api.time()
            up, busy = not lacks, bool(lacks) and not fallen
            fine = "AsExpected"
            conditions.put(content, now, "Available", str(up), fine if up else "NotAvailable", lacks or "All is well")
            conditions.put(
                content, now, "Progressing", str(busy), "Progressing" if busy else fine, lacks if busy else ""
            )
            conditions.put(content, now, "Degraded", str(fallen), "Error" if fallen else fine, lacks if fallen else "")
            conditions.put(content, now, "Upgradeable", "True", fine, "")
            content["status"]["versions"] = [{"name": "operator", "version": self.version}] if up else []

        self.cluster.change(GROUP, "ClusterOperator", "", name, edit)

    def _report_version(self) -> None:
        waiting = [operator.name for operator in OPERATORS if operator.name not in self.available]
        first = any(operator.name not in self.ever for operator in OPERATORS)
        api = self.cluster.api

        def edit(content: Object) -> None:
            now, status = api.time(), content.setdefault("status", {})
            done = _MANIFESTS * (len(OPERATORS) - len(waiting)) // len(OPERATORS)
            towards = (
                f"Working towards {self.version}: {done} of {_MANIFESTS} done ({100 * done // _MANIFESTS}% complete)"
            )
            if waiting:
                towards += f", waiting on {', '.join(waiting[:3])}"
            finished = f"Done applying {self.version}"
            progressing = f"Cluster version is {self.version}" if not first else towards
            broken = [f"Cluster operator {name} is degraded" for name in waiting if name in self.ever]
            conditions.put(content, now, "Available", str(not first), "", finished if not first else "")
            failing = "; ".join(broken) if broken and not first else ""
            conditions.put(
                content, now, "Failing", str(bool(failing)), "ClusterOperatorDegraded" if failing else "", failing
            )
            conditions.put(
                content, now, "Progressing", str(first), "ClusterOperatorsNotAvailable" if first else "", progressing
            )
            status["desired"] = {"version": self.version, "image": self.image}
            history = {"state": "Partial", "startedTime": self.begun, "completionTime": None, "verified": False}
            known = (status.get("history") or [{**history, "version": self.version, "image": self.image}])[0]
            if not first and known["state"] == "Partial":
                known = {**known, "state": "Completed", "completionTime": now}
            status |= {"history": [known], "observedGeneration": 1, "versionHash": "lab", "availableUpdates": None}

        self.cluster.change(GROUP, "ClusterVersion", "", "version", edit)


async def run(cluster: clusters.Cluster) -> None:
    """Be the operators of a cluster for as long as it lives."""
    version, image = release(cluster.bootstrap)
    operators = Operators(cluster, version, image)
    while not (cluster.alive and handover.ready_masters(cluster)):
        await cluster.tick()
    await cluster.passed(handover.OPERATOR_SECONDS)
    operands.prepare(cluster, operators.ingress)
    while True:
        await cluster.until_alive()
        await operators.look()
        await asyncio.sleep(_FASTEST_LOOK if operators.busy else _FASTEST_REVIEW)
        await cluster.tick()


def release(machine: instance.Instance | None) -> tuple[str, str]:
    """The version and image that the bootstrap machine was told to install."""
    files = machine.provisioned.files if machine is not None and machine.provisioned is not None else {}
    told = files.get("/etc/moorage/bootstrap.env")
    image = _RELEASE.search(told.content.decode()) if told is not None else None
    if image is None:
        return _UNKNOWN_VERSION, f"payload/release:{_UNKNOWN_VERSION}"
    tag = _TAG.search(image[1])
    return (tag[1] if tag else _UNKNOWN_VERSION), image[1]


# --- what operators check ----------------------------------------------------------------------------------------


def _part(component: static_pods.Component) -> Callable[[Operators], Awaitable[str]]:
    async def check(operators: Operators) -> str:
        return operators.running(component)

    return check


async def _network(operators: Operators) -> str:
    nodes = operators.nodes()
    late = [node["metadata"]["name"] for node in nodes if not conditions.true(node, "Ready")]
    # Nodes that come later have no network until its pods run there, which takes it from nobody else.
    if not late or ("network" in operators.ever and len(late) < len(nodes)):
        return ""
    return f'DaemonSet "/openshift-ovn-kubernetes/ovnkube-node" is not available (awaiting {len(late)} nodes)'


async def _machine_config(operators: Operators) -> str:
    masters = [node for node, _ in operators.cluster.masters()]
    ready = [node for node in masters if conditions.true(node, "Ready")]
    wanted = operators.cluster.facts.control_plane_replicas
    if len(ready) < wanted:
        return f"error required MachineConfigPool master is not ready: {len(ready)} of {wanted} machines are updated"
    return operators.running(static_pods.MACHINE_CONFIG_SERVER)


async def _ingress(operators: Operators) -> str:
    found = operators.cluster.find("apps", "Deployment", router.NAMESPACE, "router-default") or {}
    wanted = int((found.get("spec") or {}).get("replicas", 1))
    ready = int((found.get("status") or {}).get("availableReplicas") or 0)
    if ready >= min(wanted, max(len(operators.workers()), 1)):
        return ""
    return (
        f'The "default" ingress controller reports Available=False: DeploymentReplicasMinAvailable=False: '
        f"{ready}/{wanted} of replicas are available; {len(operators.workers())} Ready workers could run them"
    )


def _answers(prefix: str, controller: str) -> Callable[[Operators], Awaitable[str]]:
    """A check that a host under apps answers, through the names and balancers of the site, as it does for users."""

    async def check(operators: Operators) -> str:
        machine = operators.caller()
        if machine is None:
            return "no node can run the operator"
        host = operators.ingress.host(prefix)
        url = f"https://{host}:{operators.cluster.site.port(router.HTTPS)}/healthz"
        try:
            tls = network.trusting(operators.ingress.authority.certificate)
            # Over a connection of its own each time: a name or balancer that is gone must be missed.
            reply = await machine.wire.request("GET", url, headers={"Connection": "close"}, tls=tls, seconds=10.0)
        except (OSError, TimeoutError) as problem:
            return f"{controller}: {router.reached_words(host, problem)}"
        return "" if reply.status == 200 else f"{controller}: https://{host}/healthz returns {reply.status}"

    return check


async def _authentication(operators: Operators) -> str:
    host = operators.ingress.host("oauth-openshift")
    operands.route(operators.cluster, "openshift-authentication", "oauth-openshift", host)
    check = _answers("oauth-openshift", "OAuthServerRouteEndpointAccessibleControllerAvailable")
    return await check(operators)


async def _console(operators: Operators) -> str:
    host = operators.ingress.host("console-openshift-console")
    operands.route(operators.cluster, "openshift-console", "console", host)
    return await _answers("console-openshift-console", "RouteHealthAvailable")(operators)


async def _monitoring(operators: Operators) -> str:
    if operators.workers():
        return ""
    return "UpdatingPrometheus: Prometheus pods wait for a node to run on: 0 Ready workers"


_ROLLED_OUT = ("kube-apiserver", "service-ca")
OPERATORS = (
    Operator("config-operator", seconds=20),
    Operator("etcd", check=_part(static_pods.ETCD), seconds=20),
    Operator("kube-apiserver", check=_part(static_pods.API_SERVER), seconds=30),
    Operator("kube-controller-manager", check=_part(static_pods.CONTROLLER_MANAGER), seconds=20),
    Operator("kube-scheduler", check=_part(static_pods.SCHEDULER), seconds=20),
    Operator("network", check=_network, seconds=30),
    Operator("dns", ("network",), 20),
    Operator("machine-config", ("network",), 60, _machine_config),
    Operator("cloud-credential", seconds=15),
    Operator("cloud-controller-manager", seconds=15),
    Operator("baremetal", seconds=15),
    Operator("machine-api", ("network",), 30),
    Operator("machine-approver", ("network",), 20),
    Operator("control-plane-machine-set", ("machine-api",), 15),
    Operator("cluster-autoscaler", ("machine-api",), 15),
    Operator("service-ca", ("network",), 20),
    Operator("kube-storage-version-migrator", ("network",), 15),
    Operator("csi-snapshot-controller", ("network",), 20),
    Operator("storage", ("network",), 15),
    Operator("node-tuning", ("network",), 15),
    Operator("openshift-apiserver", _ROLLED_OUT, 60),
    Operator("openshift-controller-manager", _ROLLED_OUT, 40),
    Operator("operator-lifecycle-manager", _ROLLED_OUT, 40),
    Operator("operator-lifecycle-manager-catalog", ("operator-lifecycle-manager",), 15),
    Operator("operator-lifecycle-manager-packageserver", ("operator-lifecycle-manager",), 30),
    Operator("marketplace", ("operator-lifecycle-manager",), 20),
    Operator("insights", _ROLLED_OUT, 20),
    Operator("image-registry", ("openshift-apiserver",), 30),
    Operator("openshift-samples", ("image-registry",), 40),
    Operator("ingress", ("network",), 45, _ingress),
    Operator("monitoring", ("network", "openshift-apiserver"), 120, _monitoring),
    Operator("authentication", ("openshift-apiserver", "ingress"), 60, _authentication),
    Operator("console", ("authentication",), 45, _console),
)
"""In the order in which they are looked at: what others need comes first."""
