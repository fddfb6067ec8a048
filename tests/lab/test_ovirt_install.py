"""A cluster on oVirt comes up in the lab and goes again, by the commands the user types.

The engine keeps account of every call: what was asked must have been worth asking, and nobody may hurry it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.cli import demo_requests
from moorage.lab import client
from tests.lab import ovirt_calls, ovirt_scene, ovirt_site, rack

SPEED = 60.0
STAGES = ["assets", "preflight", "infrastructure", "bootstrap", "bootstrap-removal", "install"]
#: Calls that a cluster costs, and each machine on top: twice what its steps are, for the looks in between.
CREATE_CALLS, CALLS_PER_MACHINE = 85, 16
DESTROY_CALLS, REMOVAL_PER_MACHINE = 35, 8
#: What the installer makes itself: the bootstrap machine and the masters. The rest is the cluster's affair.
MADE, WORKERS = 4, 2
#: What the cluster's controllers may cost: to begin with, and for each worker they make, with a look every 20 seconds
#: until it is a node; for every other machine a few looks at first, and one in two minutes later on.
WATCH_CALLS, CALLS_PER_WORKER, AWAITED_A_MINUTE, FIRST_LOOKS, LOOKS_A_MINUTE = 10, 12, 3, 6, 0.5
#: Who looks at machines in one process, each for itself: the machine controller and the node controller.
WATCHERS = 2
SMALL = """\
template: {golden}-rhcos
affinityGroups:
- name: controlplane
  priority: 5
  enforcing: false"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.Lab]:
    with rack.unhurried_lab(tmp_path_factory.mktemp("lab"), SPEED) as found:
        yield found


def run(scene: ovirt_scene.Scene, *words: str) -> str:
    """What a command says that succeeds."""
    done = scene.moorage(*words)
    assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}\n{scene.consoles()}"
    return done.stdout


def nodes(scene: ovirt_scene.Scene) -> dict[str, str]:
    """The nodes and what is said of them, as the administrator sees them."""
    lines = demo_requests.nodes(kubeconfig(scene)).splitlines()[1:]
    return {line.split()[0].removeprefix(f"{scene.infra_id}-").partition("-0-")[0]: line.split()[1] for line in lines}


def kubeconfig(scene: ovirt_scene.Scene) -> Path:
    path = scene.folder / "kubeconfig"
    path.write_text(scene.moorage("lab", "kubeconfig").stdout)
    return path


def ids(scene: ovirt_scene.Scene) -> dict[str, str]:
    """The cluster's VMs on the engine."""
    mark = f"{scene.infra_id}-"
    return {vm["name"]: vm["id"] for vm in scene.inventory()["vms"] if vm["name"].startswith(mark)}


def password(lab: client.Lab) -> str:
    line = next(
        line for line in (lab.folder / "ovirt-config.yaml").read_text().splitlines() if "ovirt_password" in line
    )
    return line.split(": ")[1].strip("'\" ")


def spellings(word: str) -> list[bytes]:
    """A word in the clear, and in base64 at each of its three positions, without what its neighbours decide."""
    inside = [base64.b64encode(b"x" * shift + word.encode())[4:-4] for shift in range(3)]
    return [word.encode(), *inside]


@pytest.mark.parametrize("found", [b"pa55word-of-the-engine", base64.b64encode(b'{"p": "pa55word-of-the-engine"}')])
def test_the_search_for_a_password_finds_it(found: bytes) -> None:
    assert any(each in found for each in spellings("pa55word-of-the-engine"))


@pytest.mark.long
def test_a_cluster_comes_up_and_goes(lab: client.Lab, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    scene = ovirt_scene.Scene(lab, tmp_path)

    planned = run(scene, "plan")

    assert "tag → template → bootstrap" in planned
    assert "made by the cluster itself, once its control plane is up: 2 machines of MachineSet" in planned
    assert scene.left() == [], "a plan makes nothing"

    before = len(scene.calls())
    run(scene, "create", "cluster", "--log-level", "debug")

    machines = {*(f"master-{number}" for number in range(3)), "worker"}
    assert nodes(scene) == dict.fromkeys(machines, "Ready")
    assert len(ids(scene)) == 5, "three masters, two workers, and no bootstrap any more"
    assert workers_of_the_set(scene) == {name for name in ids(scene) if "-worker-0-" in name}
    assert timeline(scene) == STAGES
    run(scene, "timeline")
    assert f"{scene.infra_id}" in (scene.assets / "timeline.html").read_text()
    spent = ovirt_calls.read(scene.calls()[before:])
    vms = ids(scene)
    nowhere_but_in_the_cluster(scene, password(lab))

    run(scene, "destroy", "cluster")

    assert scene.left() == []
    removal = ovirt_calls.read(scene.calls()[before + len(spent) :])
    with capfd.disabled():
        print(f"\ncalls to the engine to create: {told(spent)}; to destroy: {told(removal)}")
    well_spent(spent, vms, CREATE_CALLS + MADE * CALLS_PER_MACHINE, CALLS_PER_MACHINE)
    well_spent(removal, vms, DESTROY_CALLS + len(vms) * REMOVAL_PER_MACHINE, REMOVAL_PER_MACHINE)
    well_watched(spent, vms, WORKERS)
    well_watched(removal, vms, 0)
    for own in ovirt_calls.by_process([*spent, *removal], ovirt_calls.CONTROLLERS).values():
        signed_in_once(own)


def told(calls: list[ovirt_calls.Call]) -> str:
    """How many calls each process made."""
    programs = (ovirt_calls.INSTALLER, ovirt_calls.CONTROLLERS)
    return ", ".join(
        f"{len(own)} by {program} ({process})"
        for program in programs
        for process, own in ovirt_calls.by_process(calls, program).items()
    )


def workers_of_the_set(scene: ovirt_scene.Scene) -> set[str]:
    """The machines that the MachineSet made: each is owned by it, and was given its node by the cluster."""
    place = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machines"
    found = demo_requests.asked(kubeconfig(scene), "GET", place)["items"]
    owned = [each for each in found if each["metadata"].get("ownerReferences")]
    assert {each["metadata"]["ownerReferences"][0]["kind"] for each in owned} == {"MachineSet"}
    assert {each["status"]["phase"] for each in owned} == {"Running"}
    return {each["status"]["nodeRef"]["name"] for each in owned}


def timeline(scene: ovirt_scene.Scene) -> list[str]:
    """The stages of the one run, each of which ended well."""
    stories = {each["stage"]: each for each in json.loads(run(scene, "timeline", "-o", "json"))}
    assert {"create cluster", "infrastructure"} <= set(stories), "the journal tells of both"
    assert {each["outcome"] for each in stories.values()} == {"finished"}
    return [str(bar["resource"]) for bar in stories["create cluster"]["bars"]]


def nowhere_but_in_the_cluster(scene: ovirt_scene.Scene, word: str) -> None:
    """The engine's password is in the Secrets that controllers read, and nowhere else."""
    for namespace in ("kube-system", "openshift-machine-api"):
        place = f"/api/v1/namespaces/{namespace}/secrets/ovirt-credentials"
        secret = demo_requests.asked(kubeconfig(scene), "GET", place)
        assert base64.b64decode(secret["data"]["ovirt_password"]).decode() == word
    told = [json.dumps(vm).encode() for vm in scene.inventory()["vms"]]
    assert any(b"custom_script" in each for each in told), "the user data must be seen to be judged"
    (scene.folder / "kubeconfig").unlink()
    written = {path: path.read_bytes() for path in scene.assets.rglob("*") if path.is_file()}
    assert {".moorage.log", "bootstrap.ign", "metadata.json"} <= {path.name for path in written}
    for spelling in spellings(word):
        assert not any(spelling in each for each in told), "a VM's user data holds the password"
        assert [path.name for path, content in written.items() if spelling in content] == []


def well_spent(calls: list[ovirt_calls.Call], machines: dict[str, str], most: int, each: int) -> None:
    """What one command of the installer asked the engine for."""
    [own] = ovirt_calls.by_process(calls, ovirt_calls.INSTALLER).values()
    listed = "\n".join(map(str, own))
    assert ovirt_calls.impatient(own) == [], listed
    assert ovirt_calls.repeated_writes(own) == [], listed
    signed_in_once(own)
    assert ovirt_calls.sign_ins(own)[1] == 1, listed
    assert len(own) <= most, listed
    assert {name: count for name, count in ovirt_calls.per_machine(own, machines).items() if count > each} == {}


def well_watched(calls: list[ovirt_calls.Call], machines: dict[str, str], made: int) -> None:
    """What the cluster's controllers asked it for meanwhile: of two processes the one that leads."""
    processes = ovirt_calls.by_process(calls, ovirt_calls.CONTROLLERS)
    for own in processes.values():
        listed = "\n".join(map(str, own))
        assert ovirt_calls.impatient(own, WATCHERS) == [], listed
        minutes = math.ceil(ovirt_calls.seconds(own) / 60)
        most = {
            name: CALLS_PER_WORKER + minutes * AWAITED_A_MINUTE
            if made and "-worker-" in name
            else FIRST_LOOKS + minutes * LOOKS_A_MINUTE
            for name in machines
        }
        busy = ovirt_calls.per_machine(own, machines)
        assert {name: count for name, count in busy.items() if count > most[name]} == {}, listed
        assert len(own) <= WATCH_CALLS + sum(most.values()), listed
    written = [call for own in processes.values() for call in own if call.method != "GET"]
    assert ovirt_calls.repeated_writes(written) == []
    assert sum(call.method == "POST" and call.path.startswith("/vms?") for call in written) == made


def signed_in_once(own: list[ovirt_calls.Call]) -> None:
    """A session that nobody uses for half an hour ends, and the engine says so to whoever comes next."""
    ended = any(call.status == 401 for call in own)
    assert ovirt_calls.sign_ins(own)[0] in (1, 1 + ended), "\n".join(map(str, own))


@pytest.mark.long
def test_three_masters_share_two_hosts_and_come_from_a_template_that_stays(lab: client.Lab, tmp_path: Path) -> None:
    lab.control("POST", "/lab/reset")
    lab.control("POST", "/lab/ovirt/foreign", {"infra_id": ovirt_site.GOLDEN})
    lab.control("PUT", "/lab/ovirt", {"hosts": {"Default": 2}})
    scene = ovirt_scene.Scene(lab, tmp_path, workers=0, more=SMALL.format(golden=ovirt_site.GOLDEN))
    template = _template(scene)

    run(scene, "create", "cluster")

    assert nodes(scene) == dict.fromkeys((f"master-{number}" for number in range(3)), "Ready")
    calls = ovirt_calls.read(scene.calls())
    assert [
        call for call in calls if call.method == "POST" and call.path.startswith(("/disks", "/imagetransfers"))
    ] == []
    assert [call for call in calls if call.method != "GET" and call.path.startswith("/templates")] == []

    run(scene, "destroy", "cluster")

    assert scene.left() == []
    assert _template(scene) == template, "what the user brought is as it was"


def _template(scene: ovirt_scene.Scene) -> list[dict[str, object]]:
    """The user's template and its disk, with every word of them; an empty list is as good as none."""
    inventory, name = scene.inventory(), f"{ovirt_site.GOLDEN}-rhcos"
    found = [each for kind in ("templates", "disks") for each in inventory[kind] if each["name"] == name]
    assert len(found) == 2
    return [{key: value for key, value in each.items() if value != []} for each in found]
