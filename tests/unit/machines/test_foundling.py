"""An instance that was made for a Machine which has ended meanwhile is removed, whoever leads by then."""

from __future__ import annotations

import pytest

from moorage.machines import objects
from moorage.machines.runtime import errors as api_errors
from tests.unit.machines.machine_world import NAME, World, machine_object


@pytest.fixture
def ended() -> World:
    """A world whose next create is answered when the machine it was for is gone: somebody took its finalizer away."""
    made = World(lag=40.0)

    def end(call: str) -> None:
        if call.startswith("create"):
            made.change(lambda found: found["metadata"].update(finalizers=[]))
            made.delete()

    made.yard.before = end
    hooks = {"preDrain": [{"name": "backup", "owner": "us"}]}
    found = machine_object(lifecycleHooks=hooks)
    found["metadata"]["labels"][objects.SET_LABEL] = "workers"
    made.put(found)
    return made


def test_an_instance_of_a_machine_that_has_ended_meanwhile_is_removed(ended: World) -> None:
    ended.turn()
    assert objects.is_deleted(ended.machine)
    assert ended.machine["spec"]["providerID"] == ended.yard.only(NAME).provider_id
    assert ended.machine["metadata"]["labels"] == machine_object()["metadata"]["labels"], "no set may claim it"

    ended.run(lambda: ended.is_gone)

    assert ended.yard.instances == [], "it was not seen for a while, and yet not believed to be gone"


def test_it_is_removed_although_whoever_made_it_was_killed_before_saying_so(ended: World) -> None:
    end = ended.yard.before

    def end_and_fall_silent(call: str) -> None:
        end(call)
        if call.startswith("create"):
            ended.api.trouble("delete machines", api_errors.Unavailable("the server is away"))

    ended.yard.before = end_and_fall_silent
    with pytest.raises(api_errors.Unavailable):
        ended.turn()
    assert not objects.is_deleted(ended.machine)
    ended.yard.before = lambda _call: None
    ended.yard.calls.clear()

    ended.restarted()
    ended.run(lambda: ended.is_gone)

    assert ended.yard.instances == []
    assert set(ended.yard.verbs()) == {"delete"}, "nobody completed it"


@pytest.mark.parametrize("when", ["before", "after"])
def test_it_is_said_again_if_the_cluster_does_not_answer(ended: World, when: str) -> None:
    ended.api.trouble("create machines", api_errors.Unavailable("the server is away"), when)
    with pytest.raises(api_errors.Unavailable):
        ended.turn()

    ended.turn()
    ended.run(lambda: ended.is_gone)

    assert ended.yard.instances == []


def test_another_machine_of_its_name_is_spared_and_has_the_instance(ended: World) -> None:
    end = ended.yard.before

    def end_and_begin(call: str) -> None:
        end(call)
        if call.startswith("create"):
            ended.put()

    ended.yard.before = end_and_begin
    with pytest.raises(api_errors.Conflict):
        ended.turn()
    ended.yard.before = lambda _call: None
    ended.clock.advance(60.0)
    ended.run(lambda: ended.phase == "Provisioned")

    assert ended.yard.verbs().count("create") == 1
    assert ended.machine["spec"]["providerID"] == ended.yard.only(NAME).provider_id
