"""The server: the API as clients meet it, over TLS, with who they are and what they may do."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gzip
import ipaddress
import json
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import pytest
from aiohttp import typedefs, web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.engine import clock as clocks
from moorage.lab import calls, faults
from moorage.lab.kube import authentication, http, roles, routes, server, users
from tests.unit.lab.kube.api_world import World

HOST = "127.0.0.1"
MAPS = "/api/v1/namespaces/default/configmaps"
Key = ec.EllipticCurvePrivateKey


def issued(
    name: str, sans: Sequence[str], by: tuple[str, Key] | None = None, organisation: str = ""
) -> tuple[str, Key]:
    """A certificate and its key; its own authority unless ``by`` another's."""
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if organisation:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    subject = x509.Name(parts)
    issuer, signer = (x509.load_pem_x509_certificate(by[0].encode()).subject, by[1]) if by else (subject, key)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(by is None, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if sans:
        known = [x509.IPAddress(ipaddress.ip_address(san)) if san[0].isdigit() else x509.DNSName(san) for san in sans]
        builder = builder.add_extension(x509.SubjectAlternativeName(known), critical=False)
    if by:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    made = builder.sign(signer, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode(), key


def pem(key: Key) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()


AUTHORITY = issued("lab authority", ())
CLIENTS = issued("client authority", ())


def serving(*sans: str) -> server.Certificate:
    made, key = issued(sans[0], sans, AUTHORITY)
    return server.Certificate(made, pem(key))


MAIN, INTERNAL = serving(HOST, "api.lab"), serving("api-int.lab", "*.apps.lab")


@pytest.fixture(scope="module")
def access() -> authentication.Access:
    tokens = {
        "admin": users.authenticated("admin", ("system:masters",)),
        "alice": users.authenticated("alice"),
    }
    return authentication.Access(client_ca=CLIENTS[0], tokens=tokens)


class Client:
    """One who asks a server."""

    def __init__(self, session: aiohttp.ClientSession, url: str, world: World, api: server.Server) -> None:
        self.session, self.url, self.world, self.server = session, url, world, api

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = "admin",  # noqa: S107 - of the lab
        **headers: str,
    ) -> tuple[int, Any, aiohttp.ClientResponse]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            named["Authorization"] = f"Bearer {token}"
        data = body if isinstance(body, bytes | None) else json.dumps(body)
        if data is not None and not any(name.lower() == "content-type" for name in named):
            named["Content-Type"] = "application/json"
        async with self.session.request(method, self.url + path, data=data, headers=named) as answer:
            raw = await answer.read()
        with contextlib.suppress(ValueError):
            return answer.status, json.loads(raw), answer
        return answer.status, raw.decode(errors="replace"), answer


@contextlib.asynccontextmanager
async def running(access: authentication.Access, **more: Any) -> AsyncIterator[Client]:
    world = World()
    world.api.clock = clocks.Clock()
    roles.bootstrap(world.api)
    trust = ssl.create_default_context(cadata=AUTHORITY[0])
    async with (
        server.Server(world.api, access, [MAIN, INTERNAL], HOST, **more) as there,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session,
    ):
        yield Client(session, f"https://{HOST}:{there.port}", world, there)


def tell(access: authentication.Access, story: Callable[[Client], Awaitable[Any]], **more: Any) -> Any:
    async def whole() -> Any:
        async with running(access, **more) as client:
            return await story(client)

    return asyncio.run(asyncio.wait_for(whole(), 20))


def test_an_object_lives_and_dies_over_http(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
        status, made, _ = await client.ask("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "1"}})
        assert (status, made["kind"], made["data"]) == (201, "ConfigMap", {"k": "1"})
        status, found, _ = await client.ask("GET", f"{MAPS}/a")
        assert (status, found) == (200, made)
        found["data"]["k"] = "2"
        status, updated, _ = await client.ask("PUT", f"{MAPS}/a", found)
        assert (status, updated["data"]) == (200, {"k": "2"})
        status, stale, _ = await client.ask("PUT", f"{MAPS}/a", {**made, "data": {"k": "3"}})
        assert (status, stale["reason"]) == (409, "Conflict")
        patch = {"data": {"k": "4"}}
        status, patched, _ = await client.ask("PATCH", f"{MAPS}/a", patch, Content_Type="application/merge-patch+json")
        assert (status, patched["data"]) == (200, {"k": "4"})
        status, gone, _ = await client.ask("DELETE", f"{MAPS}/a")
        assert (status, gone["status"], gone["details"]["uid"]) == (200, "Success", made["metadata"]["uid"])
        status, missing, _ = await client.ask("GET", f"{MAPS}/a")
        assert (status, missing["message"]) == (404, 'configmaps "a" not found')

    tell(access, story)


def test_lists_are_the_stored_bytes_in_a_frame(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
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

    tell(access, story)


def test_big_lists_are_compressed_for_whom_it_pleases(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
        for number in range(10):
            client.world.map(f"m{number}", k="x" * 20_000)
        plain = await client.session.get(
            client.url + MAPS, headers={"Authorization": "Bearer admin", "Accept-Encoding": "identity"}
        )
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=AUTHORITY[0]))
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as raw:
            packed = await raw.get(
                client.url + MAPS, headers={"Authorization": "Bearer admin", "Accept-Encoding": "gzip"}
            )
            assert packed.headers["Content-Encoding"] == "gzip"
            data = await packed.read()
        assert "Content-Encoding" not in plain.headers
        assert gzip.decompress(data) == await plain.read()

    tell(access, story)


@pytest.mark.parametrize(
    ("method", "path", "code", "reason", "words"),
    [
        ("GET", "/api/v1/nonsense", 404, "NotFound", "the server could not find the requested resource"),
        ("GET", "/apis/apps/v7/deployments", 404, "NotFound", "could not find"),
        ("GET", f"{MAPS}/a/status", 404, "NotFound", "could not find"),
        ("POST", "/api/v1/configmaps", 405, "MethodNotAllowed", "does not allow this method"),
        ("PUT", MAPS, 405, "MethodNotAllowed", "does not allow this method"),
        ("DELETE", "/api/v1/configmaps", 405, "MethodNotAllowed", "does not allow this method"),
        ("POST", f"{MAPS}/a", 405, "MethodNotAllowed", "does not allow this method"),
        ("OPTIONS", MAPS, 405, "MethodNotAllowed", "does not allow this method"),
        ("PATCH", f"{MAPS}/a", 415, "UnsupportedMediaType", "415: Unsupported Media Type"),
        ("GET", f"{MAPS}?limit=x", 400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("POST", f"{MAPS}?dryRun=Foo", 422, "Invalid", 'dryRun: Unsupported value: []string{"Foo"}'),
        ("POST", f"{MAPS}?fieldValidation=Foo", 422, "Invalid", 'fieldValidation: Unsupported value: "Foo"'),
        ("DELETE", f"{MAPS}/a?propagationPolicy=Foo", 422, "Invalid", 'propagationPolicy: Unsupported value: "Foo"'),
        ("GET", f"{MAPS}?labelSelector=-a", 400, "BadRequest", "unable to parse requirement"),
        ("GET", f"{MAPS}?fieldSelector=a%3Db", 400, "BadRequest", "is not a known field selector"),
        ("GET", f"{MAPS}/a?resourceVersion=99999", 404, "NotFound", "not found"),
    ],
)
def test_what_cannot_be_is_refused_with_a_status(
    access: authentication.Access, method: str, path: str, code: int, reason: str, words: str
) -> None:
    async def story(client: Client) -> None:
        body = {"metadata": {"name": "a"}} if method in ("POST", "PUT", "PATCH") else None
        status, answer, _ = await client.ask(method, path, body)
        assert (status, answer["kind"], answer["code"], answer["reason"]) == (code, "Status", code, reason)
        assert words in answer["message"]

    tell(access, story)


def test_paths_of_nobody_are_not_found_in_plain_words(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
        for path in ("/nonsense", "/apis/nobody.example.com/v1/things", "/apis/nobody.example.com"):
            status, body, answer = await client.ask("GET", path)
            assert (status, body.strip()) == (404, "404 page not found")
            assert answer.headers["Content-Type"].startswith("text/plain")

    tell(access, story)


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
def test_bodies_that_cannot_be_read_are_refused(
    access: authentication.Access, body: bytes, media: str, code: int, words: str
) -> None:
    async def story(client: Client) -> None:
        status, answer, _ = await client.ask("POST", MAPS, body, Content_Type=media)
        assert (status, answer["code"]) == (code, code)
        assert words in answer["message"]

    tell(access, story)


def test_yaml_is_read_and_written(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
        body = b"metadata:\n  name: y\n  annotations: {when: 2026-01-01T00:00:00Z, 1: one}\ndata: {k: v}\n"
        made = await client.ask("POST", MAPS, body, Content_Type="application/yaml")
        _, shown, answer = await client.ask("GET", f"{MAPS}/y", Accept="application/yaml")
        assert made[0] == 201
        assert made[1]["metadata"]["annotations"] == {"when": "2026-01-01T00:00:00Z", "1": "one"}
        assert (await client.ask("POST", MAPS, b"a: [", Content_Type="application/yaml"))[0] == 400
        assert answer.headers["Content-Type"] == "application/yaml"
        assert "data:\n  k: v\n" in shown

    tell(access, story)


def test_clients_are_warned_of_what_is_unknown_or_there_twice(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
        body = b'{"metadata":{"name":"q","name":"r"},"data":{"a":"b","a":"c"},"foo":1}'
        status, made, answer = await client.ask("POST", MAPS, body)
        assert (status, made["metadata"]["name"]) == (201, "r")
        assert answer.headers.getall("Warning") == [
            '299 - "duplicate field \\"metadata.name\\""',
            '299 - "duplicate field \\"data.a\\""',
            '299 - "unknown field \\"foo\\""',
        ]
        status, refused, _ = await client.ask("POST", f"{MAPS}?fieldValidation=Strict", body)
        assert (status, refused["reason"]) == (400, "BadRequest")
        assert "strict decoding error: duplicate field" in refused["message"]

    tell(access, story)


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
def test_a_client_gets_a_form_it_accepts(access: authentication.Access, accept: str, code: int, kind: str) -> None:
    async def story(client: Client) -> None:
        client.world.map("a")
        status, body, _ = await client.ask("GET", f"{MAPS}/a", Accept=accept)
        assert (status, body["kind"]) == (code, kind)

    tell(access, story)


def test_scale_binding_log_and_versions_have_paths_of_their_own(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
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

    tell(access, story)


def test_reviews_answer_and_are_not_kept(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
        review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        for token, allowed in (("admin", True), ("alice", False)):
            status, answer, _ = await client.ask("POST", path, review, token=token)
            assert (status, answer["status"]["allowed"]) == (201, allowed)
        assert (await client.ask("GET", path))[0] == 405

    tell(access, story)


def test_who_asks_must_be_known_and_allowed(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
        status, answer, _ = await client.ask("GET", MAPS, token="wrong")
        assert (status, answer["reason"], answer["message"]) == (401, "Unauthorized", "Unauthorized")
        for token, name in (("alice", "alice"), ("", "system:anonymous")):
            status, answer, _ = await client.ask("GET", MAPS, token=token)
            assert (status, answer["message"]) == (
                403,
                f'configmaps is forbidden: User "{name}" cannot list resource "configmaps" in API group "" in the'
                ' namespace "default"',
            )
        assert (await client.ask("GET", "/version", token=""))[0] == 200
        status, answer, _ = await client.ask("GET", "/nonsense", token="alice")
        assert (status, answer["message"]) == (403, 'forbidden: User "alice" cannot get path "/nonsense"')

    tell(access, story)


def test_whoever_may_speaks_for_others(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
        status, answer, _ = await client.ask("GET", MAPS, Impersonate_User="bob")
        assert (status, 'User "bob" cannot list' in answer["message"]) == (403, True)
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        _, me, _ = await client.ask("POST", path, {}, Impersonate_User="bob", Impersonate_Group="dev")
        assert me["status"]["userInfo"]["username"] == "bob"
        assert "dev" in me["status"]["userInfo"]["groups"]
        status, answer, _ = await client.ask("GET", MAPS, token="alice", Impersonate_User="bob")
        assert (status, answer["message"]) == (
            403,
            'users "bob" is forbidden: User "alice" cannot impersonate resource "users" in API group "" at the'
            " cluster scope",
        )
        assert (await client.ask("GET", MAPS, Impersonate_Group="dev"))[0] == 500

    tell(access, story)


def test_a_role_for_one_name_allows_to_watch_that_name(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["list"]}]
        group = "rbac.authorization.k8s.io"
        here = {"name": "r", "namespace": "default"}
        client.world.api.put({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": here, "rules": rules})
        client.world.api.put(
            {
                "apiVersion": f"{group}/v1",
                "kind": "RoleBinding",
                "metadata": here,
                "roleRef": {"apiGroup": group, "kind": "Role", "name": "r"},
                "subjects": [{"apiGroup": group, "kind": "User", "name": "alice"}],
            }
        )
        assert (await client.ask("GET", f"{MAPS}?fieldSelector=metadata.name%3Da", token="alice"))[0] == 200
        assert (await client.ask("GET", MAPS, token="alice"))[0] == 403

    tell(access, story)


def test_health_depends_on_the_store_and_on_being_ready(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
        for path in ("/healthz", "/livez", "/readyz"):
            assert (await client.ask("GET", path, token=""))[:2] == (200, "ok")
        assert (await client.ask("GET", "/readyz/etcd"))[:2] == (200, "ok")
        assert (await client.ask("GET", "/readyz/nonsense"))[0] == 404
        client.server.ready = False
        assert [(await client.ask("GET", path))[0] for path in ("/readyz", "/livez")] == [500, 200]
        client.server.ready = True
        client.world.api.available = lambda: "etcdserver: request timed out"
        status, told, _ = await client.ask("GET", "/readyz?verbose")
        assert status == 500
        assert "[-]etcd failed: reason withheld\n" in told
        status, answer, _ = await client.ask("GET", MAPS)
        assert (status, answer["message"]) == (500, "etcdserver: request timed out")
        client.world.api.available = lambda: ""
        assert (await client.ask("GET", "/readyz?verbose"))[1].endswith("readyz check passed\n")

    tell(access, story)


def test_a_failure_of_ours_is_a_status_and_in_the_log(
    access: authentication.Access, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(client: Client) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("boom")

        client.world.api.get = fail  # type: ignore[assignment,method-assign]
        status, answer, _ = await client.ask("GET", f"{MAPS}/a")
        assert (status, answer["reason"]) == (500, "InternalError")
        assert "RuntimeError: boom" in answer["message"]

    with caplog.at_level(logging.ERROR, routes.__name__):
        tell(access, story)
    assert "boom" in caplog.text


def test_callers_are_recorded_by_name(access: authentication.Access) -> None:
    log = calls.CallLog(clocks.Clock())

    async def story(client: Client) -> None:
        await client.ask("GET", MAPS)
        await client.ask("GET", MAPS, token="alice")

    tell(access, story, middlewares=[calls.recording(log, "kube")])
    assert [(call.who, call.status) for call in log.calls()] == [("admin", 200), ("alice", 403)]


def test_a_stale_read_has_missed_the_last_write(access: authentication.Access) -> None:
    ordered = faults.Faults(clocks.Clock())
    ordered.add(faults.Rule(faults.STALE_READ, method="GET", path="/api/**"))

    async def story(client: Client) -> None:
        client.world.map("a", k="1")
        client.world.change("a", k="2")
        assert (await client.ask("GET", f"{MAPS}/a"))[1]["data"] == {"k": "1"}
        client.world.map("b")
        assert (await client.ask("GET", f"{MAPS}/b"))[0] == 404
        _, listed, _ = await client.ask("GET", MAPS)
        assert [item["data"] for item in listed["items"]] == [{"k": "2"}]

    tell(access, story, middlewares=[faults.striking(ordered, "kube")])


async def _presented(port: int, name: str | None) -> str:
    context = ssl.create_default_context(cadata=AUTHORITY[0])
    context.check_hostname = False
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname=name or HOST)
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    found = x509.load_der_x509_certificate(tls.getpeercert(True) or b"")
    assert tls.selected_alpn_protocol() == "http/1.1"
    writer.close()
    return str(found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (None, HOST),
        ("api.lab", HOST),
        ("API-INT.lab", "api-int.lab"),
        ("console.apps.lab", "api-int.lab"),
        ("deep.er.apps.lab", HOST),
        ("unknown.lab", HOST),
    ],
)
def test_the_certificate_is_the_one_for_the_name_asked_for(
    access: authentication.Access, asked: str | None, shown: str
) -> None:
    async def story(client: Client) -> str:
        return await _presented(client.server.port, asked)

    assert tell(access, story) == shown


def test_a_client_certificate_names_its_user_and_a_strange_one_is_not_let_in(
    access: authentication.Access, tmp_path: Any
) -> None:
    async def whoami(client: Client, made: str, key: Key) -> str:
        chain = tmp_path / "client.pem"
        chain.write_text(made + pem(key))
        context = ssl.create_default_context(cadata=AUTHORITY[0])
        context.load_cert_chain(chain)
        path = client.url + "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            for _ in range(2):
                answer = await session.post(path, json={})
                found = await answer.json()
        return str(found["status"]["userInfo"]["username"])

    async def story(client: Client) -> None:
        good = issued("system:node:n1", (), CLIENTS, organisation="system:nodes")
        assert await whoami(client, *good) == "system:node:n1"
        strange = issued("system:node:n1", (), issued("somebody", ()), organisation="system:nodes")
        with pytest.raises(aiohttp.ClientError):
            await whoami(client, *strange)

    tell(access, story)


def test_tls_older_than_1_2_is_not_spoken(access: authentication.Access) -> None:
    assert server.tls_context([MAIN], "").minimum_version == ssl.TLSVersion.TLSv1_2
    with pytest.raises(ValueError, match="needs a certificate"):
        server.tls_context([], "")


def test_connections_are_kept_for_the_next_request(access: authentication.Access) -> None:
    callers = []

    @web.middleware
    async def note(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
        assert request.transport is not None
        callers.append(request.transport.get_extra_info("peername"))
        return await handler(request)

    async def story(client: Client) -> None:
        for _ in range(3):
            _, _, answer = await client.ask("GET", "/version")
            assert answer.headers["Server"] == "master-1"

    tell(access, story, middlewares=[note], identity="master-1")
    assert len(callers) == 3
    assert len(set(callers)) == 1


def test_a_watch_streams_events_and_ends_cleanly_when_the_server_stops(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
        world = client.world
        headers = {"Authorization": "Bearer admin"}
        async with client.session.get(f"{client.url}{MAPS}?watch=true&labelSelector=x", headers=headers) as stream:
            assert stream.headers["Transfer-Encoding"] == "chunked"
            world.map("ignored")
            world.map("a", labels={"x": "y"})
            event = json.loads(await stream.content.readline())
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
            stopping = asyncio.create_task(client.server.stop())
            assert await stream.content.read() == b""
            await stopping
        assert not client.server.streams
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.ask("GET", "/version")

    tell(access, story)


def test_a_watch_ends_after_its_time_and_is_forgotten_when_its_client_leaves(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
        client.world.api.clock = clocks.Clock(100)
        status, body, _ = await client.ask("GET", f"{MAPS}?watch=1&timeoutSeconds=5")
        assert (status, body) == (200, "")
        headers = {"Authorization": "Bearer admin"}
        stream = await client.session.get(f"{client.url}{MAPS}?watch=1", headers=headers)
        assert len(client.server.streams) == 1
        stream.close()
        while client.server.streams:
            await asyncio.sleep(0.01)

    tell(access, story)


def test_a_reader_that_does_not_read_holds_up_neither_others_nor_the_end(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
        headers = {"Authorization": "Bearer admin"}
        lazy = await client.session.get(f"{client.url}{MAPS}?watch=1", headers=headers)
        eager = await client.session.get(f"{client.url}{MAPS}?watch=1", headers=headers)
        for number in range(30):
            client.world.map(f"m{number:02}", k="x" * 500_000)
            while (await eager.content.readchunk())[0][-1:] != b"\n":
                pass
        began = asyncio.get_running_loop().time()
        await client.server.stop()
        assert asyncio.get_running_loop().time() - began < 3
        lazy.close()

    tell(access, story)


def test_options_of_a_deletion_come_from_the_body(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
        client.world.map("a")
        status, left, _ = await client.ask("DELETE", f"{MAPS}/a", {"propagationPolicy": "Foreground"})
        assert (status, left["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
        status, answer, _ = await client.ask("DELETE", f"{MAPS}/a", {"preconditions": {"uid": "x"}})
        assert (status, answer["reason"]) == (409, "Conflict")
        client.world.map("b")
        status, answer, _ = await client.ask("DELETE", MAPS, {"propagationPolicy": "Background"})
        assert [item["metadata"]["name"] for item in answer["items"]] == ["a", "b"]
        assert (await client.ask("GET", MAPS))[1]["items"] == []

    tell(access, story)


def test_discovery_and_openapi_are_served(access: authentication.Access) -> None:
    async def story(client: Client) -> None:
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

    tell(access, story)
