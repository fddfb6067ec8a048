"""Deleting: at once, in time, or when the last who has a say in it lets go."""

from __future__ import annotations

import pytest

from moorage.lab.kube import options
from tests.unit.lab.kube import api_world
from tests.unit.lab.kube.api_world import Refused, World, meta


@pytest.fixture
def world() -> World:
    return World()


def test_an_object_with_finalizers_waits_and_goes_with_the_last_of_them(world: World) -> None:
    world.api.create(world.maps, "default", {"metadata": {"name": "a", "finalizers": ["x.io/a", "x.io/b"]}})
    watch = world.api.watch(world.maps)

    waiting = meta(world.delete("a"))
    assert (waiting["deletionTimestamp"], waiting["deletionGracePeriodSeconds"]) == ("2026-01-01T00:00:00Z", 0)
    world.clock.advance(60)
    assert meta(world.delete("a"))["deletionTimestamp"] == waiting["deletionTimestamp"]
    finalize = lambda left: world.api.patch(  # noqa: E731
        world.maps, "default", "a", options.MERGE_PATCH, {"metadata": {"finalizers": left}}
    )
    with Refused(422, "Invalid", "no new finalizers can be added if the object is being deleted, found new finalizers"):
        finalize(["x.io/a", "x.io/c"])
    with Refused(409, "AlreadyExists", "object is being deleted"):
        world.map("a")
    finalize(["x.io/b"])
    finalize(None)

    assert world.api.find(world.maps, "default", "a") is None
    assert [event.type for event in watch.ready()] == ["MODIFIED", "MODIFIED", "DELETED"]


def test_how_dependents_go_is_written_into_the_finalizers(world: World) -> None:
    world.map("a")

    assert meta(world.delete("a", propagation="Foreground"))["finalizers"] == ["foregroundDeletion"]
    assert meta(world.delete("a", propagation="Orphan"))["finalizers"] == ["orphan"]
    assert world.delete("a", propagation="Background") is None


def test_a_deletion_can_be_bound_to_one_object_at_one_version(world: World) -> None:
    made = world.map("a")

    with Refused(409, "Conflict", "the UID in the precondition (other) does not match the UID in record"):
        world.delete("a", uid="other")
    with Refused(409, "Conflict", "the ResourceVersion in the precondition (1) does not match"):
        world.delete("a", resource_version="1")
    assert world.delete("a", uid=meta(made)["uid"], resource_version=str(made.revision)) is None


def test_a_running_pod_is_given_time_that_can_only_get_shorter(world: World) -> None:
    world.pod("p", nodeName="n")
    delete = lambda seconds=None: world.api.delete(  # noqa: E731
        world.pods, "default", "p", options.DeleteOptions(grace_seconds=seconds)
    )

    first = meta(delete())
    world.clock.advance(3)
    assert (first["deletionTimestamp"], first["deletionGracePeriodSeconds"]) == ("2026-01-01T00:00:30Z", 30)
    assert meta(delete(60))["deletionTimestamp"] == "2026-01-01T00:00:30Z"
    shorter = meta(delete(5))
    assert (shorter["deletionTimestamp"], shorter["deletionGracePeriodSeconds"]) == ("2026-01-01T00:00:05Z", 5)
    assert delete(0) is None


def test_a_pod_that_runs_nowhere_goes_at_once(world: World) -> None:
    world.pod("p")

    assert world.api.delete(world.pods, "default", "p") is None


def test_a_collection_is_deleted_by_selector(world: World) -> None:
    for name, colour in (("a", "red"), ("b", "blue"), ("c", "red")):
        world.map(name, labels={"colour": colour})
    world.map("d", namespace="other", labels={"colour": "red"})

    gone = world.api.delete_collection(world.maps, "default", labels="colour=red")

    assert api_world.names(gone) == ["a", "c"]
    assert api_world.names(world.api.entries(world.maps)) == ["b", "d"]
