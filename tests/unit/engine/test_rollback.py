"""A roll-back removes what was made, users first, past what refuses to go, and can itself be interrupted."""

from __future__ import annotations

import threading

import pytest
import toycloud

from moorage.engine import clock as clocks
from moorage.engine import errors, flow

CHAIN = {"network": (), "volume": (), "server": ("network", "volume"), "broken": ("server",)}


def run(cloud, journal, clock, **options):
    resources = toycloud.things(cloud, CHAIN, timeout=600.0)
    return flow.run(flow.Flow("infra", resources), journal=journal, clock=clock, rollback=True, **options)


@pytest.fixture
def doomed(cloud):
    """A cloud that will not make the last resource."""
    cloud.before["create", "broken"].append(toycloud.fails(errors.Terminal("cannot", words="no host has room")))
    return cloud


def test_a_failed_flow_is_undone_users_before_what_they_use(doomed, journal, clock):
    with pytest.raises(errors.FlowFailed) as failed:
        run(doomed, journal, clock)

    assert doomed.inventory() == {}
    assert doomed.made("delete")[0] == "server"
    assert set(doomed.made("delete")[1:]) == {"network", "volume"}
    assert failed.value.rolled_back
    assert failed.value.left == ()
    assert "no host has room" in failed.value.message
    assert "nothing is left" in failed.value.message
    assert journal.attempts("infra")[-1].outcome == "rolled-back"


def test_what_was_created_but_never_became_ready_is_undone_too(cloud, journal, clock):
    cloud.unready["server"] = 10_000

    with pytest.raises(errors.FlowFailed):
        run(cloud, journal, clock)

    assert cloud.inventory() == {}


def test_a_removal_waits_until_the_thing_is_really_gone(doomed, journal, clock):
    doomed.lingers["server"] = 3

    with pytest.raises(errors.FlowFailed):
        run(doomed, journal, clock)

    looks = [index for index, call in enumerate(doomed.calls) if call == ("find", "server")]
    removals = [index for index, (call, name) in enumerate(doomed.calls) if call == "delete" and name != "server"]
    assert len([look for look in looks if look > doomed.calls.index(("delete", "server"))]) == 4
    assert max(looks) < min(removals)


def test_what_someone_else_removed_meanwhile_is_no_failure(cloud, journal, clock):
    def lose_the_volume_and_fail() -> None:
        cloud.things["volume"].clear()
        raise errors.Terminal("cannot")

    cloud.before["create", "broken"].append(lose_the_volume_and_fail)
    cloud.before["delete", "server"].append(lambda: cloud.things["server"].clear())

    with pytest.raises(errors.FlowFailed) as failed:
        run(cloud, journal, clock)

    assert failed.value.left == ()
    assert cloud.inventory() == {}
    assert "volume" not in cloud.made("delete")


def test_a_removal_that_is_refused_for_a_while_is_repeated(doomed, journal, clock):
    doomed.before["delete", "network"] = [toycloud.fails(errors.Conflict("in use"))] * 3

    with pytest.raises(errors.FlowFailed) as failed:
        run(doomed, journal, clock)

    assert doomed.inventory() == {}
    assert failed.value.left == ()


def test_the_roll_back_goes_on_past_what_cannot_be_removed_and_reports_it(doomed, journal, clock):
    doomed.before["delete", "volume"].append(toycloud.fails(errors.Terminal("refused", words="volume is archived")))

    with pytest.raises(errors.FlowFailed) as failed:
        run(doomed, journal, clock)

    assert doomed.inventory() == {"volume": 1}
    assert [failure.resource for failure in failed.value.left] == ["volume"]
    assert "volume is archived" in failed.value.message
    assert "destroy" in failed.value.remedy


def test_what_a_stuck_thing_stands_on_is_tried_once_and_not_for_hours(doomed, journal, clock):
    doomed.before["delete", "server"].append(toycloud.fails(errors.Terminal("stuck")))
    for name in ("network", "volume"):
        doomed.before["delete", name] = [toycloud.fails(errors.Conflict("in use by server"))] * 50

    with pytest.raises(errors.FlowFailed) as failed:
        run(doomed, journal, clock)

    assert {failure.resource for failure in failed.value.left} == {"server", "network", "volume"}
    assert doomed.made("delete").count("network") == 1
    assert doomed.made("delete").count("volume") == 1


def test_after_a_roll_back_the_same_command_starts_afresh(doomed, journal, clock):
    with pytest.raises(errors.FlowFailed):
        run(doomed, journal, clock)

    outcome = run(doomed, journal, clock)

    assert outcome.kept == ()
    assert doomed.inventory() == dict.fromkeys(sorted(CHAIN), 1)


def test_what_was_rolled_back_is_no_longer_part_of_the_record(doomed, journal, clock):
    with pytest.raises(errors.FlowFailed):
        run(doomed, journal, clock)

    flow.run(flow.Flow("infra", toycloud.things(doomed, {"other": ()})), journal=journal, clock=clock)

    assert doomed.inventory() == {"other": 1}


def test_after_an_incomplete_roll_back_what_was_left_is_adopted(doomed, journal, clock):
    doomed.before["delete", "volume"].append(toycloud.fails(errors.Terminal("refused")))
    with pytest.raises(errors.FlowFailed):
        run(doomed, journal, clock)

    run(doomed, journal, clock)

    assert doomed.inventory() == dict.fromkeys(sorted(CHAIN), 1)


def test_a_roll_back_is_not_held_to_the_time_that_the_flow_was_allowed(cloud, journal, clock):
    cloud.unready["server"] = 10_000
    cloud.lingers["server"] = 5

    with pytest.raises(errors.FlowFailed) as failed:
        run(cloud, journal, clock, timeout=30.0)

    assert failed.value.left == ()
    assert cloud.inventory() == {}


def interrupt_the_roll_back(cloud, journal) -> errors.Interrupted:
    """Stop a run while it waits for the removed server to be gone."""
    clock = clocks.ManualClock(auto=False)
    cloud.lingers["server"] = 1
    stories: list[errors.Interrupted] = []

    def installer() -> None:
        with pytest.raises(errors.Interrupted) as stopped:
            run(cloud, journal, clock)
        stories.append(stopped.value)

    worker = threading.Thread(target=installer)
    worker.start()
    assert clock.await_sleepers(1)
    clock.request_stop()
    worker.join(10)
    return stories[0]


def test_an_interrupted_roll_back_goes_on_rolling_back(doomed, journal):
    story = interrupt_the_roll_back(doomed, journal)
    assert "rolling back" in story.message
    assert doomed.inventory() == {"network": 1, "volume": 1}

    with pytest.raises(errors.FlowFailed) as failed:
        flow.run(
            flow.Flow("infra", toycloud.things(doomed, CHAIN)),
            journal=journal,
            clock=clocks.ManualClock(),
            rollback=False,
        )

    assert doomed.inventory() == {}
    assert "no host has room" in failed.value.message
    assert doomed.made("create").count("network") == 1


def test_a_changed_graph_is_not_accepted_while_rolling_back_since_something_would_be_left(doomed, journal):
    interrupt_the_roll_back(doomed, journal)
    smaller = {name: needs for name, needs in CHAIN.items() if name == "network"}

    with pytest.raises(errors.GraphChanged, match="volume is gone"):
        flow.run(
            flow.Flow("infra", toycloud.things(doomed, smaller)),
            journal=journal,
            clock=clocks.ManualClock(),
            accept_changes=True,
        )

    assert doomed.inventory() == {"network": 1, "volume": 1}
