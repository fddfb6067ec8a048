"""A cluster's API in memory, in the place of `kube.Editor`: objects by path, and troubles that are scripted."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from moorage.installer import diagnosis, kube, kubeconfig

ACCESS = kubeconfig.Access("https://api.harbour.example.com:6443", "api.harbour.example.com", 6443, "api", "")


class MemoryApi:
    """Objects by path; a list's items are the objects below it. ``troubles`` are raised, one per call, by call."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.troubles: dict[str, list[Exception]] = {}
        self.calls: list[str] = []
        self.closed = 0
        self._version = 0

    def put(self, path: str, content: Mapping[str, Any]) -> None:
        self._version += 1
        metadata = {"name": path.rpartition("/")[2], **content.get("metadata", {}), "resourceVersion": self._version}
        self.objects[path] = {**copy.deepcopy(dict(content)), "metadata": metadata}

    def conditions(self, request: str) -> list[str]:
        found = self.objects[f"{diagnosis.REQUESTS}/{request}"].get("status") or {}
        return [condition["type"] for condition in found.get("conditions", ())]

    # --- as `kube.Editor` -----------------------------------------------------------------------------------------

    def __enter__(self) -> MemoryApi:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed += 1

    def get(self, path: str) -> dict[str, Any]:
        self._called(f"GET {path}")
        if path in self.objects:
            return copy.deepcopy(self.objects[path])
        below = [each for key, each in self.objects.items() if key.rpartition("/")[0] == path]
        if not below:
            raise kube.Missing(f"there is no {path}")
        return {"items": copy.deepcopy(below)}

    def create(self, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        self._called(f"POST {path}")
        place = f"{path}/{content['metadata']['name']}"
        if place in self.objects:
            raise kube.Conflicting(f"{place} already exists")
        self.put(place, content)
        return self.objects[place]

    def replace(self, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        self._called(f"PUT {path}")
        place = path.removesuffix("/approval")
        assert content["apiVersion"]
        assert content["kind"]
        if content["metadata"]["resourceVersion"] != self.objects[place]["metadata"]["resourceVersion"]:
            raise kube.Conflicting(f"{place} has changed")
        self.put(place, content)
        return self.objects[place]

    def _called(self, call: str) -> None:
        self.calls.append(call)
        if self.troubles.get(call):
            raise self.troubles[call].pop(0)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> MemoryApi:
    """The API that the installer reaches instead of a cluster's."""
    made = MemoryApi()
    monkeypatch.setattr(kube, "Editor", lambda _access, _clock, _environ: made)
    monkeypatch.setattr(kubeconfig, "read", lambda _path: ACCESS)
    return made


DIRECTORY = Path("cluster")
