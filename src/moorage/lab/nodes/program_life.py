"""The life of one program of a pod: what a kubelet does around a container, done around a real process.

Each process gets a token of its own, bound to its pod, and a kubeconfig that leads by address to where the node's own
name server says the API is: on platforms with virtual addresses to one of those, so that no single master matters. It
hangs on the node's wire like all that can be reached there, so it is dead at the moment the power or the line goes. A
process on a node that was cut off would in life go on without the network; here it begins anew when the line is mended.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import re
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import yaml

from moorage import lab
from moorage.lab import site as sites
from moorage.lab.kube import accounts, problem, reviews, users
from moorage.lab.nodes import api_client, container_status, images, instance, kubelet, processes
from moorage.lab.nodes import cluster as clusters

Object = dict[str, Any]

# Cloud seconds, as kubelets have them: the second restart waits, each further one twice as long, until one has run
# for long; what cannot even be started is tried again after a while; so is a node that is gone.
FIRST_PAUSE, LONGEST_PAUSE, FORGIVEN_AFTER = 10.0, 300.0, 600.0
_RETRY_SECONDS, _LOST_SECONDS = 5.0, 10.0
# However fast the cloud's time runs, a program is not started more often than this (real seconds), nor looked at.
_FASTEST_RESTART = 1.0
_FASTEST_LOOK = 0.2
_FASTEST_PROBE = 1.0
# API servers give pods a year where their kubelets ask for an hour, for programs that read their token only once.
_TOKEN_SECONDS = 31_536_000
POD_NETWORK = "pods"
# What a kubelet takes from the end of a log: so many lines, and no more characters than these.
_LAST_LINES, _LAST_WORDS = 80, 2048

_METRICS = "--metrics-address"
_FIELDS: Mapping[str, Callable[[Object], str]] = {
    "metadata.name": lambda pod: str(pod["metadata"]["name"]),
    "metadata.namespace": lambda pod: str(pod["metadata"]["namespace"]),
    "metadata.uid": lambda pod: str(pod["metadata"]["uid"]),
    "spec.nodeName": lambda pod: str(pod["spec"]["nodeName"]),
    "spec.serviceAccountName": lambda pod: str(pod["spec"].get("serviceAccountName", "")),
}


class Unfit(Exception):  # noqa: N818 - told in the status of the container
    """The container asks for what the lab cannot give it."""


_TROUBLES = (OSError, Unfit, problem.Problem, sites.SiteRefused, api_client.KubeconfigError)


@dataclasses.dataclass(frozen=True)
class Program:
    """A container that is to be run: ``command`` is what the lab makes of its words, ``around`` what all are told."""

    pod: Object
    container: Object
    command: Sequence[str]
    around: Mapping[str, str]

    @property
    def place(self) -> str:
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"


class Life:
    """One container, from its first process to its last. Set ``task`` to the one that does `run`."""

    def __init__(
        self,
        cluster: clusters.Cluster,
        program: Program,
        folder: processes.Folder,
        machine: Callable[[], instance.Instance | None],
    ) -> None:
        self.program = program
        self.task: asyncio.Task[None] | None = None
        self._cluster = cluster
        self._folder = folder
        self._machine = machine
        metadata, self.container = program.pod["metadata"], str(program.container["name"])
        self.status = container_status.Reporter(
            cluster, (metadata["namespace"], metadata["name"]), metadata["uid"], self.container, self._heard
        )
        self._address = ""
        self._pulled = False
        self._restarts = -1
        self._grace: float | None = None

    @property
    def over(self) -> bool:
        return self.task is None or self.task.done()

    def end(self, grace: float) -> None:
        """Ask it to end within ``grace`` cloud seconds; to be asked again makes a difference only if it is shorter."""
        if self.over or (self._grace is not None and self._grace <= grace):
            return
        self._grace = grace
        if self.task is not None:
            self.task.cancel()

    def log(self, *, previous: bool) -> str:
        return self._folder.log(self._restarts - 1 if previous else self._restarts)

    async def run(self) -> None:
        """Keep a process running, until cancelled."""
        reporting = asyncio.get_running_loop().create_task(self.status.run(), name=f"status of {self.program.place}")
        try:
            await self._live()
        finally:
            reporting.cancel()
            self._cluster.site.release(self._address)

    async def _live(self) -> None:
        clock, pause = self._cluster.clock, 0.0
        while True:
            machine = await self._node()
            await self._pull(machine)
            began, since = self.status.now, clock.now()
            try:
                code, lost = await self._once(machine)
            except _TROUBLES as trouble:
                words = trouble.message if isinstance(trouble, problem.Problem) else str(trouble)
                machine.say(f"kubelet: Error: cannot start container {self.container} of {self.program.place}: {words}")
                self.status.waits("CreateContainerError", words)
                await self._pause(_RETRY_SECONDS)
                continue
            if code is not None:
                self.status.has_ended(began, code, self._last_words(code))
            if lost:
                # The machine ended it, not the program: there is nothing to be patient about.
                continue
            pause = 0.0 if clock.now() - since > FORGIVEN_AFTER else pause
            if pause:
                words = f"back-off {pause:g}s restarting failed container={self.container} pod={self.program.place}"
                machine.say(f"kubelet: {words}: it ended with status {code}")
                self.status.waits("CrashLoopBackOff", words)
            await self._pause(pause)
            pause = min(pause * 2 or FIRST_PAUSE, LONGEST_PAUSE)

    def _last_words(self, code: int) -> str:
        """What is left of the log of one that failed, if its container wants that to be told."""
        if not code or self.program.container.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            return ""
        lines = self._folder.log(self._restarts).splitlines(keepends=True)
        return "".join(lines[-_LAST_LINES:])[-_LAST_WORDS:]

    async def _pull(self, machine: instance.Instance) -> None:
        """Have the image, however often it must be asked for; it is not asked for again."""
        image, pause = str(self.program.container.get("image", "")), FIRST_PAUSE
        while not self._pulled:
            try:
                await images.pull(self._cluster.site, image)
                self._pulled = True
            except images.Unpulled as trouble:
                words = f'Failed to pull image "{image}": {trouble}'
                machine.say(f"kubelet: Error: ErrImagePull: {self.program.place}: {words}")
                self.status.waits("ErrImagePull", words)
                await self._pause(_RETRY_SECONDS)
                back_off = f'Back-off pulling image "{image}": ErrImagePull: {trouble}'
                self.status.waits("ImagePullBackOff", back_off)
                await self._pause(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _once(self, machine: instance.Instance) -> tuple[int | None, bool]:
        """Run one process: the status with which it ended, if it began; and whether that was the machine's doing."""
        self._folder.prepare()
        self._address = self._address or self._addressed(machine)
        environment = self._environment(machine)
        command = [*self._words(environment), "--kubeconfig", await self._kubeconfig(machine)]
        tether = _Tether(lambda: processes.started(command, environment, self._folder, self._restarts))
        service = f"pod {self.program.place}"
        self._restarts += 1
        try:
            await machine.wire.serve(service, lambda: tether)
            if tether.process is None:
                self._restarts -= 1
                return None, True
            async with self._watched(machine):
                code = await tether.process.wait()
            return code, tether.cut
        finally:
            await self._put_away(machine, service, tether)

    async def _put_away(self, machine: instance.Instance, service: str, tether: _Tether) -> None:
        patience = self._cluster.clock.socket_timeout(self._grace) if self._grace else 0.0
        if tether.process is not None:
            try:
                await processes.ended(tether.process, patience)
            except asyncio.CancelledError:
                # Asked again, more urgently.
                await processes.ended(tether.process)
        await machine.wire.unserve(service)
        self._folder.clean()

    @contextlib.asynccontextmanager
    async def _watched(self, machine: instance.Instance) -> AsyncIterator[None]:
        """Tell that it runs, and whether it is ready if the container says how to know."""
        probe = (self.program.container.get("readinessProbe") or {}).get("httpGet")
        self.status.runs(self._address, self._restarts, ready=not probe)
        machine.say(f"kubelet: started container {self.container} of {self.program.place}")
        probing = asyncio.get_running_loop().create_task(self._probe(machine)) if probe else None
        try:
            yield
        finally:
            if probing is not None:
                probing.cancel()

    async def _probe(self, machine: instance.Instance) -> None:
        container = self.program.container
        probe, asked = container["readinessProbe"], container["readinessProbe"]["httpGet"]
        named = {each.get("name"): each["containerPort"] for each in container.get("ports") or ()}
        url = f"http://{self._address}:{named.get(asked['port'], asked['port'])}{asked.get('path', '/')}"
        failures = 0
        await self._pause(probe.get("initialDelaySeconds", 0), _FASTEST_LOOK)
        while True:
            try:
                reply = await machine.wire.request("GET", url, seconds=float(probe.get("timeoutSeconds", 1)))
                failures = 0 if 200 <= reply.status < 400 else failures + 1
            except OSError:
                failures += 1
            if failures in (0, probe.get("failureThreshold", 3)):
                self.status.is_ready(ready=not failures)
            await self._pause(probe.get("periodSeconds", 10), _FASTEST_PROBE)

    # --- what a process is given ---

    def _addressed(self, machine: instance.Instance) -> str:
        """An address of the pod's own: two pods on one node may listen on the same port."""
        if self.program.pod["spec"].get("hostNetwork"):
            return machine.address
        site = self._cluster.site
        site.add_network(POD_NETWORK)
        return site.allocate(network=POD_NETWORK)

    def _environment(self, machine: instance.Instance) -> dict[str, str]:
        found: dict[str, str] = {}
        own = {"status.podIP": self._address, "status.hostIP": machine.address}
        if self.program.container.get("envFrom"):
            raise Unfit("envFrom: the lab reads no environment from elsewhere")
        for each in self.program.container.get("env") or ():
            field = ((each.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath", "")
            if "valueFrom" not in each:
                found[each["name"]] = str(each.get("value", ""))
            elif field in own or field in _FIELDS:
                found[each["name"]] = own.get(field) or _FIELDS[field](self.program.pod)
            else:
                raise Unfit(f"env {each['name']}: the lab does not know where to take it from")
        return {**found, **self.program.around}

    def _words(self, environment: Mapping[str, str]) -> list[str]:
        """The command line. Whatever address it is to listen on, it gets the port on its own."""
        words = [re.sub(r"\$\((\w+)\)", lambda m: environment.get(m[1], m[0]), each) for each in self.program.command]
        for index, word in enumerate(words):
            name, _, value = word.partition("=")
            if name == _METRICS and value:
                words[index] = f"{name}={self._address}:{value.rpartition(':')[2]}"
            elif index and words[index - 1] == _METRICS:
                words[index] = f"{self._address}:{word.rpartition(':')[2]}"
        return words

    async def _kubeconfig(self, machine: instance.Instance) -> str:
        """Write the way to the API, and who asks; the path."""
        disk = machine.provisioned
        if disk is None or kubelet.BOOTSTRAP_KUBECONFIG not in disk.files:
            raise Unfit(f"open {kubelet.BOOTSTRAP_KUBECONFIG}: no such file or directory")
        server, _ = api_client.place(disk.files[kubelet.BOOTSTRAP_KUBECONFIG].content)
        url = urllib.parse.urlsplit(server)
        host, port = url.hostname or "", url.port or 443
        address = (await machine.wire.resolve(host))[0]
        authority = base64.b64encode(self._authority().encode()).decode()
        cluster = {
            "server": f"https://{lab.loopback(address)}:{port}",
            "tls-server-name": host,
            "certificate-authority-data": authority,
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": "pod", "user": {"token": self._token()}}],
            "contexts": [{"name": "pod", "context": {"cluster": "cluster", "user": "pod"}}],
            "current-context": "pod",
        }
        return str(self._folder.write("kubeconfig", yaml.safe_dump(document)))

    def _authority(self) -> str:
        found = self._cluster.find("", "ConfigMap", self.program.pod["metadata"]["namespace"], accounts.ROOT_CA) or {}
        authority = str((found.get("data") or {}).get("ca.crt", ""))
        if not authority:
            raise Unfit(
                f'MountVolume.SetUp failed for volume "kube-api-access": configmap "{accounts.ROOT_CA}" not found'
            )
        return authority

    def _token(self) -> str:
        """What the kubelet asks for and mounts."""
        pod, metadata = self.program.pod, self.program.pod["metadata"]
        node = users.authenticated(f"{users.NODE_PREFIX}{pod['spec']['nodeName']}", (users.NODES,))
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        wanted = {"spec": {"expirationSeconds": _TOKEN_SECONDS, "boundObjectRef": bound}}
        account = str(pod["spec"].get("serviceAccountName") or accounts.DEFAULT)
        answer = reviews.answer(
            self._cluster.api, self._cluster.access, node, "TokenRequest", metadata["namespace"], account, wanted
        )
        return str(answer["status"]["token"])

    # --- time and place ---

    def _heard(self) -> bool:
        machine = self._machine()
        return machine is not None and machine.reachable

    async def _node(self) -> instance.Instance:
        """The machine, as soon as it is up and connected, and the API can be asked for a token."""
        while True:
            machine = self._machine()
            if machine is not None and machine.reachable and self._cluster.alive:
                return machine
            await self._pause(_LOST_SECONDS, _FASTEST_LOOK)

    async def _pause(self, seconds: float, fastest: float = _FASTEST_RESTART) -> None:
        await lab.sleep(self._cluster.clock, max(seconds, fastest * self._cluster.clock.speed))


class _Tether:
    """A process as a wire knows what hangs on it: it is started once, and never again after the wire was cut."""

    def __init__(self, start: Callable[[], Awaitable[asyncio.subprocess.Process]]) -> None:
        self.process: asyncio.subprocess.Process | None = None
        self.cut = False
        self._begin = start

    async def start(self) -> None:
        if self.process is None and not self.cut:
            self.process = await self._begin()

    async def stop(self) -> None:
        self.cut = True
        if self.process is not None:
            await processes.ended(self.process)
