"""One resource: look up, create, wait; whatever the platform answers, there is one of it in the end."""

from __future__ import annotations

import itertools

import pytest
import toycloud

from moorage.engine import context, errors, outputs, progress, steps


@pytest.fixture
def heard() -> list[progress.Event]:
    return []


@pytest.fixture
def ctx(clock, heard) -> context.Context:
    return context.Context(resource="a", clock=clock, deadline=clock.deadline(1800, "thing a"), emit=heard.append)


def thing(cloud, **settings) -> toycloud.Thing:
    return toycloud.Thing(name="a", cloud=cloud, **settings)


NOTHING = outputs.Inputs("a", {})


def states(heard: list[progress.Event]) -> list[str]:
    return [event.state for event in heard if event.state != "waiting"]


def test_what_is_not_there_is_made(cloud, ctx, heard):
    record = steps.bring_up(thing(cloud), NOTHING, ctx)

    assert cloud.inventory() == {"a": 1}
    assert record == {"id": cloud.things["a"][0], "on": []}
    assert states(heard) == ["creating", "created"]
    assert cloud.calls[0] == ("find", "a")


def test_what_is_there_is_adopted(cloud, ctx, heard):
    cloud.create("a")

    steps.bring_up(thing(cloud), NOTHING, ctx)

    assert cloud.inventory() == {"a": 1}
    assert states(heard) == ["adopted"]


@pytest.mark.parametrize(
    "error",
    [
        errors.Ambiguous("no reply"),
        errors.Transient("bad gateway"),
        errors.AlreadyExists("name taken"),
        TimeoutError("read timed out"),
        ConnectionResetError("reset by peer"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_create_that_took_effect_but_lost_its_reply_is_adopted(cloud, ctx, heard, error):
    cloud.after["create", "a"].append(toycloud.fails(error))

    steps.bring_up(thing(cloud), NOTHING, ctx)

    assert cloud.inventory() == {"a": 1}
    assert states(heard)[-1] == "adopted"


@pytest.mark.parametrize(
    "error", [errors.Ambiguous("no reply"), errors.Transient("busy"), TimeoutError()], ids=lambda e: type(e).__name__
)
def test_a_create_that_did_not_take_effect_is_repeated_after_another_look(cloud, ctx, error):
    cloud.before["create", "a"] = [toycloud.fails(error)] * 2

    steps.bring_up(thing(cloud), NOTHING, ctx)

    assert cloud.inventory() == {"a": 1}
    calls = [call for call, _ in cloud.calls]
    assert all(before == "find" for before, call in itertools.pairwise(calls) if call == "create")


def test_a_lost_reply_on_a_lagging_platform_is_doubted_for_as_long_as_it_lags(cloud, ctx):
    cloud.after["create", "a"].append(toycloud.fails(errors.Ambiguous("no reply")))
    cloud.unseen["a"] = 5

    steps.bring_up(thing(cloud, settle=60.0), NOTHING, ctx)

    assert cloud.inventory() == {"a": 1}


def test_an_earlier_runs_create_is_looked_for_as_long_as_the_platform_lags(cloud, clock):
    cloud.create("a")
    cloud.unseen["a"] = 5
    later = context.Context(resource="a", clock=clock, deadline=clock.deadline(1800), intended=True)

    steps.bring_up(thing(cloud, settle=60.0), NOTHING, later)

    assert cloud.inventory() == {"a": 1}


def test_what_was_never_asked_for_is_not_waited_for(cloud, ctx, clock):
    steps.bring_up(thing(cloud, settle=60.0), NOTHING, ctx)

    assert clock.slept == []


def test_a_name_that_is_taken_by_someone_else_is_a_failure_and_not_ours(cloud, ctx):
    cloud.before["create", "a"].append(toycloud.fails(errors.AlreadyExists("name in use", words="409: a exists")))

    with pytest.raises(errors.AlreadyExists, match="name in use"):
        steps.bring_up(thing(cloud), NOTHING, ctx)

    assert cloud.made("create") == ["a"]


@pytest.mark.parametrize("error", [errors.Terminal("quota"), errors.Unauthorized("who?")])
def test_a_clear_refusal_is_not_repeated(cloud, ctx, error):
    cloud.before["create", "a"].append(toycloud.fails(error))

    with pytest.raises(type(error)):
        steps.bring_up(thing(cloud), NOTHING, ctx)

    assert cloud.made("create") == ["a"]


def test_a_platform_that_stays_busy_is_given_up_at_the_deadline_with_its_own_words(cloud, clock):
    cloud.before["create", "a"] = [toycloud.fails(errors.Transient("busy", words="HTTP 503: maintenance"))] * 1000
    ctx = context.Context(resource="a", clock=clock, deadline=clock.deadline(300, "thing a"))

    with pytest.raises(errors.DeadlineExceeded) as given_up:
        steps.bring_up(thing(cloud), NOTHING, ctx)

    assert "HTTP 503: maintenance" in given_up.value.told()
    assert clock.now() <= 300


def test_the_intention_is_told_before_the_call_and_the_id_after(cloud, clock):
    order: list[str] = []
    cloud.before["create", "a"].append(lambda: order.append("call"))
    ctx = context.Context(
        resource="a", clock=clock, deadline=clock.deadline(60), emit=lambda event: order.append(event.state)
    )

    steps.bring_up(thing(cloud), NOTHING, ctx)

    assert order[:3] == ["creating", "call", "created"]
    assert ctx.created_id == cloud.things["a"][0]


def test_a_look_that_says_not_found_is_an_answer(cloud, ctx):
    cloud.before["find", "a"] = [toycloud.fails(errors.NotFound("404"))]

    steps.bring_up(thing(cloud), NOTHING, ctx)

    assert cloud.inventory() == {"a": 1}


def test_a_fresh_thing_may_be_not_found_while_the_platform_lags(cloud, ctx):
    cloud.before["ready", "a"] = [toycloud.fails(errors.NotFound("404"))] * 3

    steps.bring_up(thing(cloud, settle=60.0), NOTHING, ctx)

    assert cloud.inventory() == {"a": 1}


def test_only_the_first_wait_after_a_create_that_succeeded_is_told_that_nothing_can_have_changed(cloud, ctx):
    seen: list[bool] = []

    class Watched(toycloud.Thing):
        def wait(self, inputs, ctx):
            seen.append(ctx.fresh)
            return super().wait(inputs, ctx)

    cloud.before["ready", "a"] = [toycloud.fails(errors.NotFound("404"))]

    steps.bring_up(Watched(name="a", cloud=cloud, settle=60.0), NOTHING, ctx)
    steps.bring_up(Watched(name="a", cloud=cloud), NOTHING, ctx)

    assert seen == [True, False, False]


def test_a_create_whose_reply_was_lost_is_not_taken_for_fresh(cloud, ctx):
    seen: list[bool] = []

    class Watched(toycloud.Thing):
        def wait(self, inputs, ctx):
            seen.append(ctx.fresh)
            return super().wait(inputs, ctx)

    cloud.after["create", "a"] = [toycloud.fails(errors.Ambiguous("no reply"))]

    steps.bring_up(Watched(name="a", cloud=cloud), NOTHING, ctx)

    assert seen == [False]


def test_a_thing_that_vanishes_while_waited_for_is_a_failure(cloud, ctx):
    cloud.before["ready", "a"] = [toycloud.fails(errors.NotFound("404"))] * 3

    with pytest.raises(errors.NotFound):
        steps.bring_up(thing(cloud), NOTHING, ctx)


def test_what_is_absent_is_already_deleted(cloud, ctx, heard):
    assert steps.take_down(thing(cloud), NOTHING, ctx) is False
    assert heard == []


def test_what_is_there_is_deleted_until_it_is_gone(cloud, ctx):
    cloud.create("a")
    cloud.lingers["a"] = 3

    assert steps.take_down(thing(cloud), NOTHING, ctx) is True
    assert cloud.find("a") is None
