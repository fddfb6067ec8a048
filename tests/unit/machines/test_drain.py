"""Draining: which pods go and which stay, who may be drained, and how long one waits for those that may not leave."""

from __future__ import annotations

import datetime
import threading
from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.machines import drain, drain_pods
from moorage.machines.drain_pods import Verdict
from moorage.machines.runtime import errors, kinds
from tests.unit.machines.machine_world import NAME, World, node

CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
NOW = datetime.datetime(2026, 1, 1, 12, 0, 0, tzinfo=datetime.UTC)


@pytest.fixture
def world() -> World:
    found = World()
    found.running()
    return found


@pytest.fixture
def drainer(world: World) -> drain.Drainer:
    return drain.Drainer(world.api, world.clock)  # type: ignore[arg-type]


def evictions(world: World) -> list[str]:
    return [call for call in world.api.calls if call.startswith("evict")]


# -- which pods --------------------------------------------------------------------------------------------------------


def _pod(owner: str = "ReplicaSet", api: str = "apps/v1", **content: Any) -> dict[str, Any]:
    owners = [{"apiVersion": api, "kind": owner, "name": "it", "controller": True}] if owner else []
    return {
        "metadata": {"name": "p", "namespace": "app", "ownerReferences": owners, **content.pop("metadata", {})},
        "spec": content.pop("spec", {}),
        "status": {"phase": "Running", **content},
    }


def _leaving(seconds: int) -> dict[str, str]:
    ends = NOW + datetime.timedelta(seconds=seconds)
    return {"deletionTimestamp": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}


MIRROR = {"annotations": {drain_pods.MIRROR: "abc"}}
EMPTY_DIR = {"volumes": [{"name": "cache", "emptyDir": {}}]}


@pytest.mark.parametrize(
    ("pod", "has_set", "unreachable", "expected"),
    [
        pytest.param(_pod(), True, False, Verdict.GOES, id="of a ReplicaSet"),
        pytest.param(_pod(owner=""), True, False, Verdict.GOES, id="of nobody: forced"),
        pytest.param(_pod(spec=EMPTY_DIR), True, False, Verdict.GOES, id="with local data: forced"),
        pytest.param(_pod(phase="Pending"), True, False, Verdict.GOES, id="not started yet"),
        pytest.param(_pod(owner="DaemonSet"), True, False, Verdict.STAYS, id="of a DaemonSet"),
        pytest.param(_pod(owner="DaemonSet"), False, False, Verdict.GOES, id="of a DaemonSet that is gone"),
        pytest.param(_pod(owner="DaemonSet", api="example.com/v1"), True, False, Verdict.GOES, id="of another's kind"),
        pytest.param(_pod(metadata=MIRROR, owner=""), True, False, Verdict.STAYS, id="a mirror"),
        pytest.param(_pod(phase="Succeeded"), True, False, Verdict.STAYS, id="finished"),
        pytest.param(_pod(phase="Failed", owner=""), True, False, Verdict.STAYS, id="finished badly"),
        pytest.param(_pod(metadata=_leaving(20)), True, False, Verdict.IS_GOING, id="told to go"),
        pytest.param(_pod(metadata=_leaving(-600)), True, False, Verdict.IS_GOING, id="overdue, node alive"),
        pytest.param(_pod(), True, True, Verdict.GOES, id="unreachable"),
        pytest.param(_pod(metadata=_leaving(20)), True, True, Verdict.GOES, id="unreachable, long grace: told again"),
        pytest.param(_pod(metadata=_leaving(1)), True, True, Verdict.IS_GOING, id="unreachable, about to end"),
        pytest.param(_pod(metadata=_leaving(-1)), True, True, Verdict.IS_GOING, id="unreachable, just over"),
        pytest.param(_pod(metadata=_leaving(-2)), True, True, Verdict.STAYS, id="unreachable, nobody will report"),
        pytest.param(_pod(owner="DaemonSet"), True, True, Verdict.STAYS, id="unreachable, of a DaemonSet"),
    ],
)
def test_what_becomes_of_a_pod(pod: dict[str, Any], has_set: bool, unreachable: bool, expected: Verdict) -> None:
    assert drain_pods.judge(pod, lambda _ns, _name: has_set, unreachable=unreachable, now=NOW) is expected


@pytest.mark.parametrize(("ready", "expected"), [("True", False), ("False", False), ("Unknown", True)])
def test_a_node_is_out_of_reach_if_nobody_knows_how_it_is(ready: str, expected: bool) -> None:
    assert drain_pods.is_unreachable(node(ready=ready)) is expected
    assert drain_pods.is_unreachable({"status": {}}) is False


@pytest.mark.parametrize(
    ("label", "expected"),
    [("node-role.kubernetes.io/control-plane", True), ("node-role.kubernetes.io/master", True), ("worker", False)],
)
def test_control_plane_nodes(label: str, expected: bool) -> None:
    assert drain_pods.is_control_plane(node(**{label: ""})) is expected


# -- an attempt --------------------------------------------------------------------------------------------------------


def test_a_node_is_closed_before_the_first_pod_is_asked(world: World, drainer: drain.Drainer) -> None:
    world.pod("web-1")
    world.api.calls.clear()

    drainer.attempt(world.machine)

    writes = [call for call in world.api.writes if "machines" not in call]
    assert writes == [f"patch nodes {NAME}", "evict app/web-1"]
    assert (world.api.have(kinds.NODE, NAME) or {})["spec"]["unschedulable"] is True


def test_a_node_without_pods_is_drained_at_once(world: World, drainer: drain.Drainer) -> None:
    world.pod("elsewhere", spec={"nodeName": "another"})

    assert drainer.attempt(world.machine) == drain.Outcome(True, "Drain finished successfully")
    assert evictions(world) == []


def test_pods_that_leave_are_waited_for(world: World, drainer: drain.Drainer) -> None:
    world.pod("web-1")

    first, second = drainer.attempt(world.machine), drainer.attempt(world.machine)

    assert (first.drained, first.again) == (False, drain.SOONEST)
    assert "app/web-1 (it is ending)" in first.message
    assert second.drained


def test_a_node_that_is_gone_needs_no_draining(world: World, drainer: drain.Drainer) -> None:
    world.api.delete(kinds.NODE, NAME)

    assert drainer.attempt(world.machine).drained


def test_a_daemon_set_is_asked_for_once_in_an_attempt(world: World, drainer: drain.Drainer) -> None:
    owners = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": True, "uid": "d"}]
    world.api.put(kinds.DAEMON_SET, {"metadata": {"name": "agent", "namespace": "app"}})
    for number in range(3):
        world.pod(f"agent-{number}", metadata={"ownerReferences": owners})

    assert drainer.attempt(world.machine).drained

    assert world.api.calls.count("get daemonsets app/agent") == 1


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (
            errors.TooManyRequests(
                "no", code=429, causes=(errors.Cause("DisruptionBudget", "", "The disruption budget web needs 2"),)
            ),
            "The disruption budget web needs 2",
        ),
        (errors.TooManyRequests("no", code=429, words="the server is busy"), "the server is busy"),
        (errors.Unavailable("no", code=500, words="more than one budget"), "more than one budget"),
        (
            errors.Forbidden("no", code=403, causes=(errors.Cause("NamespaceTerminating", "", ""),)),
            "namespace is ending",
        ),
        (errors.Forbidden("no", code=403, words="you may not"), "you may not"),
        (errors.Conflict("no", code=409), "replaced meanwhile"),
    ],
)
def test_a_pod_that_cannot_be_evicted_is_told_and_the_others_go(
    world: World, drainer: drain.Drainer, refusal: errors.ApiError, told: str
) -> None:
    world.pod("web-1")
    world.pod("web-2")
    world.api.trouble("evict app/web-1", refusal)

    outcome = drainer.attempt(world.machine)

    assert not outcome.drained
    assert told in outcome.message
    assert "app/web-1" in outcome.message
    assert world.api.have(kinds.POD, "web-2", "app") is None


def test_a_pod_that_has_gone_meanwhile_is_drained(world: World, drainer: drain.Drainer) -> None:
    world.pod("web-1")
    world.api.trouble("evict app/web-1", errors.NotFound("gone", code=404))

    assert drainer.attempt(world.machine).drained


@pytest.mark.parametrize(
    "failure", [errors.Unavailable("the connection broke"), errors.Unauthorized("who are you", code=401)]
)
def test_an_api_that_is_away_ends_the_attempt(world: World, drainer: drain.Drainer, failure: errors.ApiError) -> None:
    world.pod("web-1")
    world.pod("web-2")
    world.api.trouble("evict app/web-1", failure)

    with pytest.raises(type(failure)):
        drainer.attempt(world.machine)

    assert evictions(world) == ["evict app/web-1"]


def test_an_attempt_ends_when_its_time_is_up(world: World, drainer: drain.Drainer) -> None:
    for number in range(3):
        world.pod(f"web-{number}")
    evict = world.api.evict
    world.api.evict = lambda *where, **how: (world.clock.advance(15), evict(*where, **how))  # type: ignore[method-assign, assignment]

    outcome = drainer.attempt(world.machine)

    assert evictions(world) == ["evict app/web-0", "evict app/web-1"]
    assert "app/web-2 (its turn comes with the next attempt)" in outcome.message


def test_a_long_list_is_told_in_short(world: World, drainer: drain.Drainer) -> None:
    for number in range(25):
        world.pod(f"web-{number:02}")

    outcome = drainer.attempt(world.machine)

    assert "25 pods are left" in outcome.message
    assert outcome.message.endswith("; and 15 more")


# -- pace --------------------------------------------------------------------------------------------------------------


def test_it_comes_ever_later_while_nothing_moves(world: World, drainer: drain.Drainer) -> None:
    world.pod("web-1")
    world.api.budgets["app", "web-1"] = "web"

    pauses = [drainer.attempt(world.machine).again for _ in range(10)]

    assert pauses == [5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]


def test_it_comes_soon_again_when_something_has_moved(world: World, drainer: drain.Drainer) -> None:
    world.pod("web-1")
    world.pod("web-2")
    world.api.budgets |= {("app", "web-1"): "web", ("app", "web-2"): "web"}
    for _ in range(4):
        drainer.attempt(world.machine)
    world.api.delete(kinds.POD, "web-2", "app")

    assert drainer.attempt(world.machine).again == 5


def test_what_the_server_asks_for_is_granted(world: World, drainer: drain.Drainer) -> None:
    world.pod("web-1")
    world.api.trouble("evict", errors.TooManyRequests("busy", code=429, retry_after=17.0))

    assert drainer.attempt(world.machine).again == 17.0


# -- out of reach ------------------------------------------------------------------------------------------------------


def test_pods_of_a_node_out_of_reach_get_a_second_and_are_not_waited_for(world: World, drainer: drain.Drainer) -> None:
    world.api.put(kinds.NODE, node(ready="Unknown"))
    world.api.lively = False
    world.pod("web-1")

    assert not drainer.attempt(world.machine).drained
    assert evictions(world) == ["evict app/web-1 grace=1"]
    world.clock.advance(5)

    assert drainer.attempt(world.machine).drained


def test_budgets_hold_on_nodes_out_of_reach_too(world: World, drainer: drain.Drainer) -> None:
    world.api.put(kinds.NODE, node(ready="Unknown"))
    world.pod("web-1")
    world.api.budgets["app", "web-1"] = "web"

    assert not drainer.attempt(world.machine).drained


def test_pods_of_a_node_within_reach_get_the_time_they_want(world: World, drainer: drain.Drainer) -> None:
    world.api.lively = False
    world.pod("web-1")
    drainer.attempt(world.machine)
    world.clock.advance(600)

    assert not drainer.attempt(world.machine).drained
    assert evictions(world) == ["evict app/web-1"]


# -- the control plane -------------------------------------------------------------------------------------------------


def _masters(world: World, closed: str = "") -> None:
    world.api.put(kinds.NODE, node(**CONTROL_PLANE))
    for number in range(2):
        other = node(f"master-{number}", **CONTROL_PLANE)
        other["spec"] = {"unschedulable": True} if closed == other["metadata"]["name"] else {}
        world.api.put(kinds.NODE, other)


def test_one_control_plane_node_goes_at_a_time(world: World, drainer: drain.Drainer) -> None:
    _masters(world, closed="master-1")
    world.pod("web-1")

    outcome = drainer.attempt(world.machine)

    assert (outcome.drained, outcome.again) == (False, drain.NOT_PERMITTED)
    assert "master-1" in outcome.message
    assert evictions(world) == []
    assert "unschedulable" not in (world.api.have(kinds.NODE, NAME) or {})["spec"]


def test_the_first_control_plane_node_goes(world: World, drainer: drain.Drainer) -> None:
    _masters(world)

    assert drainer.attempt(world.machine).drained


def test_one_that_was_begun_is_finished(world: World, drainer: drain.Drainer) -> None:
    _masters(world, closed="master-1")
    world.api.change(kinds.NODE, NAME, "", lambda found: found["spec"].update(unschedulable=True))

    assert drainer.attempt(world.machine).drained


def test_workers_do_not_wait_for_each_other(world: World, drainer: drain.Drainer) -> None:
    other = node("another-worker")
    other["spec"] = {"unschedulable": True}
    world.api.put(kinds.NODE, other)

    assert drainer.attempt(world.machine).drained


def test_two_that_are_chosen_at_once_are_chosen_one_by_one(world: World, drainer: drain.Drainer) -> None:
    _masters(world)
    machines = [
        {"metadata": {"uid": name}, "status": {"nodeRef": {"name": name}}} for name in (NAME, "master-0", "master-1")
    ]
    # Whoever lists waits for the others to have listed too, if they can.
    gate, listed = threading.Barrier(3), world.api.list

    def slow(*what: Any, **how: Any) -> Any:
        found = listed(*what, **how)
        if what[0] == kinds.NODE:
            try:
                gate.wait(0.2)
            except threading.BrokenBarrierError:
                pass
        return found

    world.api.list = slow  # type: ignore[method-assign]
    outcomes: list[drain.Outcome] = []
    threads = [threading.Thread(target=lambda each=each: outcomes.append(drainer.attempt(each))) for each in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcome.drained for outcome in outcomes) == [False, False, True]


def test_a_node_that_cannot_be_closed_is_not_drained(world: World, drainer: drain.Drainer) -> None:
    world.pod("web-1")
    world.api.trouble(f"patch nodes {NAME}", errors.Forbidden("you may not", code=403))

    outcome = drainer.attempt(world.machine)

    assert (outcome.drained, outcome.again) == (False, drain.NOT_PERMITTED)
    assert evictions(world) == []


def test_the_clock_is_the_clouds(world: World) -> None:
    """A pod's end is judged by the same clock as everything else."""
    assert isinstance(world.clock, clocks.ManualClock)
    world.api.put(kinds.NODE, node(ready="Unknown"))
    world.api.lively = False
    world.pod("web-1", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    world.clock.advance(3600)

    assert drain.Drainer(world.api, world.clock).attempt(world.machine).drained  # type: ignore[arg-type]
