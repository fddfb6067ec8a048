"""Programs of pods that the lab really runs: what they are given, how they end, and that none is ever left behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.lab.nodes import instance, kubelet, network, processes, program_life, programs
from tests.unit.lab.nodes import node_world
from tests.unit.lab.nodes.node_world import until
from tests.unit.lab.nodes.programs_world import CONTAINER, NODE, PROBE, Object, Story, alive, tell

# --- which programs ---


@pytest.mark.parametrize(
    ("container", "run"),
    [
        ({"command": ["moorage", "machine-api", "run", "--x"]}, True),
        ({"command": ["/usr/bin/moorage"], "args": ["machine-api", "run"]}, True),
        ({"args": ["moorage", "machine-api", "run"]}, True),
        ({"command": ["moorage", "node-network", "render"]}, False),
        ({"command": ["moorage", "machine-api"]}, False),
        ({"command": ["sh", "-c", "moorage machine-api run"]}, False),
        ({"command": ["moorage-machine-api", "machine-api", "run"]}, False),
        ({"args": ["machine-api", "run"]}, False),
        ({}, False),
    ],
)
def test_only_the_machine_controllers_of_moorage_are_run(container: Object, run: bool) -> None:
    assert bool(programs.words({"name": "c", **container})) is run


@pytest.mark.parametrize("case", ["another program", "nobody allowed it", "a mirror", "a job"])
def test_all_other_pods_are_only_said_to_run(tmp_path: Path, case: str) -> None:
    async def told(story: Story) -> None:
        if case == "another program":
            story.pod(command=["/bin/controllers"])
        elif case == "a mirror":
            meta = {"name": "p", "namespace": "default", "annotations": {"kubernetes.io/config.mirror": "0123"}}
            spec = {"nodeName": NODE, "containers": [CONTAINER]}
            story.world.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        else:
            policy = "Never" if case == "a job" else "Always"
            story.world.pod("p", NODE, containers=[CONTAINER], restartPolicy=policy)
        await until(lambda: story.ready(), "ready, as it is said")

        assert story.machine.wire.listening == []
        assert not (tmp_path / "pods").exists() or not any((tmp_path / "pods").iterdir())

    tell(tmp_path, told, allow=case != "nobody allowed it")


# --- what they are given ---


def test_a_program_is_its_service_account_at_the_api_by_the_address_that_its_node_knows(tmp_path: Path) -> None:
    async def told(story: Story) -> None:
        story.pod()
        start = await story.started()
        await until(lambda: story.ready(), "ready")

        assert start["who"]["username"] == "system:serviceaccount:default:default"
        bound = start["who"]["extra"]
        assert bound["authentication.kubernetes.io/pod-uid"] == [story.found()["metadata"]["uid"]]
        assert bound["authentication.kubernetes.io/node-name"] == [NODE]
        address = story.found()["status"]["podIP"]
        assert start["words"][:-2] == [
            *("machine-api", "run", "--platform=ovirt", f"--metrics-address={address}:8086", "--leader-elect")
        ]
        assert start["words"][-2] == "--kubeconfig"
        assert address != story.machine.address, "pods have addresses of their own"
        assert start["modes"] == ["0o600", "0o700"]
        environment = start["environment"]
        assert (environment["POD_NAME"], environment["GREETING"]) == ("p", "ahoy")
        assert environment["MOORAGE_CLOCK_SPEED"] == "200"
        assert environment["TMPDIR"].startswith(str(tmp_path)), "what the container calls /tmp is its own"
        assert "OVIRT_CONFIG" not in environment

    tell(tmp_path, told)


def test_two_on_one_node_listen_on_the_same_port(tmp_path: Path) -> None:
    async def told(story: Story) -> None:
        (story.folder / "ready").touch()
        story.pod("p", readinessProbe=PROBE)
        story.pod("q", readinessProbe=PROBE)
        await until(lambda: story.ready("p") and story.ready("q"), "both answer")

    tell(tmp_path, told)


def test_it_is_ready_when_it_says_so(tmp_path: Path) -> None:
    async def told(story: Story) -> None:
        story.pod(readinessProbe=PROBE)
        await story.started()
        await until(lambda: "running" in story.container().get("state", {}), "it runs")
        assert not story.ready()

        (story.folder / "ready").touch()
        await until(lambda: story.ready(), "ready")
        (story.folder / "ready").unlink()
        await until(lambda: not story.ready(), "not ready any more")
        assert len(story.starts()) == 1

    tell(tmp_path, told)


def test_what_it_says_is_its_log(tmp_path: Path) -> None:
    async def told(story: Story) -> None:
        story.pod()
        await until(lambda: story.log() == "it began\nit complains\n", "its words")

        logs = list((tmp_path / "pods").glob("default_p_*/machine-controllers/*.log"))
        assert [(each.name, oct(each.stat().st_mode & 0o777)) for each in logs] == [("0.log", "0o600")]

        admin = node_world.signed(node_world.KUBELETS, "admin", "system:masters")
        tls = network.trusting(node_world.SERVERS.certificate, certificate=admin.certificate, key=admin.key)
        url = f"https://{node_world.API_INT}:6443/api/v1/namespaces/default/pods/p/log"
        for query, shown in {"": "it began\nit complains\n", "?tailLines=1": "it complains\n"}.items():
            reply = await story.machine.wire.request("GET", url + query, tls=tls)
            assert (reply.status, reply.body.decode()) == (200, shown)

    tell(tmp_path, told)


def test_what_cannot_be_had_is_told_and_tried_again(tmp_path: Path) -> None:
    async def told(story: Story) -> None:
        disk = story.machine.provisioned
        assert disk is not None
        kept = disk.files.pop(kubelet.BOOTSTRAP_KUBECONFIG)
        story.pod()

        def waits() -> Object:
            return dict(story.container().get("state", {}).get("waiting") or {})

        await until(lambda: waits().get("reason") == "CreateContainerError", "the reason")
        assert kubelet.BOOTSTRAP_KUBECONFIG in waits()["message"]
        assert any("cannot start container" in line for line in story.machine.console)
        assert not story.ready()

        disk.files[kubelet.BOOTSTRAP_KUBECONFIG] = kept
        await until(lambda: story.ready(), "ready")
        assert story.container()["restartCount"] == 0

    tell(tmp_path, told)


# --- how they end ---


def test_a_deleted_pod_asks_its_program_to_end_and_is_gone_after_it(tmp_path: Path) -> None:
    async def told(story: Story) -> None:
        story.pod()
        pid = (await story.started())["pid"]
        await until(lambda: story.ready(), "ready")
        address = story.found()["status"]["podIP"]
        story.world.delete("Pod", "p", "default")
        await until(lambda: not story.found(), "gone")

        assert not alive(pid)
        log = next((tmp_path / "pods").glob("*/*/0.log"))
        assert log.read_text().endswith("it was asked to end\n")
        assert not (log.parent / "work").exists(), "no token is left on the disk"
        assert story.machine.wire.listening == []
        assert story.world.site.allocate(address, program_life.POD_NETWORK) == address, "it is free again"

    tell(tmp_path, told)


def test_one_that_does_not_listen_is_killed_after_its_grace(tmp_path: Path) -> None:
    async def told(story: Story) -> None:
        story.manner("stubborn")
        story.pod()
        pid = (await story.started())["pid"]
        story.world.delete("Pod", "p", "default", grace=1)
        assert alive(pid)
        await until(lambda: not story.found(), "gone")

        assert not alive(pid)

    tell(tmp_path, told)


@pytest.mark.parametrize("replaced", [False, True])
def test_one_that_is_removed_by_force_is_killed_even_while_it_was_given_time(tmp_path: Path, replaced: bool) -> None:
    async def told(story: Story) -> None:
        story.manner("stubborn")
        story.pod()
        pid = (await story.started())["pid"]
        story.world.delete("Pod", "p", "default", grace=100_000)
        await asyncio.sleep(0.1)
        assert alive(pid)
        story.world.delete("Pod", "p", "default", grace=0)
        if replaced:
            story.pod()

        await until(lambda: not alive(pid), "dead")
        if replaced:
            assert (await story.started(2))["pid"] != pid, "the next of that name is another"

    tell(tmp_path, told)


def test_it_dies_with_its_machine_and_comes_back_with_it(tmp_path: Path) -> None:
    async def told(story: Story) -> None:
        story.manner("stubborn")
        story.pod()
        pid = (await story.started())["pid"]
        await until(lambda: story.ready(), "ready")
        await story.machine.power_off()
        assert not alive(pid), "at once"
        assert story.ready(), "nobody can tell"

        await story.machine.wire.open()
        story.machine.state = instance.RUNNING
        second = await story.started(2)
        assert alive(second["pid"])
        await until(lambda: story.container()["restartCount"] == 1 and story.ready(), "ready again")
        assert story.container()["lastState"]["terminated"]["exitCode"] == 137

    tell(tmp_path, told)


def test_one_that_is_cut_off_cannot_go_on_working(tmp_path: Path) -> None:
    async def told(story: Story) -> None:
        story.pod()
        pid = (await story.started())["pid"]
        await until(lambda: story.ready(), "ready")
        await story.machine.partition()
        assert not alive(pid)
        await asyncio.sleep(0.3)
        assert len(story.starts()) == 1, "there is nothing it could reach"

        await story.machine.heal()
        assert alive((await story.started(2))["pid"])
        await until(lambda: story.container()["restartCount"] == 1 and story.ready(), "ready again")

    tell(tmp_path, told)


@pytest.mark.parametrize(("policy", "words"), [("FallbackToLogsOnError", "it began\nit complains\n"), ("File", None)])
def test_the_last_words_of_one_that_failed_are_told_where_that_is_wanted(
    tmp_path: Path, policy: str, words: str | None
) -> None:
    async def told(story: Story) -> None:
        story.manner("dies")
        story.pod(terminationMessagePolicy=policy)
        await until(lambda: (story.container().get("lastState") or {}).get("terminated"), "its end")
        assert story.container()["lastState"]["terminated"].get("message") == words

    tell(tmp_path, told)


def test_one_that_ends_by_itself_is_started_again_later_each_time(tmp_path: Path) -> None:
    async def told(story: Story) -> None:
        story.manner("dies")
        story.pod()
        seen: list[float] = []

        def crashed(times: int) -> bool:
            while len(seen) < len(story.starts()):
                seen.append(story.world.clock.now())
            waiting = story.container().get("state", {}).get("waiting") or {}
            return story.container().get("restartCount") == times and waiting.get("reason") == "CrashLoopBackOff"

        await until(lambda: crashed(2), "the second back-off")
        assert not story.ready()
        assert "back-off 20s" in story.container()["state"]["waiting"]["message"]
        assert story.container()["lastState"]["terminated"]["exitCode"] == 3
        assert any("back-off 10s restarting failed container" in line for line in story.machine.console)
        assert story.log(previous=True) == "it began\nit complains\n"

        story.manner("")
        await until(lambda: story.ready(), "ready")
        assert story.container()["restartCount"] == 3
        assert seen[2] - seen[1] >= program_life.FIRST_PAUSE, "the first restart is at once, the second is not"

    tell(tmp_path, told)


def test_none_is_left_when_the_cluster_stops(tmp_path: Path) -> None:
    pids: list[int] = []

    async def told(story: Story) -> None:
        story.manner("stubborn")
        story.pod("p")
        story.pod("q")
        await story.started(2)
        pids.extend(each["pid"] for each in story.starts())
        await story.world.cluster.stop()
        assert not any(alive(pid) for pid in pids)

    tell(tmp_path, told)
    assert len(pids) == 2


def test_none_outlives_a_lab_that_was_killed(tmp_path: Path) -> None:
    """The one end that the lab cannot do anything about any more."""
    script = f"""
import asyncio, pathlib, sys
from moorage.lab.nodes import processes
async def main():
    folder = processes.Folder(pathlib.Path({str(tmp_path)!r}) / "pod" / "container")
    folder.prepare()
    process = await processes.started([sys.executable, "-c", "import time; time.sleep(600)"], {{}}, folder, 0)
    print(process.pid, flush=True)
    await process.wait()
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            # Until it has let go of the leash's own lines it is not the program yet.
            program = Path(f"/proc/{pid}/cmdline")
            within(10.0, lambda: program.read_bytes().split(b"\0")[1:2] == [b"-c"], "the program")
            assert alive(pid)
        finally:
            parent.kill()
    within(10.0, lambda: not alive(pid), "it is dead")


def within(seconds: float, true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.01)


def test_names_of_folders_lead_nowhere_else() -> None:
    assert processes.folder_name("..", "a/../b", "c") == "_a-..-b_c"


# --- the real one ---


def test_the_products_own_program_reaches_the_api(tmp_path: Path) -> None:
    async def told(story: Story) -> None:
        story.pod()
        await until(lambda: story.container().get("restartCount", 0) >= 1, "it has ended, having no rights")

        first = story.log(previous=True)
        assert "system:serviceaccount:default:default" in first, "the API knows who asked"

    tell(tmp_path, told, command=tuple(programs.COMMAND))
