"""The bootstrap machine: bootkube, approve-csr and progress, played stage by stage on the files that Ignition brought.

Each stage reads what the real one reads and refuses what that would refuse, with a line on the console; a stage that is
done leaves a marker on the disk, so that a machine that was rebooted goes on where it was. Everything that real scripts
ask of an API is asked over TLS with the kubeconfigs on the disk: through localhost while the cluster is this machine,
through api-int once it shall stand on its own.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from moorage import lab
from moorage.lab.nodes import (
    api_client,
    approval,
    cluster_bootstrap,
    config_server,
    credentials,
    etcd,
    facts,
    instance,
    manifests,
    network,
    renders,
    static_pods,
)
from moorage.lab.nodes import cluster as clusters
from moorage.lab.nodes import files as files_

Object = dict[str, Any]

ROOT = facts.ROOT
DONE = f"{ROOT}/.bootkube.done"

# Cloud seconds, as they are seen on real machines.
IMAGES_SECONDS = 75.0
RENDER_SECONDS = 6.0
ETCD_SECONDS = 20.0
RESTART_SECONDS = 5.0
AGAIN_SECONDS = 10.0
LOOK_SECONDS = 5.0
_REMINDER_SECONDS = 120.0
# However fast the cloud's time runs, programs do not ask an API more often than this (real seconds).
_FASTEST_LOOK = 0.1

# What a stage may find on the disk or on the wire, and what it then fails with.
_TROUBLES = (
    OSError,
    TimeoutError,
    api_client.Refused,
    api_client.KubeconfigError,
    credentials.Unusable,
    facts.Unreadable,
    manifests.Unloadable,
    cluster_bootstrap.Failed,
)
_PIDS = {"bootkube.sh": 2264, "approve-csr.sh": 2265, "report-progress.sh": 2266}


async def run(machine: instance.Instance) -> None:
    """Be the bootstrap machine until it is switched off."""
    node = Bootstrap(machine)
    async with asyncio.TaskGroup() as group:
        group.create_task(node.keep_pods())
        group.create_task(node.bootkube())
        if _enabled(machine, "approve-csr.service"):
            group.create_task(node.approve())
        if _enabled(machine, "progress.service"):
            group.create_task(node.report())


def _enabled(machine: instance.Instance, name: str) -> bool:
    unit = machine.provisioned.units.get(name) if machine.provisioned is not None else None
    return unit is not None and bool(unit.enabled) and not unit.masked


class Bootstrap:
    """The services of one bootstrap machine."""

    def __init__(self, machine: instance.Instance) -> None:
        self.machine = machine
        self.clock = machine.clock
        self.files = files_.Files(machine)
        self._told: dict[str, tuple[str, float]] = {}

    def say(self, line: str, service: str = "bootkube.sh") -> None:
        """A line of a service's journal on the console; a text of several lines is as many of them."""
        for each in line.splitlines():
            self.machine.say(f"{service}[{_PIDS[service]}]: {each}")

    @property
    def cluster(self) -> clusters.Cluster | None:
        """The cluster that was born on this machine, if it was."""
        found = self.machine.site.clusters.values()
        return next((each for each in found if each.bootstrap is self.machine), None)

    @property
    def done(self) -> bool:
        return self.files.exists(DONE)

    def client(self, name: str) -> api_client.Client:
        """The API as a kubeconfig in auth/ leads to it."""
        path = f"{renders.AUTH}/{name}"
        try:
            return api_client.from_kubeconfig(self.machine.wire, self.files.read(path))
        except api_client.KubeconfigError as wrong:
            raise api_client.KubeconfigError(f"error loading config file {path}: {wrong}") from wrong

    async def pause(self, seconds: float = LOOK_SECONDS) -> None:
        """Wait between two looks at something."""
        await lab.sleep(self.clock, max(seconds, _FASTEST_LOOK * self.clock.speed))

    # --- services ---

    async def keep_pods(self) -> None:
        """The kubelet of this machine: static pods whose files are there run."""
        while True:
            if (cluster := self.cluster) is not None:
                await cluster.supervise(self.machine)
                await cluster.tick()
            else:
                await lab.sleep(self.clock, LOOK_SECONDS)

    async def bootkube(self) -> None:
        """Go through the stages; a failed one ends the service, which systemd then starts again."""
        restarts = 0
        while not self.done:
            try:
                await self._stages()
            except _TROUBLES as problem:
                restarts += 1
                self._complain("bootkube.sh", f"{_words(problem)}")
                if self._is_news("restart", f"{_words(problem)}"):
                    self.machine.say(
                        "systemd[1]: bootkube.service: Failed with result 'exit-code'. "
                        f"Scheduled restart job, restart counter is at {restarts}."
                    )
                await lab.sleep(self.clock, RESTART_SECONDS)

    async def approve(self) -> None:
        """approve-csr.service."""
        service = "approve-csr.sh"
        while True:
            try:
                client = self.client("kubeconfig-loopback")
            except (OSError, api_client.KubeconfigError) as problem:
                self._complain(service, str(problem))
                await lab.sleep(self.clock, approval.EVERY_SECONDS)
                continue
            await approval.run(client, self.clock, lambda line: self.say(line, service), lambda: self.done)
            return

    async def report(self) -> None:
        """progress.service: tell the installer that this machine may go."""
        service = "report-progress.sh"
        while not self.done:
            await self.pause()
        await self._until("wait-for-api", self._stands_alone, LOOK_SECONDS, service)
        await self._until("report-bootstrap-complete", self._reported, LOOK_SECONDS, service)
        self.say("bootstrap is complete", service)

    # --- bootkube ---

    async def _stages(self) -> None:
        stage = self._stage
        if not self.files.exists(f"{ROOT}/release-info.done"):
            self.machine.say("release-image-download.sh[1985]: Pulling the release image")
            await lab.sleep(self.clock, IMAGES_SECONDS)
        await stage("openshift-manifests", self._collect_manifests, 1.0)
        await stage("release-info", self._tell_expired, 1.0)
        await stage("api-bootstrap", lambda: renders.render_api(self.files))
        await stage("auth-api-bootstrap", lambda: None)
        await stage("config-bootstrap", lambda: renders.render_config(self.files))
        await stage("cvo-bootstrap", lambda: self.files.read(f"{renders.AUTH}/kubeconfig-loopback"))
        await stage("etcd-bootstrap", self._render_etcd)
        await stage("kube-apiserver-bootstrap", lambda: renders.render_kube_apiserver(self.files))
        await stage("kube-controller-manager-bootstrap", lambda: renders.render_kube_controller_manager(self.files))
        await stage("kube-scheduler-bootstrap", lambda: renders.render_kube_scheduler(self.files))
        await stage("mco-bootstrap", lambda: renders.render_machine_config(self.files))
        cluster = self._born()
        await self._serve_machine_configs(cluster)
        await self._check("resolve-api-url", lambda: self._resolve(cluster.facts.api_host))
        await self._check("resolve-api-int-url", lambda: self._resolve(cluster.facts.api_int_host))
        await self._await_etcd(cluster)
        await self._stage_async("cb-bootstrap", lambda: cluster_bootstrap.start(self, cluster))
        await self._stage_async("cvo-overrides", self._restore_overrides)
        await self._stage_async("stop-machine-config-server", lambda: self._stop_machine_configs(cluster))
        await self._stage_async("wait-for-ceo", lambda: self._until("wait-for-ceo", self._etcd_runs, LOOK_SECONDS))
        await self._check("check-api-url", lambda: self._reach(cluster.facts.api_host))
        await self._check("check-api-int-url", lambda: self._reach(cluster.facts.api_int_host))
        self.files.write(DONE)
        self.say("the bootstrap control plane has done its work")

    async def _stage(self, name: str, work: Callable[[], object], seconds: float = RENDER_SECONDS) -> None:
        async def worked() -> None:
            await lab.sleep(self.clock, seconds)
            work()

        await self._stage_async(name, worked)

    async def _stage_async(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        if self.files.exists(f"{ROOT}/{name}.done"):
            return
        if self._is_news(f"start {name}", name):
            self.say(f"stage {name}: start")
        try:
            await work()
        except _TROUBLES as problem:
            raise _StageFailed(f"stage {name} failed: {_words(problem)}") from problem
        self.files.write(f"{ROOT}/{name}.done")

    async def _check(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Worth knowing when it fails, no reason to stop."""
        if self.files.exists(f"{ROOT}/{name}.done"):
            return
        try:
            await work()
        except _TROUBLES as problem:
            self._complain("bootkube.sh", f"warning: {name} failed: {_words(problem)}; going on")
        else:
            self.files.write(f"{ROOT}/{name}.done")
            self.say(f"{name}: success")

    def _collect_manifests(self) -> None:
        for name, content in self.files.below(f"{ROOT}/openshift").items():
            self.files.write(f"{renders.MANIFESTS}/{name}", content)

    def _tell_expired(self) -> None:
        for line in renders.expired(self.files):
            self.say(f"warning: {line}")

    def _render_etcd(self) -> None:
        renders.render_etcd(self.files)
        static_pods.place(static_pods.ETCD, self.machine)

    def _born(self) -> clusters.Cluster:
        """The cluster: made the first time this machine gets so far, found again after a reboot."""
        if (known := self.cluster) is not None:
            return known
        site = self.machine.site
        cluster = clusters.Cluster(site, facts.read(self.files), renders.control_plane(self.files))
        cluster.bootstrap = self.machine
        cluster.etcd.add(etcd.BOOTSTRAP, self.machine)
        cluster.machine_config_server = config_server.maker(cluster, self.files)
        name, number = cluster.domain, 1
        while name in site.clusters:
            # A second bootstrap machine with the same names: another cluster, whatever its names say.
            number += 1
            name = f"{cluster.domain}#{number}"
        site.clusters[name] = cluster
        return cluster

    async def _serve_machine_configs(self, cluster: clusters.Cluster) -> None:
        stopped = self.files.exists(f"{ROOT}/stop-machine-config-server.done")
        if not stopped and not static_pods.placed(static_pods.MACHINE_CONFIG_SERVER, self.machine):
            static_pods.place(static_pods.MACHINE_CONFIG_SERVER, self.machine)
            await cluster.run(static_pods.MACHINE_CONFIG_SERVER, self.machine)

    async def _stop_machine_configs(self, cluster: clusters.Cluster) -> None:
        await cluster.end(static_pods.MACHINE_CONFIG_SERVER, self.machine)

    async def _await_etcd(self, cluster: clusters.Cluster) -> None:
        if self.files.exists(f"{ROOT}/cb-bootstrap.done"):
            return
        waited = self.clock.deadline(ETCD_SECONDS)
        while not (waited.expired and cluster.etcd.has_quorum):
            await lab.sleep(self.clock, min(LOOK_SECONDS, max(waited.remaining(), 1.0)))

    async def _restore_overrides(self) -> None:
        patch = json.loads(self.files.read(f"{ROOT}/original_cvo_overrides.patch"))

        async def patched() -> bool:
            await self.client("kubeconfig").merge("/apis/config.openshift.io/v1/clusterversions/version", patch)
            return True

        await self._until("cvo-overrides", patched, AGAIN_SECONDS)

    async def _etcd_runs(self) -> bool:
        found = await self.client("kubeconfig").get("/apis/operator.openshift.io/v1/etcds/cluster")
        conditions = (found.get("status") or {}).get("conditions") or ()
        state: Object = next((each for each in conditions if each.get("type") == "EtcdRunningInCluster"), {})
        if state.get("status") != "True":
            self._complain("bootkube.sh", f"waiting on condition EtcdRunningInCluster: {state.get('message', 'unset')}")
            return False
        return True

    async def _resolve(self, host: str) -> None:
        await self.machine.wire.resolve(host)

    async def _reach(self, host: str) -> None:
        url = f"https://{host}:{self.machine.site.port(clusters.API_PORT)}/readyz"
        reply = await self.machine.wire.request("GET", url, tls=_trusting_anybody())
        if reply.status != 200:
            raise cluster_bootstrap.Failed(f"{url} answers {reply.status}")

    # --- progress ---

    async def _stands_alone(self) -> bool:
        client = self.client("kubeconfig")
        found = await client.get("/apis/config.openshift.io/v1/infrastructures/cluster")
        topology = (found.get("status") or {}).get("controlPlaneTopology")
        if not topology:
            return False
        if topology != "HighlyAvailable":
            return True
        return await cluster_bootstrap.revisions(client, "kubeapiservers") >= 2

    async def _reported(self) -> bool:
        client = self.client("kubeconfig")
        path = "/api/v1/namespaces/kube-system/configmaps"
        metadata = {"name": "bootstrap", "namespace": "kube-system"}
        content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"status": "complete"}}
        try:
            await client.create(path, content)
        except api_client.Refused as refused:
            if refused.reason != "AlreadyExists":
                raise
            await client.merge(f"{path}/bootstrap", {"data": content["data"]})
        return True

    # --- patience ---

    async def _until(
        self, what: str, look: Callable[[], Awaitable[bool]], seconds: float, service: str = "bootkube.sh"
    ) -> None:
        """Look until it is so; what hinders it is told when it changes."""
        while True:
            try:
                if await look():
                    return
            except (OSError, TimeoutError, api_client.Refused) as problem:
                self._complain(service, f"{what}: {_words(problem)}")
            await self.pause(seconds)

    def _complain(self, service: str, words: str) -> None:
        if self._is_news(service, words):
            self.say(words, service)

    def _is_news(self, topic: str, words: str) -> bool:
        """Whether this has not been said lately: a console full of one line helps nobody."""
        known, at = self._told.get(topic, ("", 0.0))
        if words == known and self.clock.now() - at < _REMINDER_SECONDS:
            return False
        self._told[topic] = (words, self.clock.now())
        return True


class _StageFailed(cluster_bootstrap.Failed):
    """A stage of bootkube failed; says which, and why."""


def _trusting_anybody() -> ssl.SSLContext:
    """As curl --insecure: the question is whether somebody answers, not who."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _words(problem: BaseException) -> str:
    if isinstance(problem, OSError | TimeoutError) and not isinstance(problem, FileNotFoundError):
        return network.words(problem)
    return str(problem)
