"""A cluster on oVirt comes up in the lab and goes again, by the commands the user types.

The engine keeps account of every call: what was asked must have been worth asking, and nobody may hurry it.
"""

from __future__ import annotations

import base64
import json
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
#: Cloud seconds between two looks of the cluster's controllers at a machine; and how often those may sign in, as two
#: processes of which one leads, and which end when the API is away for too long.
LOOK, CONTROLLERS = 10.0, 4
#: Who looks at a machine, each for itself: the machine controller, the node controller, and whoever destroys it.
WATCHERS = 3
SMALL = """\
template: {golden}-rhcos
affinityGroups:
- name: controlplane
  priority: 5
  enforcing: false"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.Lab]:
    with rack.running_lab(tmp_path_factory.mktemp("lab"), SPEED) as found:
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
        print(f"\ncalls to the engine: {len(spent)} to create 6 machines, {len(removal)} to destroy 5")
    well_spent(spent, vms, CREATE_CALLS + 6 * CALLS_PER_MACHINE, CALLS_PER_MACHINE)
    well_spent(removal, vms, DESTROY_CALLS + 5 * REMOVAL_PER_MACHINE, REMOVAL_PER_MACHINE)


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
    listed = "\n".join(map(str, calls))
    assert ovirt_calls.impatient(calls, WATCHERS) == [], listed
    assert ovirt_calls.repeated_writes(calls) == [], listed
    # A session that nobody uses for half an hour ends, and the engine says so to whoever comes next.
    ended = any(call.status == 401 for call in calls)
    signed_in, signed_out = ovirt_calls.sign_ins(calls)
    assert 1 <= signed_in <= 1 + ended + CONTROLLERS, listed
    assert signed_out >= 1, listed
    # The cluster's own controllers look after its machines meanwhile, and the longer it takes the more often.
    looks = int(ovirt_calls.seconds(calls) / LOOK)
    assert len(calls) <= most + looks * len(machines), listed
    busy = ovirt_calls.per_machine(calls, machines)
    assert {name: count for name, count in busy.items() if count > each + looks} == {}


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
