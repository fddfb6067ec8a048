"""Lists: one moment, in as many pages as a client likes."""

from __future__ import annotations

import base64
import json

import pytest

from moorage.lab.kube import lists
from tests.unit.lab.kube import api_world
from tests.unit.lab.kube.api_world import Refused, World


def page(world: World, namespace: str = "default", **query: object) -> lists.Page:
    return lists.page(world.api, world.maps, namespace, lists.Query(**query))  # type: ignore[arg-type]


@pytest.fixture
def world() -> World:
    found = World()
    for name in "edcba":
        found.map(name, labels={"half": "first" if name < "c" else "second"})
    found.map("a", namespace="other")
    return found


def test_pages_show_one_moment_whatever_is_written_between_them(world: World) -> None:
    first = page(world, limit=2)
    world.delete("c")
    world.change("d", new="data")
    world.map("aa")
    second = page(world, limit=2, token=first.token)
    third = page(world, limit=2, token=second.token)

    assert [api_world.names(each.entries) for each in (first, second, third)] == [["a", "b"], ["c", "d"], ["e"]]
    assert [each.remaining for each in (first, second, third)] == [3, 1, 0]
    assert {each.revision for each in (first, second, third)} == {first.revision}
    assert third.token == ""
    assert "data" not in second.entries[1].object or second.entries[1].object["data"] == {}


def test_a_token_tells_revision_and_last_name_as_real_ones_do(world: World) -> None:
    token = page(world, limit=2).token

    document = json.loads(base64.urlsafe_b64decode(token + "=="))
    assert document == {"v": "meta.k8s.io/v1", "rv": world.store.revision, "start": "b\0"}


def test_pages_go_across_namespaces_in_order(world: World) -> None:
    seen, token = [], ""
    while True:
        found = page(world, "", limit=1, token=token)
        seen += [(each.object["metadata"]["namespace"], each.object["metadata"]["name"]) for each in found.entries]
        token = found.token
        if not token:
            break

    assert seen == [*(("default", name) for name in "abcde"), ("other", "a")]


def test_a_choice_is_paged_without_saying_how_much_is_left(world: World) -> None:
    first = page(world, limit=2, labels="half=second")
    second = page(world, limit=2, labels="half=second", token=first.token)

    assert api_world.names(first.entries + second.entries) == ["c", "d", "e"]
    assert (first.remaining, second.token) == (0, "")
    assert first.metadata().keys() == {"resourceVersion", "continue"}


def test_a_token_whose_moment_is_forgotten_offers_to_go_on_with_the_present() -> None:
    world = World(keep=3)
    for name in "abc":
        world.map(name)
    first = page(world, limit=1)
    for number in range(10):
        world.change("a", k=str(number))

    with Refused(410, "Expired", "The provided continue parameter is too old") as refused:
        page(world, limit=1, token=first.token)
    world.map("bb")
    rest = page(world, token=str(refused.problem.metadata["continue"]))
    assert api_world.names(rest.entries) == ["b", "bb", "c"]


def test_a_version_can_be_asked_for_exactly(world: World) -> None:
    then = world.store.revision
    world.delete("a")

    exact = page(world, resource_version=str(then), match=lists.EXACT)
    fresh = page(world, resource_version=str(then), match=lists.NOT_OLDER)
    old_style = page(world, resource_version=str(then), limit=9)

    assert api_world.names(exact.entries)[0] == api_world.names(old_style.entries)[0] == "a"
    assert api_world.names(fresh.entries)[0] == "b"
    assert (exact.revision, fresh.revision) == (then, world.store.revision)


def test_a_list_of_any_age_has_no_pages(world: World) -> None:
    assert len(page(world, resource_version="0", limit=2).entries) == 5


@pytest.mark.parametrize(
    ("query", "code", "reason", "words"),
    [
        ({"resource_version": "x"}, 400, "BadRequest", 'invalid resource version: resourceVersion: Invalid value: "x"'),
        ({"resource_version": "99999"}, 504, "Timeout", "Too large resource version: 99999"),
        ({"match": "Exact"}, 422, "Invalid", "forbidden unless resourceVersion is provided"),
        ({"match": "Exact", "resource_version": "0"}, 422, "Invalid", 'is forbidden for resourceVersion "0"'),
        ({"match": "Foo", "resource_version": "1"}, 422, "Invalid", 'Unsupported value: "Foo"'),
        ({"token": "x"}, 400, "BadRequest", "invalid continue token: continue key is not valid"),
        ({"token": "e30"}, 400, "BadRequest", "invalid continue token"),
    ],
)
def test_queries_that_make_no_sense_are_refused(
    world: World, query: dict[str, str], code: int, reason: str, words: str
) -> None:
    with Refused(code, reason, words):
        page(world, **query)


def test_a_version_beside_a_token_is_refused(world: World) -> None:
    with Refused(400, "BadRequest", "specifying resource version is not allowed when using continue"):
        page(world, token=page(world, limit=1).token, resource_version="5")
