"""A Node goes only when the platform has said twice that its instance is gone, and never another's."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.engine import errors as platform_errors
from moorage.machines import nodes
from moorage.machines.runtime import errors
from moorage.platforms import contract
from tests.unit.machines import yard
from tests.unit.machines.nodes_world import INFRA, SPACE, Scene, machine, node


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- removing ----------------------------------------------------------------------------------------------------

GONE = node(ready="Unknown", provider="yard://i-1", of=f"{SPACE}/m-1")


def test_a_node_goes_when_the_platform_said_twice_that_its_instance_is_gone(scene: Scene) -> None:
    scene.has(machine(), GONE)

    again = scene.reconcile()
    assert again == nodes.APART
    assert scene.node() is not None

    scene.clock.advance(again)
    scene.reconcile()

    assert scene.node() is None
    assert scene.yard.verbs() == ["exists", "exists"]
    assert "node m-1 is removed" in scene.told[-1]


def test_two_answers_at_the_same_time_are_one(scene: Scene) -> None:
    scene.has(machine(), GONE)

    scene.reconcile()
    scene.clock.advance(nodes.APART - 1)
    again = scene.reconcile()

    assert again == 1
    assert scene.node() is not None


def test_a_node_whose_machine_is_gone_goes_too(scene: Scene) -> None:
    scene.has(GONE)

    scene.twice()

    assert scene.node() is None


@pytest.mark.parametrize(
    "things",
    [
        pytest.param([node(ready="Unknown")], id="of nobody"),
        pytest.param([node(ready="Unknown", provider="yard://i-1")], id="that no machine was linked to"),
        pytest.param([node(ready="Unknown", of=f"{SPACE}/m-1")], id="of which no instance is known"),
        pytest.param(
            [node(ready="Unknown", provider="yard://i-1", of="elsewhere/m-1")], id="of a machine that is not ours"
        ),
        pytest.param(
            [machine(linked=""), node(ready="Unknown", provider="yard://i-1")], id="of a machine that is not linked"
        ),
        pytest.param([machine(linked="another-uid"), GONE], id="of a machine that is linked to another"),
        pytest.param(
            [machine(provider="yard://i-2", linked=""), GONE], id="of a machine that is another instance by now"
        ),
    ],
)
def test_a_node_that_is_not_surely_ours_stays(scene: Scene, things: list[dict[str, Any]]) -> None:
    scene.has(*things)

    scene.twice()
    scene.clock.advance(10 * nodes.APART)
    scene.reconcile()

    assert scene.node() is not None
    assert scene.yard.calls == []


@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_node_that_reports_stays_and_nobody_is_asked(scene: Scene, ready: str) -> None:
    scene.has(machine(), node(ready=ready, provider="yard://i-1", of=f"{SPACE}/m-1"))

    assert scene.reconcile() is None

    assert scene.node() is not None
    assert scene.yard.calls == []


def test_a_node_whose_instance_is_there_stays_and_is_looked_at_again(scene: Scene) -> None:
    scene.afloat()
    scene.has(machine(), GONE)

    assert scene.reconcile() == nodes.AWAY

    scene.clock.advance(nodes.AWAY)
    scene.reconcile()
    assert scene.node() is not None


def test_a_silent_node_that_changes_often_does_not_make_the_platform_be_asked_often(scene: Scene) -> None:
    scene.afloat()
    scene.has(machine(), GONE)
    scene.reconcile()
    scene.clock.advance(nodes.AWAY / 2)

    assert scene.reconcile() == nodes.AWAY / 2

    assert scene.yard.verbs() == ["create", "exists"]


def test_an_instance_that_shows_again_makes_the_count_begin_anew(scene: Scene) -> None:
    scene.afloat()
    scene.yard.hide("m-1", 10)
    scene.has(machine(), GONE)
    scene.reconcile()
    scene.clock.advance(30)
    scene.reconcile()  # it is seen
    scene.yard.sink("m-1")
    scene.clock.advance(nodes.AWAY)

    again = scene.reconcile()

    assert again == nodes.APART
    assert scene.node() is not None


def test_an_error_is_no_answer_and_makes_the_count_begin_anew(scene: Scene) -> None:
    scene.has(machine(), GONE)
    scene.reconcile()
    scene.clock.advance(nodes.APART)
    scene.yard.fail("exists", platform_errors.Unauthorized("not you"))

    with pytest.raises(platform_errors.Unauthorized):
        scene.reconcile()
    assert scene.reconcile() == nodes.APART

    assert scene.node() is not None


def test_other_credentials_make_the_count_begin_anew(scene: Scene) -> None:
    """They may be for another platform, where none of our instances is."""
    scene.has(machine(), GONE)
    scene.reconcile()
    scene.clock.advance(nodes.APART)
    scene.actuator = yard.Yard(scene.clock)

    assert scene.reconcile() == nodes.APART

    assert scene.node() is not None


def test_credentials_that_change_during_the_answer_make_the_count_begin_anew(scene: Scene) -> None:
    """By which of them it was given is not known."""

    class Overtaken(yard.Yard):
        def exists(self, machine: contract.Machine) -> contract.Instance | None:
            if len(self.calls) == 1:
                scene.actuator = yard.Yard(scene.clock)
            return super().exists(machine)

    scene.actuator = Overtaken(scene.clock)
    scene.has(machine(), GONE)
    scene.twice()
    assert scene.node() is not None

    scene.twice()
    assert scene.node() is None


def test_a_refusal_is_told_without_the_password_and_makes_it_be_looked_for(scene: Scene) -> None:
    scene.yard.fail("exists", platform_errors.Unauthorized("nobody signs in with s3cr3t"))
    scene.has(machine(), GONE)

    with pytest.raises(platform_errors.Unauthorized, match=r"nobody signs in with \*\*\*"):
        scene.reconcile()

    assert scene.keyring.refusals == 1


def test_a_node_that_recovers_at_the_last_moment_stays(scene: Scene) -> None:
    scene.has(machine(), GONE)
    scene.clock.advance(scene.reconcile() or 0.0)
    scene.nodes.step()
    scene.has(node(provider="yard://i-1"))

    scene.kept.reconcile("m-1")

    assert scene.node() is not None


def test_another_node_of_the_same_name_stays(scene: Scene) -> None:
    scene.has(machine(), GONE)
    scene.clock.advance(scene.reconcile() or 0.0)
    scene.nodes.step()
    scene.has({**GONE, "metadata": {**GONE["metadata"], "uid": "uid-2"}})

    scene.kept.reconcile("m-1")

    assert scene.node() is not None


def test_who_does_not_lead_any_more_removes_nothing(scene: Scene) -> None:
    scene.has(machine(), GONE)
    scene.clock.advance(scene.reconcile() or 0.0)
    scene.leads = False

    with pytest.raises(errors.NotLeader):
        scene.reconcile()

    assert scene.node() is not None


def test_the_platform_is_asked_by_the_clusters_mark_and_with_nothing_to_make_one_of(scene: Scene) -> None:
    asked: list[contract.Machine] = []

    class Listening(yard.Yard):
        def exists(self, machine: contract.Machine) -> contract.Instance | None:
            asked.append(machine)
            return super().exists(machine)

    scene.actuator = Listening(scene.clock)
    scene.has(machine(), GONE)
    scene.reconcile()

    assert asked == [contract.Machine("m-1", INFRA, "worker", {}, b"", "yard://i-1", ("10.0.0.5",))]
