"""The demo's second half: what a cluster does with its machines once it is there, ordered as an administrator would.

Workers are scaled up, one loses its power and is replaced by a health check, then most of them go again. Everything is
asked of the cluster's API, by kubectl where there is one; the work is done by the controllers in the cluster.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from moorage import errors
from moorage.cli import demo_requests

_NAMESPACE = "openshift-machine-api"
_MACHINES = f"/apis/machine.openshift.io/v1beta1/namespaces/{_NAMESPACE}"
_SET_LABEL = "machine.openshift.io/cluster-api-machineset"
#: Real seconds between two looks, and those after which the demo has failed.
_EVERY, _PATIENCE = 0.5, 180.0

Object = Mapping[str, Any]


class Stuck(errors.MoorageError):
    """The machines did not become what they should."""


class Pool:
    """The cluster's workers."""

    def __init__(self, kubeconfig: Path, environment: Mapping[str, str]) -> None:
        self._kubeconfig = kubeconfig
        self._environment = dict(environment)
        self.name = str(self._ask("GET", f"{_MACHINES}/machinesets")["items"][0]["metadata"]["name"])

    def scale(self, count: int) -> None:
        """Let there be so many, and wait until there are."""
        self._kubectl(
            ("scale", f"machineset/{self.name}", f"--replicas={count}"),
            lambda: self._ask("PATCH", f"{_MACHINES}/machinesets/{self.name}/scale", {"spec": {"replicas": count}}),
        )
        began = time.monotonic()
        found = self._until(f"{count} workers to be at work, and no others to be left", lambda: self._settled(count))
        print(
            f"{count} of {count} workers are at work after {time.monotonic() - began:.0f} s: {', '.join(sorted(found))}"
        )

    def watch_over(self, file: Path) -> None:
        """Have machines replaced whose nodes keep silent."""
        check = health_check(self.name)
        file.write_text(json.dumps(check, indent=1))
        self._kubectl(("apply", "-f", str(file)), lambda: self._ask("POST", f"{_MACHINES}/machinehealthchecks", check))

    def victim(self) -> str:
        """One that is at work."""
        return min(name for name, node in self._at_work().items() if node)

    def replaced(self, lost: str) -> str:
        """Wait until another has taken the place of the one that was lost; its name."""
        before = set(self._at_work())
        found = self._until(
            f"{lost} to be replaced",
            lambda: (now := self._settled(len(before))) and (None if lost in now else now),
        )
        return ", ".join(sorted(set(found) - before))

    def _settled(self, count: int) -> list[str] | None:
        """The machines' names, if there are exactly so many and each has a Node that is ready."""
        machines = self._at_work()
        return list(machines) if len(machines) == count and all(machines.values()) else None

    def _at_work(self) -> dict[str, str]:
        """Every machine of the pool, those that are going included, and its node if that is ready."""
        ready = {
            node["metadata"]["name"]
            for node in self._ask("GET", "/api/v1/nodes")["items"]
            if any(
                each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions") or ()
            )
        }
        found = {}
        for machine in self._ask("GET", f"{_MACHINES}/machines")["items"]:
            if (machine["metadata"].get("labels") or {}).get(_SET_LABEL) == self.name:
                node = str(((machine.get("status") or {}).get("nodeRef") or {}).get("name") or "")
                going = "deletionTimestamp" in machine["metadata"]
                found[str(machine["metadata"]["name"])] = node if node in ready and not going else ""
        return found

    def _until(self, what: str, look: Callable[[], list[str] | None]) -> list[str]:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            try:
                if found := look():
                    return found
            except OSError:
                pass  # an API that is busy with itself for a moment
            time.sleep(_EVERY)
        command = f"moorage machines --once --kubeconfig {shlex.quote(str(self._kubeconfig))}"
        raise Stuck(f"waited {_PATIENCE:.0f} s for {what}", remedy=f"see what each waits for: {command}")

    def _kubectl(self, words: tuple[str, ...], instead: Callable[[], object]) -> None:
        """By kubectl, or by the API itself where that is not installed."""
        command = ["kubectl", "--kubeconfig", str(self._kubeconfig), "-n", _NAMESPACE, *words]
        print(f"$ kubectl -n {_NAMESPACE} {' '.join(words)}", flush=True)
        if not shutil.which("kubectl"):
            print("kubectl is not installed; the API is asked for the same")
            instead()
            return
        ended = subprocess.run(command, check=False, env=self._environment)
        if ended.returncode:
            raise errors.MoorageError(f"kubectl {words[0]} ended with {ended.returncode}", remedy="see its words above")

    def _ask(self, method: str, where: str, body: object = None) -> dict[str, Any]:
        return demo_requests.asked(self._kubeconfig, method, where, body)


def health_check(machine_set: str) -> dict[str, Any]:
    """A check as an administrator writes it: nodes that keep silent for five minutes are replaced.

    New ones are given time, of which they need more on a busy machine: in the lab an hour lasts a minute.
    """
    return {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineHealthCheck",
        "metadata": {"name": "workers", "namespace": _NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {_SET_LABEL: machine_set}},
            "unhealthyConditions": [
                {"type": "Ready", "status": "Unknown", "timeout": "300s"},
                {"type": "Ready", "status": "False", "timeout": "60m"},
            ],
            "maxUnhealthy": "40%",
            "nodeStartupTimeout": "60m",
        },
    }
