"""A cluster in the lab whose machines are looked after from outside, and somebody with kubectl who wants things of it.

Everything is asked of the cluster as its administrator asks; only what is on the engine is read from the lab itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.lab import ovirt_scene, rack

SPACE = "openshift-machine-api"
_CSR, _MACHINES = "certificatesigningrequests", "machines"
_LEASE_LOST = "this process leads no longer"
_PATIENCE = 180.0
#: So often a busy computer may keep them from renewing their lease just as they are stopped.
_LIVES = 3
_PAUSE = 0.15

Object = dict[str, Any]


class Controllers:
    """`moorage machine-api run`, as often as it has to be started."""

    def __init__(self, scene: ovirt_scene.Scene, kubeconfig: Path) -> None:
        self._scene = scene
        self._kubeconfig = kubeconfig
        self._log = scene.folder / "machine-api.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._said_before = 0

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._said_before = log.tell()
            self._process = subprocess.Popen(
                self._scene.command("machine-api", "run", "--kubeconfig", str(self._kubeconfig)),
                env={**os.environ, **self._scene.environ},
                stdout=log,
                stderr=log,
            )

    def revive(self) -> None:
        """Start them again if they ended because they were kept from renewing their lease, as a Deployment would.

        A lease of minutes lasts for two seconds in the lab, which a busy computer does not always give to everybody.
        """
        if self._process is None or self._process.poll() in (None, 0):
            return
        assert self._lost_lease(), f"they ended by themselves:\n{self.said()[-8000:]}"
        self.start()

    def kill(self) -> None:
        """As a machine that loses its power: nothing is finished, nothing is said."""
        self.revive()
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """As an administrator does; a life that loses its lease just then is followed by one that is stopped."""
        for _ in range(_LIVES):
            self.revive()
            code = self._stop()
            if code == 0 or not self._lost_lease():
                break
        return code

    def _stop(self) -> int:
        assert self._process is not None
        # Until it says something it may not have come to hear of signals.
        end = time.monotonic() + 60
        while self._log.stat().st_size == self._said_before and self._process.poll() is None:
            assert time.monotonic() < end, "they say nothing"
            time.sleep(_PAUSE)
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout=60)
        finally:
            self._process.kill()

    def _lost_lease(self) -> bool:
        return any(_LEASE_LOST in line for line in self.said().splitlines()[-1:])

    def said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""


class Fleet:
    """The machines of one cluster, by what its API says of them."""

    def __init__(self, scene: ovirt_scene.Scene) -> None:
        self.scene = scene
        self.kubeconfig = scene.folder / "kubeconfig"
        self.kubeconfig.write_text(scene.moorage("lab", "kubeconfig").stdout)
        self.controllers = Controllers(scene, self.kubeconfig)
        self.set = f"{scene.infra_id}-worker-0"
        self._made_before = self._made()

    # -- what a person does ------------------------------------------------------------------------------------------

    def kubectl(self, *words: str, given: str = "") -> str:
        """What kubectl says; it must succeed."""
        done = subprocess.run(
            ["kubectl", "--kubeconfig", str(self.kubeconfig), *words],
            env={**os.environ, "HOME": str(self.scene.folder)},
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def scale(self, replicas: int) -> None:
        self.kubectl("scale", "machineset", self.set, "-n", SPACE, f"--replicas={replicas}")

    def hook(self, machine: str, hooks: list[dict[str, str]] | None) -> None:
        """Have it wait for these before it is drained, or for nobody any more."""
        change = {"spec": {"lifecycleHooks": {"preDrain": hooks}}}
        self.kubectl("patch", "machine", machine, "-n", SPACE, "--type=merge", "-p", json.dumps(change))

    def table(self) -> dict[str, str]:
        """`moorage machines`: its line on each machine."""
        done = self.scene.moorage("machines", "--kubeconfig", str(self.kubeconfig))
        assert done.returncode == 0, done.stderr
        _, *lines = done.stdout.splitlines()
        return {line.split()[1]: line for line in lines}

    # -- what there is -----------------------------------------------------------------------------------------------

    def get(self, kind: str, *words: str) -> list[Object]:
        found: list[Object] = json.loads(self.kubectl("get", kind, "-o", "json", *words))["items"]
        return found

    def machines(self, role: str = "worker") -> dict[str, Object]:
        selector = f"machine.openshift.io/cluster-api-machine-role={role}"
        return {each["metadata"]["name"]: each for each in self.get(_MACHINES, "-n", SPACE, "-l", selector)}

    def counts(self) -> Object:
        """What the set says of itself."""
        (found,) = self.get("machinesets", "-n", SPACE)
        status = found.get("status") or {}
        return {key: status.get(key, 0) for key in ("replicas", "readyReplicas", "availableReplicas")}

    def nodes(self) -> dict[str, Object]:
        return {each["metadata"]["name"]: each for each in self.get("nodes")}

    def vms(self) -> dict[str, str]:
        """The state of the cluster's VMs, by name."""
        mark = f"{self.scene.infra_id}-"
        found = [(each["name"], each["status"]) for each in self.scene.inventory()["vms"]]
        assert len(dict(found)) == len(found), "two VMs of one name"
        return {name: str(state) for name, state in found if name.startswith(mark)}

    def made(self) -> int:
        """How many VMs the engine was made to make since the installation."""
        return self._made() - self._made_before

    def _made(self) -> int:
        return sum(
            1
            for call in self.scene.calls()
            if call["method"] == "POST"
            and call["path"].partition("?")[0].endswith("/api/vms")
            and call["status"] in (200, 201, 202)
        )

    def approvals(self) -> dict[str, str]:
        """Why each node's serving certificate was approved, by the node's name."""
        found = {}
        for each in self.get(_CSR):
            reasons = [held["reason"] for held in each["status"].get("conditions") or ()]
            if each["spec"]["username"].startswith("system:node:") and reasons:
                found[each["spec"]["username"].removeprefix("system:node:")] = reasons[0]
        return found

    # -- waiting -----------------------------------------------------------------------------------------------------

    def until(self, true: Callable[[], object], what: str, patience: float = _PATIENCE) -> None:
        """Look until it is so, in real time: how long a busy machine takes is nobody's deadline."""
        end = time.monotonic() + rack.unhurried(self.scene.lab, patience)
        while not true():
            self.controllers.revive()
            assert time.monotonic() < end, f"never: {what}\n{self.story()}"
            time.sleep(_PAUSE)

    def settled(self, replicas: int) -> bool:
        """Whether the set is as it should be: machines, nodes and VMs, one for one, and nobody leaving."""
        machines = self.machines()
        if len(machines) != replicas or not all(map(is_running, machines.values())):
            return False
        nodes = self.nodes()
        workers = {name for name in nodes if name.startswith(f"{self.set}-")}
        if workers != set(machines) or not all(is_ready(nodes[name]) for name in workers):
            return False
        counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), replicas)
        vms = {name: state for name, state in self.vms().items() if name.startswith(f"{self.set}-")}
        return self.counts() == counts and vms == dict.fromkeys(machines, "up")

    def story(self) -> str:
        """All there is to find out why a test failed."""
        table = self.scene.moorage("machines", "--kubeconfig", str(self.kubeconfig))
        return "\n".join((table.stdout, table.stderr, str(self.vms()), self.controllers.said()[-8000:]))


@contextlib.contextmanager
def looked_after(scene: ovirt_scene.Scene) -> Iterator[Fleet]:
    """The fleet of a cluster that is up; the controllers are not started yet, and do not outlive the story.

    Those in the cluster are sent home first: of several the one that leads does the work, and a story that kills those
    outside would kill somebody who only looks on.
    """
    fleet = Fleet(scene)
    fleet.kubectl("scale", "deployment", "moorage-machine-api", "-n", SPACE, "--replicas=0")
    fleet.until(lambda: not fleet.get("pods", "-n", SPACE, "-l", "k8s-app=moorage-machine-api"), "nobody at work")
    try:
        yield fleet
    finally:
        with contextlib.suppress(AssertionError):
            fleet.controllers.stop()


def is_running(machine: Object) -> bool:
    """Whether it is what an administrator calls well: linked to its node, and nobody wants it gone."""
    status, metadata = machine.get("status") or {}, machine["metadata"]
    return status.get("phase") == "Running" and "nodeRef" in status and "deletionTimestamp" not in metadata


def is_ready(node: Object) -> bool:
    ready = [each["status"] for each in node["status"].get("conditions") or () if each["type"] == "Ready"]
    return ready == ["True"] and not node["spec"].get("unschedulable")
