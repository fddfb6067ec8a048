"""CustomResourceDefinitions: kinds that come and go, names that are taken, schemas that are refused.

The words in the tables were heard from a real server, version 1.33.
"""

from __future__ import annotations

from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.lab.kube import api as apis
from moorage.lab.kube import builtin_kinds, crds, kinds, options, problem, store

Object = dict[str, Any]


class World:
    """An API that knows the built-in kinds and what is defined in it."""

    def __init__(self, kept: store.Store | None = None) -> None:
        self.kinds = kinds.Kinds()
        for kind in builtin_kinds.kinds():
            self.kinds.add(kind)
        self.api = apis.Api(kept or store.Store(), self.kinds, clocks.Clock())
        self.kind = self.api.kind("apiextensions.k8s.io", "CustomResourceDefinition")
        if kept is None:
            self.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        crds.Definitions(self.api)

    def define(self, content: Object) -> Object:
        self.api.create(self.kind, "", content)
        return self.get(content["metadata"]["name"])

    def change(self, name: str, **spec: Any) -> Object:
        content = store.copied(self.api.get(self.kind, "", name))
        content["spec"] |= spec
        self.api.update(self.kind, "", name, content)
        return self.get(name)

    def get(self, name: str) -> Object:
        return store.copied(self.api.get(self.kind, "", name))

    def delete(self, name: str) -> None:
        self.api.delete(self.kind, "", name)

    def served(self, plural: str, version: str = "v1") -> kinds.Kind | None:
        return self.kinds.find("example.com", version, plural)

    def make(self, kind: kinds.Kind | None, name: str, **meta: Any) -> Object:
        assert kind is not None
        content = {"metadata": {"name": name, **meta}}
        return self.api.create(kind, "default" if kind.namespaced else "", content).object


@pytest.fixture
def world() -> World:
    return World()


def version(name: str = "v1", *, served: bool = True, storage: bool = True, **more: Any) -> Object:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {"name": name, "served": served, "storage": storage, "schema": schema, **more}


def definition(plural: str = "things", kind: str = "Thing", **spec: Any) -> Object:
    names = {"plural": plural, "kind": kind, **spec.pop("names", {})}
    content = {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version()], **spec}
    return {"metadata": {"name": f"{plural}.example.com"}, "spec": content}


def with_schema(**properties: Any) -> Object:
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    return definition(versions=[{**version(), "schema": schema}])


def conditions(content: Object) -> dict[str, tuple[str, str, str]]:
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in content["status"]["conditions"]}


def refused(world: World, content: Object) -> list[str]:
    with pytest.raises(problem.Problem) as refusal:
        world.api.create(world.kind, "", content)
    assert refusal.value.code == 422
    return [f"{cause['field']}: {cause['message']}" for cause in refusal.value.details["causes"]]


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


LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is"
    " '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {**definition(), "metadata": {"name": "others.example.com"}},
            'metadata.name: Invalid value: "others.example.com": must be spec.names.plural+"."+spec.group',
        ),
        (
            definition(scope="Galaxy"),
            'spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced"',
        ),
        (definition(names={"shortNames": ["F_"]}), f'spec.names.shortNames[0]: Invalid value: "F_": {LABEL}'),
        (
            definition(names={"listKind": "Thing"}),
            'spec.names.listKind: Invalid value: "Thing": kind and listKind may not be the same',
        ),
        (
            definition(preserveUnknownFields=True),
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set"
            " x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ),
        (
            definition(conversion={"strategy": "Webhook"}),
            'spec.conversion.strategy: Invalid value: "Webhook": conversion by webhook is not supported by this server;'
            " use None",
        ),
        (
            definition(versions=[{**version(), "schema": None}]),
            "spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required",
        ),
        (
            definition(versions=[version(deprecationWarning="old")]),
            'spec.versions[0].deprecationWarning: Invalid value: "old": can only be set for deprecated versions',
        ),
        (
            definition(versions=[version(storage=False)]),
            "spec.versions: Invalid value: [v1]: must have exactly one version marked as storage version",
        ),
        (
            definition(
                versions=[
                    version(subresources={"scale": {"specReplicasPath": ".n", "statusReplicasPath": ".status.n"}})
                ]
            ),
            'spec.subresources.scale.specReplicasPath: Invalid value: ".n": should be a json path under .spec',
        ),
        (
            definition(versions=[version(additionalPrinterColumns=[{"name": "A", "type": "x", "jsonPath": ".a"}])]),
            'spec.additionalPrinterColumns[0].type: Invalid value: "x":'
            " must be one of boolean,date,integer,number,string",
        ),
    ],
)
def test_a_definition_is_refused(world: World, content: Object, message: str) -> None:
    assert refused(world, content) == [message]


A = "spec.validation.openAPIV3Schema.properties[a]"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"properties": {}}, f"{A}.type: Required value: must not be empty for specified object fields"),
        ({"type": "array"}, f"{A}.items: Required value: must be specified"),
        (
            {"type": "array", "items": {}},
            f"{A}.items.type: Required value: must not be empty for specified array items",
        ),
        (
            {"type": "odd"},
            f'{A}.type: Unsupported value: "odd": supported values: "array", "boolean", "integer", "number", "object",'
            ' "string"',
        ),
        ({"$ref": "#/x"}, f"{A}.$ref: Forbidden: $ref is not supported"),
        (
            {
                "type": "object",
                "properties": {"x": {"type": "string"}},
                "additionalProperties": {"type": "string"},
            },
            f"{A}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            {"type": "object", "anyOf": [{"type": "object"}]},
            f"{A}.anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}},
            f"{A}.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            },
            f"{A}.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it"
            " must have a default or be a required property",
        ),
        (
            {"type": "integer", "default": "x"},
            f'{A}.default: Invalid value: "string":  in body must be of type integer: "string"',
        ),
        (
            {"type": "object", "default": {"q": 1}, "properties": {"x": {"type": "string"}}},
            f'{A}.default: Invalid value: map[string]interface {{}}{{"q":1}}: must not have unknown fields',
        ),
        (
            {"type": "object", "x-kubernetes-embedded-resource": True},
            f"{A}.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without"
            " x-kubernetes-preserve-unknown-fields",
        ),
    ],
)
def test_a_schema_that_is_not_structural_is_refused(world: World, schema: Object, message: str) -> None:
    assert refused(world, with_schema(a=schema)) == [message]


def test_a_wrong_schema_is_told_with_its_version_if_versions_differ(world: World) -> None:
    wrong = {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "array"}}}}
    versions = [version("v1"), {**version("v2", storage=False), "schema": wrong}]

    assert refused(world, definition(versions=versions)) == [
        "spec.versions[1].schema.openAPIV3Schema.properties[a].items: Required value: must be specified"
    ]


def test_a_protected_group_needs_an_approval(world: World) -> None:
    content = definition(group="x.k8s.io")
    content["metadata"]["name"] = "things.x.k8s.io"
    assert refused(world, content) == [
        "metadata.annotations[api-approved.kubernetes.io]: Required value:"
        ' protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111'
    ]

    content["metadata"]["annotations"] = {"api-approved.kubernetes.io": "https://example.com"}
    found = world.define(content)

    approved = ("True", "ApprovedAnnotation", "approved in https://example.com")
    assert conditions(found)["KubernetesAPIApprovalPolicyConformant"] == approved
