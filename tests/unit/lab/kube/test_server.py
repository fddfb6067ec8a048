"""The server: the API as clients meet it, in the forms they send and accept."""

from __future__ import annotations

import gzip
import json
import ssl

import aiohttp
import pytest

from moorage.lab.kube import http
from tests.unit.lab.kube import server_world as worlds


def test_an_object_lives_and_dies_over_http() -> None:
    async def story(client: worlds.Client) -> None:
        status, made, _ = await client.ask("POST", worlds.MAPS, {"metadata": {"name": "a"}, "data": {"k": "1"}})
        assert (status, made["kind"], made["data"]) == (201, "ConfigMap", {"k": "1"})
        status, found, _ = await client.ask("GET", f"{worlds.MAPS}/a")
        assert (status, found) == (200, made)
        found["data"]["k"] = "2"
        status, updated, _ = await client.ask("PUT", f"{worlds.MAPS}/a", found)
        assert (status, updated["data"]) == (200, {"k": "2"})
        status, stale, _ = await client.ask("PUT", f"{worlds.MAPS}/a", {**made, "data": {"k": "3"}})
        assert (status, stale["reason"]) == (409, "Conflict")
        patch = {"data": {"k": "4"}}
        status, patched, _ = await client.ask(
            "PATCH", f"{worlds.MAPS}/a", patch, Content_Type="application/merge-patch+json"
        )
        assert (status, patched["data"]) == (200, {"k": "4"})
        status, gone, _ = await client.ask("DELETE", f"{worlds.MAPS}/a")
        assert (status, gone["status"], gone["details"]["uid"]) == (200, "Success", made["metadata"]["uid"])
        status, missing, _ = await client.ask("GET", f"{worlds.MAPS}/a")
        assert (status, missing["message"]) == (404, 'configmaps "a" not found')

    worlds.tell(story)


def test_lists_are_the_stored_bytes_in_a_frame() -> None:
    async def story(client: worlds.Client) -> None:
        entries = [
            client.world.map(name, namespace=namespace) for name, namespace in (("a", "default"), ("b", "other"))
        ]
        _, _, raw = await client.ask("GET", "/api/v1/configmaps")
        status, body, _ = await client.ask("GET", "/api/v1/configmaps")
        revision = str(client.world.store.revision)
        assert raw.headers["Content-Type"] == "application/json"
        assert (status, body["kind"], body["metadata"]) == (200, "ConfigMapList", {"resourceVersion": revision})
        # The list has said what they are.
        assert [{"apiVersion": "v1", "kind": "ConfigMap", **item} for item in body["items"]] == [
            json.loads(entry.data) for entry in entries
        ]
        assert all("kind" not in item for item in body["items"])
        _, first, _ = await client.ask("GET", "/api/v1/configmaps?limit=1")
        assert first["metadata"]["remainingItemCount"] == 1
        _, rest, _ = await client.ask("GET", f"/api/v1/configmaps?continue={first['metadata']['continue']}")
        assert [item["metadata"]["name"] for item in rest["items"]] == ["b"]

    worlds.tell(story)


def test_big_lists_are_compressed_for_whom_it_pleases() -> None:
    async def story(client: worlds.Client) -> None:
        for number in range(10):
            client.world.map(f"m{number}", k="x" * 20_000)
        plain = await client.session.get(
            client.url + worlds.MAPS, headers={"Authorization": "Bearer admin", "Accept-Encoding": "identity"}
        )
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=worlds.AUTHORITY[0]))
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as raw:
            packed = await raw.get(
                client.url + worlds.MAPS, headers={"Authorization": "Bearer admin", "Accept-Encoding": "gzip"}
            )
            assert packed.headers["Content-Encoding"] == "gzip"
            data = await packed.read()
        assert "Content-Encoding" not in plain.headers
        assert gzip.decompress(data) == await plain.read()

    worlds.tell(story)


@pytest.mark.parametrize(
    ("method", "path", "code", "reason", "words"),
    [
        ("GET", "/api/v1/nonsense", 404, "NotFound", "the server could not find the requested resource"),
        ("GET", "/apis/apps/v7/deployments", 404, "NotFound", "could not find"),
        ("GET", f"{worlds.MAPS}/a/status", 404, "NotFound", "could not find"),
        ("POST", "/api/v1/configmaps", 405, "MethodNotAllowed", "does not allow this method"),
        ("PUT", worlds.MAPS, 405, "MethodNotAllowed", "does not allow this method"),
        ("DELETE", "/api/v1/configmaps", 405, "MethodNotAllowed", "does not allow this method"),
        ("POST", f"{worlds.MAPS}/a", 405, "MethodNotAllowed", "does not allow this method"),
        ("OPTIONS", worlds.MAPS, 405, "MethodNotAllowed", "does not allow this method"),
        ("PATCH", f"{worlds.MAPS}/a", 415, "UnsupportedMediaType", "415: Unsupported Media Type"),
        ("GET", f"{worlds.MAPS}?limit=x", 400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("POST", f"{worlds.MAPS}?dryRun=Foo", 422, "Invalid", 'dryRun: Unsupported value: []string{"Foo"}'),
        ("POST", f"{worlds.MAPS}?fieldValidation=Foo", 422, "Invalid", 'fieldValidation: Unsupported value: "Foo"'),
        (
            "DELETE",
            f"{worlds.MAPS}/a?propagationPolicy=Foo",
            422,
            "Invalid",
            'propagationPolicy: Unsupported value: "Foo"',
        ),
        ("GET", f"{worlds.MAPS}?labelSelector=-a", 400, "BadRequest", "unable to parse requirement"),
        ("GET", f"{worlds.MAPS}?fieldSelector=a%3Db", 400, "BadRequest", "is not a known field selector"),
        ("GET", f"{worlds.MAPS}/a?resourceVersion=99999", 404, "NotFound", "not found"),
    ],
)
def test_what_cannot_be_is_refused_with_a_status(method: str, path: str, code: int, reason: str, words: str) -> None:
    async def story(client: worlds.Client) -> None:
        body = {"metadata": {"name": "a"}} if method in ("POST", "PUT", "PATCH") else None
        status, answer, _ = await client.ask(method, path, body)
        assert (status, answer["kind"], answer["code"], answer["reason"]) == (code, "Status", code, reason)
        assert words in answer["message"]

    worlds.tell(story)


def test_paths_of_nobody_are_not_found_in_plain_words() -> None:
    async def story(client: worlds.Client) -> None:
        for path in ("/nonsense", "/apis/nobody.example.com/v1/things", "/apis/nobody.example.com"):
            status, body, answer = await client.ask("GET", path)
            assert (status, body.strip()) == (404, "404 page not found")
            assert answer.headers["Content-Type"].startswith("text/plain")

    worlds.tell(story)


@pytest.mark.parametrize(
    ("body", "media", "code", "words"),
    [
        (b"{bad", "application/json", 400, "the object provided is unrecognized (must be of type ConfigMap)"),
        (b"", "application/json", 400, "unexpected end of JSON input (<empty>)"),
        (b"[]", "application/json", 400, "unrecognized"),
        (b"{}", "text/plain", 415, "accepted media types include: application/json, application/yaml"),
        (b'{"kind":"Secret","apiVersion":"v1"}', "application/json", 400, "cannot be handled as a ConfigMap"),
        (b"k8s\0\xff", "application/vnd.kubernetes.protobuf", 400, "unrecognized"),
        (b"{" + b" " * (http.MOST_BYTES + 1) + b"}", "application/json", 413, "limit is 3145728"),
    ],
)
def test_bodies_that_cannot_be_read_are_refused(body: bytes, media: str, code: int, words: str) -> None:
    async def story(client: worlds.Client) -> None:
        status, answer, _ = await client.ask("POST", worlds.MAPS, body, Content_Type=media)
        assert (status, answer["code"]) == (code, code)
        assert words in answer["message"]

    worlds.tell(story)


def test_yaml_is_read_and_written() -> None:
    async def story(client: worlds.Client) -> None:
        body = b"metadata:\n  name: y\n  annotations: {when: 2026-01-01T00:00:00Z, 1: one}\ndata: {k: v}\n"
        made = await client.ask("POST", worlds.MAPS, body, Content_Type="application/yaml")
        _, shown, answer = await client.ask("GET", f"{worlds.MAPS}/y", Accept="application/yaml")
        assert made[0] == 201
        assert made[1]["metadata"]["annotations"] == {"when": "2026-01-01T00:00:00Z", "1": "one"}
        assert (await client.ask("POST", worlds.MAPS, b"a: [", Content_Type="application/yaml"))[0] == 400
        assert answer.headers["Content-Type"] == "application/yaml"
        assert "data:\n  k: v\n" in shown

    worlds.tell(story)


def test_clients_are_warned_of_what_is_unknown_or_there_twice() -> None:
    async def story(client: worlds.Client) -> None:
        body = b'{"metadata":{"name":"q","name":"r"},"data":{"a":"b","a":"c"},"foo":1}'
        status, made, answer = await client.ask("POST", worlds.MAPS, body)
        assert (status, made["metadata"]["name"]) == (201, "r")
        assert answer.headers.getall("Warning") == [
            '299 - "duplicate field \\"metadata.name\\""',
            '299 - "duplicate field \\"data.a\\""',
            '299 - "unknown field \\"foo\\""',
        ]
        status, refused, _ = await client.ask("POST", f"{worlds.MAPS}?fieldValidation=Strict", body)
        assert (status, refused["reason"]) == (400, "BadRequest")
        assert "strict decoding error: duplicate field" in refused["message"]

    worlds.tell(story)


@pytest.mark.parametrize(
    ("accept", "code", "kind"),
    [
        ("", 200, "ConfigMap"),
        ("*/*", 200, "ConfigMap"),
        ("application/vnd.kubernetes.protobuf,application/json", 200, "ConfigMap"),
        ("application/vnd.kubernetes.protobuf", 406, "Status"),
        ("text/html", 406, "Status"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", 200, "Table"),
        ("application/json;as=Nonsense;v=v1;g=meta.k8s.io", 406, "Status"),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", 200, "PartialObjectMetadata"),
    ],
)
def test_a_client_gets_a_form_it_accepts(accept: str, code: int, kind: str) -> None:
    async def story(client: worlds.Client) -> None:
        client.world.map("a")
        status, body, _ = await client.ask("GET", f"{worlds.MAPS}/a", Accept=accept)
        assert (status, body["kind"]) == (code, kind)

    worlds.tell(story)


def test_scale_binding_log_and_versions_have_paths_of_their_own() -> None:
    async def story(client: worlds.Client) -> None:
        client.world.widget("w", {"replicas": 2})
        widgets = "/apis/example.com/v1/namespaces/default/widgets"
        _, scale, _ = await client.ask("GET", f"{widgets}/w/scale")
        assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 2})
        scale["spec"]["replicas"] = 3
        _, scaled, _ = await client.ask("PUT", f"{widgets}/w/scale", scale)
        assert (scaled["kind"], scaled["spec"]) == ("Scale", {"replicas": 3})
        _, old, _ = await client.ask("GET", "/apis/example.com/v1beta1/namespaces/default/widgets/w")
        assert (old["apiVersion"], old["spec"]) == ("example.com/v1beta1", {"replicas": 3})
        client.world.pod("p")
        pods = "/api/v1/namespaces/default/pods"
        bind = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n1"}}
        assert (await client.ask("POST", f"{pods}/p/binding", bind))[0] == 201
        status, again, _ = await client.ask("POST", f"{pods}/p/binding", bind)
        assert (status, again["message"].partition(": ")[2]) == (409, 'pod p is already assigned to node "n1"')
        assert (await client.ask("GET", f"{pods}/p"))[1]["spec"]["nodeName"] == "n1"
        assert (await client.ask("GET", f"{pods}/p/log"))[:2] == (200, "")
        assert (await client.ask("GET", f"{pods}/q/log"))[0] == 404
        status, evicted, _ = await client.ask(
            "POST", f"{pods}/p/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        )
        assert (status, evicted["status"]) == (201, "Success")
        assert "deletionTimestamp" in (await client.ask("GET", f"{pods}/p"))[1]["metadata"]

    worlds.tell(story)


def test_options_of_a_deletion_come_from_the_body() -> None:
    async def story(client: worlds.Client) -> None:
        client.world.map("a")
        status, left, _ = await client.ask("DELETE", f"{worlds.MAPS}/a", {"propagationPolicy": "Foreground"})
        assert (status, left["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
        status, answer, _ = await client.ask("DELETE", f"{worlds.MAPS}/a", {"preconditions": {"uid": "x"}})
        assert (status, answer["reason"]) == (409, "Conflict")
        client.world.map("b")
        status, answer, _ = await client.ask("DELETE", worlds.MAPS, {"propagationPolicy": "Background"})
        assert [item["metadata"]["name"] for item in answer["items"]] == ["a", "b"]
        assert (await client.ask("GET", worlds.MAPS))[1]["items"] == []

    worlds.tell(story)


def test_discovery_and_openapi_are_served() -> None:
    async def story(client: worlds.Client) -> None:
        aggregated = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList,application/json"
        kinds = [
            (await client.ask("GET", "/api"))[1]["kind"],
            (await client.ask("GET", "/apis"))[1]["kind"],
            (await client.ask("GET", "/apis/example.com"))[1]["kind"],
            (await client.ask("GET", "/api/v1"))[1]["kind"],
            (await client.ask("GET", "/apis/example.com/v1"))[1]["groupVersion"],
            (await client.ask("GET", "/apis", Accept=aggregated))[1]["kind"],
            (await client.ask("GET", "/openapi/v2"))[1]["swagger"],
        ]
        assert kinds == [
            "APIVersions",
            "APIGroupList",
            "APIGroup",
            "APIResourceList",
            "example.com/v1",
            "APIGroupDiscoveryList",
            "2.0",
        ]
        _, index, _ = await client.ask("GET", "/openapi/v3")
        status, document, _ = await client.ask("GET", index["paths"]["api/v1"]["serverRelativeURL"])
        assert (status, "io.k8s.api.core.v1.ConfigMap" in document["components"]["schemas"]) == (200, True)

    worlds.tell(story)
