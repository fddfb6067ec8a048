"""The kubelet of a simulated node: from the config on its disk to a Node that is Ready, and then its heartbeat.

It knows nothing but its own files and speaks to the API through the name and with the credentials it finds there, so a
wrong record, balancer, certificate or credential keeps it out, and the console says why in the real kubelet's words.
"""

from __future__ import annotations

import asyncio
import copy
import datetime
import functools
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterator

import yaml

from moorage import lab
from moorage.lab.nodes import api_client, conditions, instance, pacing
from moorage.lab.nodes import kubelet_certificates as certificates

BOOTSTRAP_KUBECONFIG = "/etc/kubernetes/kubeconfig"
_MANIFESTS = "/etc/kubernetes/manifests/"
_ANNOTATIONS = "/etc/machine-config-daemon/node-annotations.json"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

# Cloud seconds, as they are seen on real nodes.
START_SECONDS = 20.0
NETWORK_SECONDS = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 30.0
_MIRROR_SECONDS = 300.0
_CERTIFICATE_SECONDS = 3600.0
# However fast the cloud's time runs, what failed is not tried again sooner than this in real seconds, nor does anybody
# look at static pods and certificates more often: a thousand nodes share one processor.
_FASTEST_RETRY = 0.2
_FASTEST_LOOK = 10.0

_NO_NETWORK = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin "
    "returns error: No CNI configuration file in /etc/kubernetes/cni/net.d/. Has your network provider started?"
)
_FINE = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
_READY = ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
_NOT_READY = ("Ready", "False", "KubeletNotReady", _NO_NETWORK)
_TROUBLES = (OSError, TimeoutError, api_client.Refused, certificates.NotLetIn, api_client.KubeconfigError)


async def run(machine: instance.Instance) -> None:
    """Be the kubelet of this machine until it is switched off."""
    await lab.sleep(machine.clock, START_SECONDS)
    kubelet = Kubelet(machine)
    await kubelet.join()
    async with asyncio.TaskGroup() as group:
        group.create_task(kubelet.live())
        group.create_task(kubelet.mirror())
        group.create_task(kubelet.renew())
        group.create_task(kubelet.serve())


class Kubelet:
    """One node's agent."""

    def __init__(self, machine: instance.Instance) -> None:
        self.machine = machine
        self.node = machine.name
        self._client: api_client.Client | None = None
        self._ready = False
        self._lease: api_client.Object | None = None
        self._beat_at = machine.clock.now()

    @property
    def _api(self) -> api_client.Client:
        if self._client is None:
            raise api_client.KubeconfigError("no credentials yet")
        return self._client

    async def join(self) -> None:
        """Get a certificate, then a Node; for as long as it takes."""
        await self._until(self._identified, "failed to run Kubelet: cannot create certificate signing request")
        await self._until(self._registered, "Unable to register node with API server")

    async def live(self) -> None:
        """Beat, and become Ready once the network is there."""
        network_there = report_due = self.machine.clock.deadline(NETWORK_SECONDS)
        while True:
            well = await self._tried(self._beaten, "Failed to update lease")
            if well and network_there.expired and (not self._ready or report_due.expired):
                well = await self._tried(self._report_ready, "Error updating node status, will retry")
                if well:
                    report_due = self.machine.clock.deadline(pacing.report(self.machine.site))
            waits, beat = well and not self._ready, pacing.heartbeat(self.machine.site)
            await lab.sleep(self.machine.clock, min(beat, network_there.remaining() + 1.0) if waits else beat)

    async def mirror(self) -> None:
        """Show the static pods on the disk to the API, and show them again if somebody deletes them there."""
        pods = list(self._static_pods())
        while pods:
            await self._until(lambda: self._mirrored(pods), "Failed creating a mirror pod")
            await lab.sleep(self.machine.clock, self._slowed(_MIRROR_SECONDS, _FASTEST_LOOK))

    async def renew(self) -> None:
        """Keep a client certificate: get its successor in time."""
        await self._keep(certificates.CLIENT_PATH, self._renewed, "Failed while requesting a signed certificate")

    async def serve(self) -> None:
        """Keep a serving certificate, asking for it as long as nobody grants it."""
        await self._keep(
            certificates.SERVING_PATH, self._served, "Failed while requesting a signed serving certificate"
        )

    async def _keep(self, path: str, ask: Callable[[], Awaitable[None]], complaint: str) -> None:
        while True:
            if certificates.due(self.machine, path):
                await self._until(ask, complaint)
            await lab.sleep(self.machine.clock, self._slowed(_CERTIFICATE_SECONDS, _FASTEST_LOOK))

    async def _identified(self) -> None:
        machine = self.machine
        disk = machine.provisioned
        if disk is None or BOOTSTRAP_KUBECONFIG not in disk.files:
            raise api_client.KubeconfigError(f"open {BOOTSTRAP_KUBECONFIG}: no such file or directory")
        bootstrap = self._client = api_client.from_kubeconfig(machine.wire, disk.files[BOOTSTRAP_KUBECONFIG].content)
        pair = certificates.stored(machine, certificates.CLIENT_PATH)
        if pair is None:
            pair = await certificates.obtained(machine, bootstrap, self.node, certificates.CLIENT_PATH)
        self._use(bootstrap, pair)

    def _use(self, like: api_client.Client, pair: tuple[str, str]) -> None:
        self._client = api_client.Client(
            self.machine.wire, like.server, like.authority, certificate=pair[0], key=pair[1]
        )

    async def _renewed(self) -> None:
        pair = await certificates.obtained(self.machine, self._api, self.node, certificates.CLIENT_PATH)
        self._use(self._api, pair)

    async def _registered(self) -> None:
        """Make the Node, or take over the one that is there, as a kubelet does when it starts."""
        try:
            await self._api.create("/api/v1/nodes", self._node_object())
        except api_client.Refused as refusal:
            if refusal.reason != "AlreadyExists":
                raise
        await self._report(ready=False)
        self.machine.say(f"kubelet: successfully registered node {self.node}")

    def _node_object(self) -> api_client.Object:
        flags = self._flags()
        labels = {
            "kubernetes.io/hostname": self.node,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "node.openshift.io/os_id": "rhel",
            **dict(_pair(each) for each in flags.get("node-labels", "").split(",") if each),
        }
        taints = [_taint(each) for each in flags.get("register-with-taints", "").split(",") if each]
        if flags.get("cloud-provider") == "external":
            taints.append(_taint("node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"))
        metadata = {"name": self.node, "labels": labels, "annotations": self._annotations()}
        content: api_client.Object = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}}
        if taints:
            content["spec"]["taints"] = taints
        if flags.get("provider-id"):
            content["spec"]["providerID"] = flags["provider-id"]
        return content

    def _flags(self) -> dict[str, str]:
        """The flags of the kubelet's command line, as its unit has it."""
        disk = self.machine.provisioned
        text = "" if disk is None else disk.units["kubelet.service"].contents or ""
        return dict(re.findall(r"--([a-z-]+)=([^\s\\]*)", text))

    def _annotations(self) -> dict[str, str]:
        found = self.machine.provisioned.files.get(_ANNOTATIONS) if self.machine.provisioned else None
        told = yaml.safe_load(found.content) if found is not None else {}
        return {str(name): str(value) for name, value in told.items()}

    async def _report_ready(self) -> None:
        before = self._ready
        await self._report(ready=True)
        if not before:
            self.machine.say(f"kubelet: node {self.node} is Ready")

    async def _report(self, *, ready: bool) -> None:
        """Write the node's status. What others wrote there stays, and times move only with what they are about."""
        path, now = f"/api/v1/nodes/{self.node}", self._now()
        known = (await self._api.get(path)).get("status") or {}
        content: api_client.Object = {"status": {"conditions": known.get("conditions") or []}}
        for kind, state, reason, message in (*_FINE, _READY if ready else _NOT_READY):
            conditions.put(content, now, kind, state, reason, message)
            conditions.found(content, kind)["lastHeartbeatTime"] = now
        capacity = {"cpu": "4", "memory": "16393244Ki", "pods": "250", "ephemeral-storage": "125293548Ki"}
        content["status"] |= {
            "addresses": [
                {"type": "InternalIP", "address": self.machine.address},
                {"type": "Hostname", "address": self.node},
            ],
            "capacity": capacity,
            "allocatable": {**capacity, "cpu": "3500m"},
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": self._info(),
        }
        await self._api.merge(f"{path}/status", content)
        self._ready = ready

    def _info(self) -> dict[str, str]:
        mark = hashlib.sha256(f"{self.node} {self.machine.address}".encode()).hexdigest()
        return {
            "machineID": mark[:32],
            "systemUUID": mark[:32],
            "bootID": mark[32:],
            "kernelVersion": "5.14.0-570.el9.x86_64",
            "osImage": "Moorage lab machine",
            "containerRuntimeVersion": "cri-o://1.33.5",
            "kubeletVersion": "v1.33.5",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        }

    async def _beaten(self) -> None:
        """Renew the lease. Whoever missed us for long has declared us lost, so our status is to be reported anew."""
        path = f"{_LEASES}/{self.node}"
        renewed = self.machine.clock.wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        try:
            if self._lease is None:
                self._lease = await self._found_lease(path, renewed)
            self._lease["spec"]["renewTime"] = renewed
            self._lease = await self._api.replace(path, self._lease)
        except api_client.Refused:
            self._lease = None
            raise
        now = self.machine.clock.now()
        if now - self._beat_at > 1.5 * pacing.heartbeat(self.machine.site):
            self._ready = False
        self._beat_at = now

    async def _found_lease(self, path: str, renewed: str) -> api_client.Object:
        try:
            return await self._api.get(path)
        except api_client.Refused as refusal:
            if refusal.status != 404:
                raise
        node = await self._api.get(f"/api/v1/nodes/{self.node}")
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": node["metadata"]["uid"]}
        lease: api_client.Object = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.node, "namespace": "kube-node-lease", "ownerReferences": [owner]},
            "spec": {"holderIdentity": self.node, "leaseDurationSeconds": pacing.LEASE_SECONDS, "renewTime": renewed},
        }
        return await self._api.create(_LEASES, lease)

    def _static_pods(self) -> Iterator[api_client.Object]:
        """The pods in the machine's manifests folder, as the API is to show them."""
        disk = self.machine.provisioned
        for path, file in sorted(disk.files.items() if disk else ()):
            if not path.startswith(_MANIFESTS):
                continue
            try:
                yield self._static_pod(
                    copy.deepcopy(_loaded(file.content)), hashlib.sha256(file.content).hexdigest()[:32]
                )
            except (yaml.YAMLError, KeyError, TypeError, AttributeError) as problem:
                self.machine.say(f"kubelet: Could not process manifest file {path}: {problem!r}")

    def _static_pod(self, pod: api_client.Object, mark: str) -> api_client.Object:
        metadata = pod["metadata"]
        metadata |= {"name": f"{metadata['name']}-{self.node}", "namespace": metadata.get("namespace", "default")}
        told = {"config.hash": mark, "config.mirror": mark, "config.source": "file"}
        notes = {f"kubernetes.io/{name}": value for name, value in told.items()}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **notes}
        pod["spec"]["nodeName"] = self.node
        return pod

    async def _mirrored(self, pods: list[api_client.Object]) -> None:
        refused: api_client.Refused | None = None
        # A node may make no pods but those that belong to it.
        node = await self._api.get(f"/api/v1/nodes/{self.node}")
        uid = node["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid, "controller": True}
        for pod in pods:
            pod["metadata"]["ownerReferences"] = [owner]
            try:
                await self._api.create(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)
            except api_client.Refused as refusal:
                # One whose namespace is not there yet must not keep the others back.
                refused = refused if refusal.reason == "AlreadyExists" else refusal
        if refused is not None:
            raise refused

    async def _served(self) -> None:
        await certificates.obtained(self.machine, self._api, self.node, certificates.SERVING_PATH)

    async def _until(self, work: Callable[[], Awaitable[None]], complaint: str) -> None:
        pause = _FIRST_PAUSE
        while not await self._tried(work, complaint):
            await lab.sleep(self.machine.clock, self._slowed(pause, _FASTEST_RETRY))
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _tried(self, work: Callable[[], Awaitable[None]], complaint: str) -> bool:
        try:
            await work()
        except _TROUBLES as problem:
            self._complain(complaint, problem)
            return False
        return True

    def _slowed(self, seconds: float, fastest: float) -> float:
        """Cloud seconds, but never less than ``fastest`` real ones."""
        return max(seconds, fastest * self.machine.clock.speed)

    def _complain(self, complaint: str, problem: BaseException) -> None:
        words = str(problem) if self._client is None else self._client.words(problem)
        self.machine.say(f"kubelet: {complaint}: {words}")

    def _now(self) -> str:
        return self.machine.clock.wall().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# All machines of a role have the same manifests, and to read one takes long.
@functools.lru_cache(maxsize=64)
def _loaded(content: bytes) -> api_client.Object:
    found: api_client.Object = yaml.safe_load(content)
    return found


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _taint(text: str) -> dict[str, str]:
    head, _, effect = text.rpartition(":")
    key, _, value = head.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}
