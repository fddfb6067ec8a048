"""Day 1 hands over to day 2: what can go wrong where the cluster's controllers take over from the installer.

Each story ends with the exit code, the cause and the next command that a person needs; then the cause is taken away,
the same commands go on, and `destroy` leaves nothing, whatever became of the cluster meanwhile.
"""

from __future__ import annotations

import base64
import contextlib
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage import errors
from moorage.cli import demo_requests
from moorage.engine import clock as clocks
from moorage.engine import errors as failures
from moorage.lab import client
from moorage.platforms import contract
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import vms
from tests.lab import ovirt_calls, ovirt_scene, rack

SPACE = "openshift-machine-api"
SETS = f"/apis/machine.openshift.io/v1beta1/namespaces/{SPACE}/machinesets"
SECRET = f"/api/v1/namespaces/{SPACE}/secrets/ovirt-credentials"
IMAGE = "registry.example.com/moorage:1"
#: What a person can read while it passes.
LONGEST_LINE = 300


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.Lab]:
    with rack.unhurried_lab(tmp_path_factory.mktemp("lab"), rack.USUAL) as found:
        yield found


@pytest.fixture
def scene(lab: client.Lab, tmp_path: Path) -> ovirt_scene.Scene:
    lab.control("POST", "/lab/reset")
    lab.control("DELETE", "/lab/faults")
    return ovirt_scene.Scene(lab, tmp_path)


def until(scene: ovirt_scene.Scene, true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + rack.unhurried(scene.lab, 120)
    while not true():
        assert time.monotonic() < end, f"never: {what}\n{scene.consoles()}"
        time.sleep(0.2)


def kubeconfig(scene: ovirt_scene.Scene) -> Path:
    path = scene.folder / "kubeconfig"
    path.write_text(scene.moorage("lab", "kubeconfig").stdout)
    return path


def scale(scene: ovirt_scene.Scene, replicas: int) -> None:
    where = kubeconfig(scene)
    name = demo_requests.asked(where, "GET", SETS)["items"][0]["metadata"]["name"]
    demo_requests.asked(where, "PATCH", f"{SETS}/{name}/scale", {"spec": {"replicas": replicas}})


def workers(scene: ovirt_scene.Scene) -> list[str]:
    """The names of the workers' VMs on the engine."""
    return [vm["name"] for vm in scene.inventory()["vms"] if f"{scene.infra_id}-worker-" in vm["name"]]


def made_by_controllers(scene: ovirt_scene.Scene) -> int:
    """How many VMs the cluster's controllers had the engine make, in whatever process."""
    own = ovirt_calls.by_process(ovirt_calls.read(scene.calls()), ovirt_calls.CONTROLLERS).values()
    return sum(call.method == "POST" and call.path.startswith("/vms?") for calls in own for call in calls)


def destroyed(scene: ovirt_scene.Scene) -> None:
    done = scene.moorage("destroy", "cluster")

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert scene.left() == []


def lines_are_short(said: str) -> None:
    long = [line for line in said.splitlines() if re.match(r"info: .*waiting for", line) and len(line) > LONGEST_LINE]
    assert long == []


@pytest.mark.long
def test_an_installation_that_is_stopped_while_it_hands_over_does_so_once(scene: ovirt_scene.Scene) -> None:
    first = scene.begin("create", "cluster")
    said = rack.heard(first, "-bootstrap: removing it")
    first.send_signal(signal.SIGINT)
    rest = rack.rest(first, rack.unhurried(scene.lab, 60))
    assert first.returncode == errors.INTERRUPT, said + rest

    second = scene.begin("create", "cluster")
    more = rack.heard(second, "-bootstrap: gone")
    second.kill()
    more += rack.rest(second, rack.unhurried(scene.lab, 60))

    third = scene.moorage("create", "cluster")

    assert third.returncode == 0, f"{third.stderr}\n{scene.consoles()}"
    told = said + rest + more + third.stdout + third.stderr
    assert told.count("/ovirt-credentials was created") == 2, "once in each of two namespaces"
    assert "was replaced" not in told
    lines_are_short(told)
    assert len(workers(scene)) == 2
    assert made_by_controllers(scene) == 2
    waited = scene.moorage("wait-for", "install-complete")
    assert waited.returncode == 0, waited.stderr
    assert "the cluster works, but" not in waited.stderr
    _destroyed_while_it_grows(scene)


def _destroyed_while_it_grows(scene: ovirt_scene.Scene) -> None:
    """Its controllers make more workers after destroy has looked, and before their masters are off."""
    stop = {"action": "fail", "service": "ovirt", "method": "POST", "path": "/ovirt-engine/api/vms/*/stop"}
    scene.control("POST", "/lab/faults", {**stop, "status": 503})
    destroying = scene.begin("destroy", "cluster")
    said = rack.heard(destroying, "-master-0: removing it")

    scale(scene, 4)

    until(scene, lambda: made_by_controllers(scene) == 4, "two more workers")
    scene.control("DELETE", "/lab/faults")
    rest = rack.rest(destroying, rack.unhurried(scene.lab, 240))
    assert destroying.returncode == 0, said + rest
    assert scene.left() == []
    assert "nothing is left" in rest


@pytest.mark.long
def test_controllers_whose_image_cannot_be_pulled_are_named_with_what_helps(scene: ovirt_scene.Scene) -> None:
    pulls = {"action": "fail", "service": "registry", "path": "/v2/moorage/manifests/1", "status": 404}
    scene.control("POST", "/lab/faults", pulls)

    created = scene.moorage("create", "cluster")

    assert created.returncode == errors.INSTALL, f"{created.stderr}\n{scene.consoles()}"
    assert f"do not run: the image {IMAGE} cannot be pulled: " in created.stderr
    assert "manifest unknown" in created.stderr
    assert f"next: push {IMAGE} to where the nodes can pull it" in created.stderr
    lines_are_short(created.stderr)
    assert workers(scene) == []

    scene.control("DELETE", "/lab/faults")
    waited = scene.moorage("wait-for", "install-complete")

    assert waited.returncode == 0, f"{waited.stderr}\n{scene.consoles()}"
    assert len(workers(scene)) == 2
    _destroyed_without_an_api(scene)


def _destroyed_without_an_api(scene: ovirt_scene.Scene) -> None:
    """Somebody has removed two masters by hand, and the third has no power: nobody answers for the cluster."""
    around = contract.Surroundings(scene.environ, clocks.from_environment(scene.lab.environment), lambda _line: None)
    with clients.Client(around) as engine:
        masters = [vm for vm in vms.tagged(engine, scene.infra_id) if "-master-" in vm.name]
        for vm in masters[:2]:
            while (found := vms.look(engine, str(vm.id))) is not None:
                with contextlib.suppress(failures.PlatformFailure):
                    vms.take_away(engine, found, scene.infra_id)
                time.sleep(0.2)
    scene.control("POST", f"/lab/machines/{masters[2].name}/kill")
    assert len(workers(scene)) == 2

    destroyed(scene)


@pytest.mark.long
def test_storage_that_is_full_for_workers_and_a_password_that_is_wrong_are_told(scene: ovirt_scene.Scene) -> None:
    creating = scene.begin("create", "cluster")
    said = rack.heard(creating, "infrastructure finished")
    scene.control("PUT", "/lab/ovirt", {"storage": {"data": {"free_gib": 5}}})
    rest = rack.rest(creating, rack.unhurried(scene.lab, 240))

    assert creating.returncode == errors.INSTALL, f"{said}{rest}\n{scene.consoles()}"
    assert re.search(r"^error: .* is Provisioning: .*: the storage is full: ", rest, re.MULTILINE), rest
    assert "next: see what each waits for: moorage machines --once" in rest
    lines_are_short(rest)

    wrong = base64.b64encode(b"wrong").decode()
    demo_requests.asked(kubeconfig(scene), "PATCH", SECRET, {"data": {"ovirt_password": wrong}})
    scene.control("POST", "/lab/tokens/expire")
    refusal = "the engine refuses user name or password"
    until(scene, lambda: refusal in scene.moorage("machines", "--once").stdout, "a word on the password")

    scene.control("PUT", "/lab/ovirt", {"storage": {"data": {"free_gib": 2000}}})
    again = scene.moorage("create", "cluster")

    assert again.returncode == 0, f"{again.stderr}\n{scene.consoles()}"
    assert f"Secret {SPACE}/ovirt-credentials was replaced" in again.stderr
    assert len(workers(scene)) == 2
    destroyed(scene)
