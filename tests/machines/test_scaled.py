"""A MachineSet by kubectl, with the controllers in a process of their own: scaled, healed, held by a hook, emptied.

The platform is the pier, and nodes report when their instances are up, as kubelets would.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from moorage.machines import objects
from moorage.machines.runtime import errors, kinds
from tests.kube import calls
from tests.machines import mooring

SET = f"{mooring.INFRA}-worker-0"
LABELS = {"machine.openshift.io/cluster-api-machineset": SET}


def manifests(replicas: int) -> str:
    wanted = mooring.machine("template")
    labels = {**wanted["metadata"]["labels"], **LABELS}
    machine_set = {
        "apiVersion": kinds.MACHINE_SET.api_version,
        "kind": "MachineSet",
        "metadata": {"name": SET, "namespace": mooring.SPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": labels}, "spec": wanted["spec"]},
        },
    }
    check = {
        "apiVersion": kinds.MACHINE_HEALTH_CHECK.api_version,
        "kind": "MachineHealthCheck",
        "metadata": {"name": "workers", "namespace": mooring.SPACE},
        "spec": {
            "selector": {"matchLabels": LABELS},
            "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "timeout": "20s"}],
        },
    }
    return yaml.safe_dump_all([machine_set, check])


class Kubelets:
    """Reports for every instance that is up, and is missed for those that are not."""

    def __init__(self, shore: mooring.Mooring) -> None:
        self._shore = shore
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._told: dict[str, str] = {}

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(mooring.PATIENCE)

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            up = {each.name for each in list(self._shore.pier.vessels) if each.state == "up"}
            for name in up | set(self._told):
                self._report(name, "True" if name in up else "Unknown")

    def _report(self, name: str, ready: str) -> None:
        if self._told.get(name) == ready:
            return
        client = self._shore.client
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        try:
            if name not in self._told:
                # It is there already if the report failed after it.
                with contextlib.suppress(errors.AlreadyExists):
                    client.create(kinds.NODE, {"metadata": {"name": name}})
            client.patch(kinds.NODE, name, "", {"status": {"conditions": [condition]}}, subresource="status")
        except errors.NotFound:
            pass  # it was removed with its machine
        except errors.ApiError:
            return
        self._told[name] = ready


@pytest.fixture
def shore(moored: Callable[..., mooring.Mooring]) -> Iterator[mooring.Mooring]:
    found = moored()
    with found.controllers("scaled", "--no-leader-elect"), Kubelets(found):
        yield found


def running(shore: mooring.Mooring, count: int) -> list[str]:
    """Wait until there are so many machines, all Running, each with its instance and its node."""
    until = time.monotonic() + mooring.PATIENCE
    while True:
        phases, (listed, _) = shore.phases(), shore.client.list(kinds.NODE)
        nodes = sorted(name for name in map(objects.name, listed) if name.startswith(SET))
        same = sorted(phases) == shore.pier.names() == nodes
        if same and list(phases.values()) == ["Running"] * count:
            return sorted(phases)
        assert time.monotonic() < until, f"{phases} {shore.pier.names()} {shore.said()}"
        time.sleep(0.05)


@pytest.mark.long
def test_a_set_is_scaled_healed_held_and_emptied(shore: mooring.Mooring) -> None:
    def kubectl(*words: str, stdin: str = "") -> str:
        return shore.cluster.kubectl("-n", mooring.SPACE, *words, stdin=stdin)

    def machine(name: str) -> dict[str, Any]:
        return shore.client.get(kinds.MACHINE, name, mooring.SPACE)

    # Scaled up, by the scale subresource.
    kubectl("apply", "-f", "-", stdin=manifests(1))
    first = running(shore, 1)
    kubectl("scale", f"machinesets.machine.openshift.io/{SET}", "--replicas=3")
    before = running(shore, 3)
    assert set(first) < set(before)

    # An instance is lost: its node is missed, the check deletes the machine and the set makes another.
    lost = before[0]
    shore.pier.vessels[:] = [each for each in shore.pier.vessels if each.name != lost]
    calls.eventually(lambda: lost not in shore.phases(), "the lost machine is replaced", mooring.PATIENCE)
    healed = running(shore, 3)
    assert set(before) - set(healed) == {lost}

    # Deleted by hand, and held by a hook until that is taken away.
    held = healed[0]
    hooks = '{"spec":{"lifecycleHooks":{"preTerminate":[{"name":"backup","owner":"an-operator"}]}}}'
    kubectl("patch", "machines.machine.openshift.io", held, "--type=merge", "-p", hooks)
    kubectl("delete", "machines.machine.openshift.io", held, "--wait=false")
    calls.eventually(lambda: machine(held).get("status", {}).get("phase") == "Deleting", "it is being deleted")
    calls.eventually(lambda: len(shore.pier.names()) == 4, "another one is made meanwhile", mooring.PATIENCE)
    assert held in shore.pier.names()
    nothing = '{"spec":{"lifecycleHooks":{"preTerminate":null}}}'
    kubectl("patch", "machines.machine.openshift.io", held, "--type=merge", "-p", nothing)
    assert held not in running(shore, 3)

    # Emptied; each machine had one instance, ever.
    kubectl("scale", f"machinesets.machine.openshift.io/{SET}", "--replicas=0")
    assert running(shore, 0) == []
    assert set(shore.pier.made.values()) == {1}
    kubectl("delete", "machinesets.machine.openshift.io", SET)
    kubectl("delete", "machinehealthchecks.machine.openshift.io", "workers")
