"""Namespaces: what they are born with, and how they go with all that is in them."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.lab.kube import namespaces
from tests.unit.lab.kube import controllers_world as worlds

Object = worlds.Object


def _conditions(world: worlds.World, name: str) -> dict[str, Any]:
    found = world.find("Namespace", name)
    return {} if found is None else {each["type"]: each for each in found["status"].get("conditions", [])}


def test_a_new_namespace_is_active_and_carries_its_name_as_a_label() -> None:
    async def told() -> None:
        world = worlds.World()
        made = world.api.create(world.kind("Namespace"), "", {"metadata": {"name": "team"}}).object
        assert made["spec"] == {"finalizers": ["kubernetes"]}
        assert made["status"] == {"phase": "Active"}
        assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
        assert "generation" not in made["metadata"]

    worlds.story(told())


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_some_namespaces_may_not_be_deleted(name: str) -> None:
    async def told() -> None:
        world = worlds.World()
        world.put("v1", "Namespace", name)
        refusal = worlds.refused(lambda: world.delete("Namespace", name))
        assert refusal.code == 403
        assert refusal.message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'

    worlds.story(told())


def test_nothing_is_created_in_a_namespace_that_is_not_there() -> None:
    async def told() -> None:
        world = worlds.World()
        refusal = worlds.refused(lambda: world.put("v1", "ConfigMap", "c", "nowhere"))
        assert (refusal.code, refusal.message) == (404, 'namespaces "nowhere" not found')

    worlds.story(told())


def test_a_namespace_takes_its_content_with_it() -> None:
    async def told() -> None:
        world = worlds.World()
        world.put("v1", "Namespace", "team")
        world.put("v1", "ConfigMap", "a", "team")
        world.put("example.com/v1", "Widget", "b", "team")
        world.put("v1", "ConfigMap", "elsewhere")
        async with worlds.working(namespaces.Namespaces(world.api)):
            world.delete("Namespace", "team")
            await world.until(lambda: world.find("Namespace", "team") is None)
        assert world.names("ConfigMap") == ["elsewhere"]
        assert world.names("Widget") == []

    worlds.story(told())


def test_a_namespace_waits_for_finalizers_and_says_so() -> None:
    async def told() -> None:
        world = worlds.World()
        controller = namespaces.Namespaces(world.api)
        world.put("v1", "Namespace", "team")
        world.put("v1", "ConfigMap", "a", "team", metadata={"finalizers": ["example.com/hold"]})
        world.put("example.com/v1", "Widget", "b", "team", metadata={"finalizers": ["example.com/hold"]})
        async with worlds.working(controller):
            world.delete("Namespace", "team")
            await world.until(lambda: "NamespaceContentRemaining" in _conditions(world, "team"))
            told = _conditions(world, "team")
            assert told["NamespaceContentRemaining"]["status"] == "True"
            assert told["NamespaceContentRemaining"]["message"] == (
                "Some resources are remaining: configmaps. has 1 resource instances,"
                " widgets.example.com has 1 resource instances"
            )
            assert told["NamespaceFinalizersRemaining"]["message"] == (
                "Some content in the namespace has finalizers remaining: example.com/hold in 2 resource instances"
            )
            assert told["NamespaceDeletionContentFailure"]["status"] == "False"
            refusal = worlds.refused(lambda: world.put("v1", "ConfigMap", "late", "team"))
            assert refusal.code == 403
            assert refusal.message == (
                'configmaps "late" is forbidden: unable to create new content in namespace team'
                " because it is being terminated"
            )
            for kind, name in (("ConfigMap", "a"), ("Widget", "b")):
                await world.rest(controller)
                assert world.get("Namespace", "team")["status"]["phase"] == "Terminating"
                world.api.apply_status(
                    world.kind(kind), "team", name, lambda content: content["metadata"].pop("finalizers")
                )
            await world.until(lambda: world.find("Namespace", "team") is None)

    worlds.story(told())


def test_a_foreign_finalizer_in_the_spec_keeps_an_empty_namespace() -> None:
    async def told() -> None:
        world = worlds.World()
        controller = namespaces.Namespaces(world.api)
        world.put("v1", "Namespace", "team")
        world.change("Namespace", "team", lambda content: content["spec"]["finalizers"].append("example.com/mine"))
        async with worlds.working(controller):
            world.delete("Namespace", "team")
            await world.until(lambda: world.get("Namespace", "team")["spec"] == {"finalizers": ["example.com/mine"]})
            await world.rest(controller)
            content = world.find("Namespace", "team")
            world.api.update(world.kind("Namespace"), "", "team", {**content, "spec": {}}, subresource="finalize")
            assert world.find("Namespace", "team") is None

    worlds.story(told())
