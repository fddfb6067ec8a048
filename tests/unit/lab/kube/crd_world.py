"""An API in which kinds are defined, and definitions to try it with."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.lab.kube import api as apis
from moorage.lab.kube import builtin_kinds, crds, kinds, problem, store

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
