"""The machines of a cluster after its installation: adopted, scaled, replaced, healed and shrunk, all by kubectl.

The controllers run outside the cluster, as a process that is killed and started again; the engine they make VMs on
restarts and forgets who is signed in. However that goes, there is one VM for each Machine, and none besides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.lab import client
from tests.lab import fleet_scene, ovirt_calls, ovirt_scene, rack

SPEED = 60.0
#: One fewer than it takes to have every worker of four on a host of its own, as their affinity group demands.
FEW_HOSTS, MANY_HOSTS = 3, 8

#: What the scheduler goes by: a data centre is a region on oVirt, and a cluster is a zone.
PLACE = {
    "topology.kubernetes.io/region": "Default",
    "topology.kubernetes.io/zone": "Default",
    "node.kubernetes.io/instance-type": "4cpu-16gib",
}

HEALTH = f"""\
apiVersion: machine.openshift.io/v1beta1
kind: MachineHealthCheck
metadata: {{name: workers, namespace: {fleet_scene.SPACE}}}
spec:
  selector: {{matchLabels: {{machine.openshift.io/cluster-api-machine-role: worker}}}}
  unhealthyConditions:
  - {{type: Ready, status: Unknown, timeout: 300s}}
  maxUnhealthy: 40%
  nodeStartupTimeout: 60m
"""
SHOP = """\
apiVersion: v1
kind: Pod
metadata: {{name: till, namespace: default, labels: {{app: till}}}}
spec: {{nodeName: {node}, containers: [{{name: till, image: registry.example.com/till:1}}]}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: till, namespace: default}}
spec: {{minAvailable: 1, selector: {{matchLabels: {{app: till}}}}}}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.Lab]:
    with rack.unhurried_lab(tmp_path_factory.mktemp("lab"), SPEED) as found:
        yield found


def the_first_machines_are_adopted(fleet: fleet_scene.Fleet) -> None:
    fleet.until(lambda: fleet.settled(2), "two workers")
    fleet.until(lambda: all(map(fleet_scene.is_running, fleet.machines("master").values())), "masters")

    masters, workers, nodes = fleet.machines("master"), fleet.machines(), fleet.nodes()
    assert len(masters) == 3
    assert fleet.made() == 0, "no VM was made anew"
    for name, machine in workers.items():
        (owner,) = machine["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("MachineSet", fleet.set, True), name
    assert not any("ownerReferences" in machine["metadata"] for machine in masters.values())
    for name, machine in (masters | workers).items():
        assert machine["status"]["nodeRef"]["name"] == name
        assert nodes[name]["spec"]["providerID"] == machine["spec"]["providerID"]
        assert {label: nodes[name]["metadata"]["labels"].get(label) for label in PLACE} == PLACE, "where it is"
        assert nodes[name]["metadata"]["annotations"]["machine.openshift.io/machine"] == f"{fleet_scene.SPACE}/{name}"
        told = {each["address"] for each in machine["status"]["addresses"] if each["type"] == "InternalIP"}
        own = {each["address"] for each in nodes[name]["status"]["addresses"] if each["type"] == "InternalIP"}
        assert told == own, "the addresses that a master carries for the cluster are not its own"
    _as_people_see_them(fleet)


def _as_people_see_them(fleet: fleet_scene.Fleet) -> None:
    """`oc get machines` has looked like this for years."""
    heading, first, *_ = fleet.kubectl("get", "machines", "-n", fleet_scene.SPACE).splitlines()
    assert heading.split() == ["NAME", "PHASE", "TYPE", "REGION", "ZONE", "AGE"]
    assert first.split()[1:5] == ["Running", "4cpu-16gib", "Default", "Default"]
    heading, *lines = fleet.kubectl("get", "machines", "-n", fleet_scene.SPACE, "-o", "wide").splitlines()
    assert heading.split()[-3:] == ["NODE", "PROVIDERID", "STATE"]
    assert all(re.search(r" (\S+) +ovirt://[0-9a-f-]{36} +up *$", line) for line in lines), lines
    heading, line = fleet.kubectl("get", "machinesets", "-n", fleet_scene.SPACE).splitlines()
    assert heading.split() == ["NAME", "DESIRED", "CURRENT", "READY", "AVAILABLE", "AGE"]
    assert line.split()[1:5] == ["2", "2", "2", "2"]


def a_scale_up_waits_for_hosts_and_says_so(fleet: fleet_scene.Fleet) -> None:
    before = set(fleet.machines())

    fleet.scale(4)

    fleet.until(lambda: [each for each in fleet.table().values() if "no host may run it" in each], "a word on hosts")
    fleet.until(lambda: sum(map(fleet_scene.is_running, fleet.machines().values())) == FEW_HOSTS, "a third worker")
    assert sorted(fleet.vms().values()).count("up") == 3 + FEW_HOSTS
    # Whoever has the engine's sessions ended does harm to nobody.
    fleet.scene.control("POST", "/lab/tokens/expire")
    fleet.scene.control("PUT", "/lab/ovirt", {"hosts": {"Default": MANY_HOSTS}})
    fleet.until(lambda: fleet.settled(4), "four workers")

    new = set(fleet.machines()) - before
    assert before < set(fleet.machines())
    assert len(new) == 2
    assert fleet.made() == 2
    fleet.until(lambda: new <= set(fleet.approvals()), "their serving certificates")
    assert {fleet.approvals()[name] for name in new} == {"MachineApprove"}, "nobody else lets machines in"


def a_deletion_waits_for_a_hook_and_for_a_budget(fleet: fleet_scene.Fleet) -> None:
    before = set(fleet.machines())
    name = min(before)
    fleet.kubectl("apply", "-f", "-", given=SHOP.format(node=name))
    fleet.kubectl("wait", "pod/till", "--for=condition=Ready", "--timeout=60s")
    fleet.hook(name, [{"name": "Backup", "owner": "archivist"}])

    fleet.kubectl("delete", "machine", name, "-n", fleet_scene.SPACE, "--wait=false")

    fleet.until(lambda: "blocked by: [{Name:Backup Owner:archivist}]" in fleet.table()[name], "a word on the hook")
    assert fleet_scene.is_ready(fleet.nodes()[name]), "it is not even closed to new pods"
    fleet.until(lambda: sum(map(fleet_scene.is_running, fleet.machines().values())) == 4, "its replacement")

    fleet.hook(name, None)

    fleet.until(lambda: "default/till (The disruption budget till" in fleet.table()[name], "a word on the budget")
    assert fleet.kubectl("get", "pod", "till", "-o", "jsonpath={.status.phase}") == "Running"
    assert fleet.vms()[name] == "up"

    fleet.kubectl("delete", "pdb", "till")

    fleet.until(lambda: fleet.settled(4), "four workers, of which one is new")
    assert set(fleet.machines()) > before - {name}
    assert name not in fleet.machines()
    assert fleet.get("pods") == []
    assert fleet.made() == 3


def a_dead_machine_is_replaced(fleet: fleet_scene.Fleet) -> None:
    before = set(fleet.machines())
    name = max(before)
    fleet.kubectl("apply", "-f", "-", given=HEALTH)
    fleet.until(lambda: _health(fleet) == ("4", "4"), "a check that finds all well")

    fleet.scene.control("POST", f"/lab/machines/{name}/kill")

    fleet.until(lambda: name not in fleet.machines(), "the end of the dead one")
    fleet.until(lambda: fleet.settled(4), "four workers, of which one is new")
    assert set(fleet.machines()) > before - {name}
    assert fleet.made() == 4
    told = [each["reason"] for each in fleet.get("events", "-n", fleet_scene.SPACE) if _is_about(each, name)]
    assert {"DetectedUnhealthy", "MachineDeleted"} <= set(told)
    fleet.until(lambda: _health(fleet) == ("4", "4"), "a check that finds all well")
    fleet.kubectl("delete", "machinehealthcheck", "workers", "-n", fleet_scene.SPACE)


def _health(fleet: fleet_scene.Fleet) -> tuple[str, str]:
    """Machines that the check expects, and those that are healthy."""
    _, line = fleet.kubectl("get", "machinehealthchecks", "-n", fleet_scene.SPACE).splitlines()
    cells = line.split()
    return (cells[2], cells[3]) if len(cells) == 4 else ("", "")


def _is_about(event: fleet_scene.Object, name: str) -> bool:
    return bool(event["involvedObject"]["name"] == name)


def a_scale_down_outlives_the_engines_restart(fleet: fleet_scene.Fleet) -> None:
    before, calls = set(fleet.machines()), len(fleet.scene.calls())
    fleet.scene.control("POST", "/lab/ovirt/restart", {"seconds": 240})

    fleet.scale(1)

    fleet.until(lambda: fleet.settled(1), "one worker")
    refused = [call for call in fleet.scene.calls()[calls:] if call["status"] == 503]
    assert refused, "the engine was asked while it was away"
    assert set(fleet.machines()) < before
    assert fleet.made() == 4


def controllers_that_die_in_the_middle_make_nothing_twice(fleet: fleet_scene.Fleet) -> None:
    before = set(fleet.machines())
    fleet.scale(3)
    fleet.until(lambda: fleet.made() > 4, "the first of the new VMs")
    fleet.controllers.kill()
    assert not fleet.settled(3), "it was in the middle of something"

    fleet.controllers.start()

    fleet.until(lambda: fleet.settled(3), "three workers")
    assert before < set(fleet.machines())


STEPS = (
    the_first_machines_are_adopted,
    a_scale_up_waits_for_hosts_and_says_so,
    a_deletion_waits_for_a_hook_and_for_a_budget,
    a_dead_machine_is_replaced,
    a_scale_down_outlives_the_engines_restart,
    controllers_that_die_in_the_middle_make_nothing_twice,
)


@pytest.mark.long
@pytest.mark.needs("kubectl")
def test_the_machines_of_a_cluster_are_looked_after_for_life(lab: client.Lab, tmp_path: Path) -> None:
    """One cluster, one story: each part begins with what the one before has left."""
    scene = ovirt_scene.Scene(lab, tmp_path)
    created = scene.moorage("create", "cluster")
    assert created.returncode == 0, f"{created.stderr}\n{scene.consoles()}"

    with fleet_scene.looked_after(scene) as fleet:
        fleet.controllers.start()
        for step in STEPS:
            step(fleet)

        assert fleet.made() == 6, "one VM for each machine that came, and none besides"
        assert ovirt_calls.repeated_writes(ovirt_calls.read(scene.calls())) == []
        assert {name for name in fleet.vms() if "-master-" in name} == set(fleet.machines("master"))
        assert fleet.controllers.stop() == 0
        assert "Traceback" not in fleet.controllers.said()

    destroyed = scene.moorage("destroy", "cluster")

    assert destroyed.returncode == 0, destroyed.stderr
    assert scene.left() == [], "what day 2 made goes as what day 1 made"
