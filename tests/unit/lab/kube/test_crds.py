"""CustomResourceDefinitions: kinds that come and go, names that are taken, versions that show the same objects.

The words were heard from a real server, version 1.33.
"""

from __future__ import annotations

import pytest

from moorage.lab.kube import kinds, options, problem
from tests.unit.lab.kube.crd_world import Object, World, conditions, definition, version, with_schema


@pytest.fixture
def world() -> World:
    return World()


ACCEPTED = ("True", "NoConflicts", "no conflicts found")
ESTABLISHED = ("True", "InitialNamesAccepted", "the initial names have been accepted")


def test_a_definition_is_established_at_once(world: World) -> None:
    found = world.define(definition(names={"shortNames": ["th"], "categories": ["all"]}))

    assert conditions(found) == {"NamesAccepted": ACCEPTED, "Established": ESTABLISHED}
    assert found["status"]["acceptedNames"] == {
        "plural": "things",
        "singular": "thing",
        "shortNames": ["th"],
        "kind": "Thing",
        "listKind": "ThingList",
        "categories": ["all"],
    }
    assert found["status"]["storedVersions"] == ["v1"]
    assert found["spec"]["conversion"] == {"strategy": "None"}
    kind = world.served("things")
    assert kind is not None
    assert (kind.name, kind.singular, kind.short_names, kind.custom) == ("Thing", "thing", ("th",), True)
    assert world.make(kind, "a")["kind"] == "Thing"


def test_objects_are_held_against_the_schema(world: World) -> None:
    world.define(with_schema(spec={"type": "object", "properties": {"size": {"type": "integer", "default": 3}}}))
    kind = world.served("things")
    assert kind is not None

    made = world.api.create(kind, "default", {"metadata": {"name": "a"}, "spec": {"odd": 1}})
    with pytest.raises(problem.Problem, match="must be of type integer"):
        world.api.create(kind, "default", {"metadata": {"name": "b"}, "spec": {"size": "big"}})

    assert made.object["spec"] == {"size": 3}


def test_a_schema_may_ask_something_of_names(world: World) -> None:
    world.define(with_schema(metadata={"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}))

    world.make(world.served("things"), "abc")
    with pytest.raises(problem.Problem, match="Too long: may not be more than 3 bytes"):
        world.make(world.served("things"), "abcd")


def test_versions_show_the_same_objects(world: World) -> None:
    versions = [
        version("v1beta1", storage=False, deprecated=True),
        version("v1"),
        version("v0", served=False, storage=False),
    ]
    world.define(definition(versions=versions))
    old, new = world.served("things", "v1beta1"), world.served("things")
    assert old is not None
    assert new is not None

    world.make(old, "a")

    assert world.served("things", "v0") is None
    assert (old.preferred, new.preferred) == (False, True)
    assert old.deprecation == "example.com/v1beta1 Thing is deprecated; use example.com/v1 Thing"
    assert world.api.get(new, "default", "a").object["apiVersion"] == "example.com/v1"


def test_columns_and_subresources_come_from_the_definition(world: World) -> None:
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1}]
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.s"}
    parts = {"additionalPrinterColumns": columns, "subresources": {"status": {}, "scale": scale}}
    world.define(definition(versions=[{**version(), **parts}]))
    world.define(definition("plains", "Plain"))
    kind, plain = world.served("things"), world.served("plains")
    assert kind is not None
    assert plain is not None

    assert [(column.name, column.path, column.type, column.priority) for column in kind.columns[1:]] == [
        ("Size", ".spec.size", "integer", 1)
    ]
    assert (kind.subresources, kind.scale) == (
        {"status", "scale"},
        kinds.ScalePaths(".spec.n", ".status.n", ".status.s"),
    )
    assert [column.name for column in plain.columns] == ["Name", "Age"]
    assert (plain.subresources, plain.scale) == (frozenset(), None)


def test_a_name_that_is_taken_is_not_accepted_until_it_is_free(world: World) -> None:
    world.define(definition())

    late = world.define(definition("gadgets", "Thing"))

    assert conditions(late) == {
        "NamesAccepted": ("False", "ListKindConflict", '"ThingList" is already in use'),
        "Established": ("False", "NotAccepted", "not all names are accepted"),
    }
    assert late["status"]["acceptedNames"] == {"plural": "gadgets", "kind": ""}
    assert world.served("gadgets") is None

    world.delete("things.example.com")

    assert conditions(world.get("gadgets.example.com")) == {"NamesAccepted": ACCEPTED, "Established": ESTABLISHED}
    assert world.served("gadgets") is not None


def test_an_established_definition_keeps_what_it_has_if_it_asks_for_a_taken_name(world: World) -> None:
    world.define(definition(names={"shortNames": ["th"]}))
    gadgets = world.define(definition("gadgets", "Gadget", names={"shortNames": ["ga"]}))

    found = world.change("gadgets.example.com", names={**gadgets["spec"]["names"], "shortNames": ["th"]})

    assert conditions(found)["NamesAccepted"] == ("False", "ShortNamesConflict", '"th" is already in use')
    assert conditions(found)["Established"] == ESTABLISHED
    kind = world.served("gadgets")
    assert kind is not None
    assert kind.short_names == ("ga",)


def test_names_of_other_groups_are_free(world: World) -> None:
    world.define(definition())
    other = definition(group="example.org")
    other["metadata"]["name"] = "things.example.org"

    assert conditions(world.define(other))["Established"] == ESTABLISHED


def test_a_definition_goes_with_the_last_of_its_objects(world: World) -> None:
    world.define(definition())
    kind = world.served("things")
    assert kind is not None
    world.make(kind, "plain")
    world.make(kind, "held", finalizers=["example.com/hold"])

    world.delete("things.example.com")

    waiting = world.get("things.example.com")
    assert conditions(waiting)["Terminating"] == (
        "True",
        "InstanceDeletionInProgress",
        "CustomResource deletion is in progress",
    )
    assert [entry.object["metadata"]["name"] for entry in world.api.entries(kind)] == ["held"]
    closing = world.served("things")
    assert closing is not None
    assert "create" not in closing.verbs

    world.api.patch(kind, "default", "held", options.MERGE_PATCH, {"metadata": {"finalizers": None}})

    assert world.api.find(world.kind, "", "things.example.com") is None
    assert world.served("things") is None


def test_a_definition_can_come_again(world: World) -> None:
    world.define(definition())
    world.delete("things.example.com")

    assert conditions(world.define(definition()))["Established"] == ESTABLISHED
    assert world.served("things") is not None


def test_definitions_are_served_after_a_restart(world: World) -> None:
    world.define(definition())
    world.make(world.served("things"), "a")

    again = World(world.api.store)

    kind = again.served("things")
    assert kind is not None
    assert again.api.get(kind, "default", "a").object["metadata"]["name"] == "a"


def test_a_new_version_is_served_when_the_definition_has_it(world: World) -> None:
    world.define(definition())
    generation = world.kinds.generation

    found = world.change("things.example.com", versions=[version("v1", storage=False), version("v2")])

    assert world.served("things", "v2") is not None
    assert world.kinds.generation > generation
    assert found["status"]["storedVersions"] == ["v1", "v2"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"scope": "Cluster"}, 'spec.scope: Invalid value: "Cluster": field is immutable'),
        (
            {"names": {"plural": "things", "kind": "Other"}},
            'spec.names.kind: Invalid value: "Other": field is immutable',
        ),
        (
            {"versions": [version("v2")]},
            'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage'
            " version, and must remain in spec.versions until a storage migration ensures no data remains persisted in"
            " v1 and removes v1 from status.storedVersions",
        ),
    ],
)
def test_what_an_established_definition_cannot_change(world: World, spec: Object, message: str) -> None:
    world.define(definition())

    with pytest.raises(problem.Problem) as refusal:
        world.change("things.example.com", **spec)

    assert refusal.value.message.endswith(f"is invalid: {message}")
