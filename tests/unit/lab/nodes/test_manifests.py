"""Creating manifests: all of them, in order, again and again until the API takes them; its words go to the console."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from moorage.engine import clock as clocks
from moorage.lab.nodes import api_client, manifests

Object = dict[str, Any]
FAST = 2000.0


class Api:
    """An API that knows a few kinds, and refuses what it is told to refuse."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.kinds: dict[str, list[Object]] = {
            "/api/v1": [_kind("ConfigMap", "configmaps", True), _kind("Namespace", "namespaces", False)]
        }
        self.refusals: dict[str, api_client.Refused] = {}
        self.silent = 0
        self.warnings: list[str] = []
        self.asked: list[str] = []

    async def get(self, path: str) -> Object:
        self.asked.append(f"GET {path}")
        if self.silent:
            self.silent -= 1
            raise ConnectionRefusedError
        if path in self.kinds:
            return {"resources": self.kinds[path]}
        if path not in self.objects:
            raise api_client.Refused(404, "NotFound", "not found")
        return self.objects[path]

    async def create(self, path: str, content: Object) -> Object:
        self.asked.append(f"POST {path}")
        name = content["metadata"]["name"]
        if name in self.refusals:
            raise self.refusals[name]
        stored = {key: value for key, value in content.items() if key != "status"}
        self.objects[f"{path}/{name}"] = stored
        if content.get("odd"):
            self.warnings.append('unknown field "odd"')
        return stored

    async def replace(self, path: str, content: Object) -> Object:
        self.asked.append(f"PUT {path}")
        self.objects[path.removesuffix("/status")] = content
        return content

    def words(self, problem: BaseException) -> str:
        return type(problem).__name__


def _kind(kind: str, plural: str, namespaced: bool) -> Object:
    return {"kind": kind, "name": plural, "namespaced": namespaced}


def manifest(kind: str, name: str, namespace: str = "", version: str = "v1", **more: object) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def created(api: Api, found: dict[str, Object], said: list[str], seconds: float = 5.0) -> None:
    client = cast(api_client.Client, api)
    asyncio.run(
        asyncio.wait_for(manifests.ensure_created(client, found, said.append, clocks.Clock(FAST)), timeout=seconds)
    )


def test_files_are_read_one_object_each_in_order() -> None:
    found = manifests.load(
        [("b.yaml", b"kind: B\napiVersion: v1\nsince: 2020-01-01\n"), ("a.json", b'{"kind":"A","apiVersion":"v1"}')]
    )

    assert list(found) == ["a.json", "b.yaml"]
    assert found["b.yaml"]["since"] == "2020-01-01"


def test_all_files_that_cannot_be_read_are_named() -> None:
    with pytest.raises(manifests.Unloadable) as told:
        manifests.load([("a.yaml", b"{"), ("b.yaml", b"apiVersion: v1"), ("c.yaml", b"kind: C"), ("d.yaml", b"")])

    lines = str(told.value).splitlines()
    assert lines[0] == "failed to load some manifests:"
    assert ["from YAML to JSON" in lines[1], "Kind" in lines[2], "apiVersion" in lines[3], "Kind" in lines[4]] == [
        True
    ] * 4


def test_manifests_are_created_where_they_belong() -> None:
    api, said = Api(), list[str]()

    created(api, {"2.yaml": manifest("ConfigMap", "settings", "shop"), "1.yaml": manifest("Namespace", "shop")}, said)

    assert list(api.objects) == ["/api/v1/namespaces/shop", "/api/v1/namespaces/shop/configmaps/settings"]
    assert said == [
        'Created "1.yaml" namespaces.v1./shop -n ',
        'Created "2.yaml" configmaps.v1./settings -n shop',
    ]


def test_what_exists_is_left_as_it_is() -> None:
    api, said = Api(), list[str]()
    api.objects["/api/v1/namespaces/shop"] = {"mine": True}

    created(api, {"1.yaml": manifest("Namespace", "shop")}, said)

    assert api.objects["/api/v1/namespaces/shop"] == {"mine": True}
    assert said == ['Skipped "1.yaml" namespaces.v1./shop -n  as it already exists']


def test_a_status_is_written_after_the_object_but_never_over_another() -> None:
    api, said = Api(), list[str]()
    api.objects["/api/v1/namespaces/known"] = {"status": {"phase": "Old"}}

    created(
        api,
        {
            "1.yaml": manifest("Namespace", "new", status={"phase": "Fresh"}),
            "2.yaml": manifest("Namespace", "known", status={"phase": "Fresh"}),
        },
        said,
    )

    assert api.objects["/api/v1/namespaces/new"]["status"] == {"phase": "Fresh"}
    assert api.objects["/api/v1/namespaces/known"] == {"status": {"phase": "Old"}}
    assert 'Updated status for "1.yaml" namespaces.v1./new -n ' in said


def test_a_kind_that_comes_later_is_found_later() -> None:
    async def story() -> tuple[Api, list[str]]:
        api, said = Api(), list[str]()
        found = {"1.yaml": manifest("Boat", "one", version="harbour.io/v1"), "2.yaml": manifest("Namespace", "shop")}
        work = asyncio.create_task(
            manifests.ensure_created(cast(api_client.Client, api), found, said.append, clocks.Clock(FAST))
        )
        while not any("no matches for kind" in line for line in said):
            await asyncio.sleep(0.001)
        api.kinds["/apis/harbour.io/v1"] = [_kind("Boat", "boats", False)]
        await asyncio.wait_for(work, 5)
        return api, said

    api, said = asyncio.run(story())

    assert "/apis/harbour.io/v1/boats/one" in api.objects
    # The others did not have to wait for it.
    assert said.index('Created "2.yaml" namespaces.v1./shop -n ') < said.index(
        'Created "1.yaml" boats.v1.harbour.io/one -n '
    )
    complaint = next(line for line in said if line.startswith("[#1]"))
    assert complaint == (
        "[#1] failed to create some manifests:\n"
        '"1.yaml": unable to get REST mapping for "1.yaml": no matches for kind "Boat" in version "harbour.io/v1"'
    )


def test_a_refused_manifest_is_tried_for_ever_and_complained_about_now_and_then() -> None:
    api, said = Api(), list[str]()
    api.refusals["bad"] = api_client.Refused(422, "Invalid", 'Namespace "bad" is invalid: spec: no')

    with pytest.raises(TimeoutError):
        created(api, {"1.yaml": manifest("Namespace", "bad")}, said, seconds=0.2)

    tries = api.asked.count("POST /api/v1/namespaces")
    assert tries > 3
    assert said[0] == (
        "[#1] failed to create some manifests:\n"
        '"1.yaml": failed to create namespaces.v1./bad -n : Namespace "bad" is invalid: spec: no'
    )
    assert 1 < len(said) < tries


def test_an_api_that_does_not_answer_is_asked_again() -> None:
    api, said = Api(), list[str]()
    api.silent = 2

    created(api, {"1.yaml": manifest("Namespace", "shop"), "2.yaml": manifest("Namespace", "other")}, said)

    assert len(api.objects) == 2
    assert "failed to fetch discovery: ConnectionRefusedError" in said[0]


def test_warnings_are_told_with_the_file_they_are_about() -> None:
    api, said = Api(), list[str]()

    created(api, {"1.yaml": manifest("Namespace", "shop", odd=True), "2.yaml": manifest("Namespace", "fine")}, said)

    assert [line for line in said if "warnings.go" in line] == ['warnings.go:70] unknown field "odd" (in 1.yaml)']
