"""Who asks a server, how they prove it, and what certificates both sides show."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from moorage.engine import clock as clocks
from moorage.lab import calls
from moorage.lab.kube import server
from tests.unit.lab.kube import server_world as worlds


def test_who_asks_must_be_known_and_allowed() -> None:
    async def story(client: worlds.Client) -> None:
        status, answer, _ = await client.ask("GET", worlds.MAPS, token="wrong")
        assert (status, answer["reason"], answer["message"]) == (401, "Unauthorized", "Unauthorized")
        for token, name in (("alice", "alice"), ("", "system:anonymous")):
            status, answer, _ = await client.ask("GET", worlds.MAPS, token=token)
            assert (status, answer["message"]) == (
                403,
                f'configmaps is forbidden: User "{name}" cannot list resource "configmaps" in API group "" in the'
                ' namespace "default"',
            )
        assert (await client.ask("GET", "/version", token=""))[0] == 200
        status, answer, _ = await client.ask("GET", "/nonsense", token="alice")
        assert (status, answer["message"]) == (403, 'forbidden: User "alice" cannot get path "/nonsense"')
        assert answer["details"] == {}

    worlds.tell(story)


def test_whoever_may_speaks_for_others() -> None:
    async def story(client: worlds.Client) -> None:
        status, answer, _ = await client.ask("GET", worlds.MAPS, Impersonate_User="bob")
        assert (status, 'User "bob" cannot list' in answer["message"]) == (403, True)
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        _, me, _ = await client.ask("POST", path, {}, Impersonate_User="bob", Impersonate_Group="dev")
        assert me["status"]["userInfo"]["username"] == "bob"
        assert "dev" in me["status"]["userInfo"]["groups"]
        status, answer, _ = await client.ask("GET", worlds.MAPS, token="alice", Impersonate_User="bob")
        assert (status, answer["message"]) == (
            403,
            'users "bob" is forbidden: User "alice" cannot impersonate resource "users" in API group "" at the'
            " cluster scope",
        )
        status, answer, _ = await client.ask("GET", "/api?x=1", Impersonate_Group="dev", Impersonate_Uid="7")
        wanted = "[{Group  dev    } {UID  7  authentication.k8s.io/v1  }]"
        told = f'Internal Server Error: "/api?x=1": requested {wanted} without impersonating a user\n'
        assert (status, answer) == (500, told)

    worlds.tell(story)


def test_a_role_for_one_name_allows_to_watch_that_name() -> None:
    async def story(client: worlds.Client) -> None:
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
        assert (await client.ask("GET", f"{worlds.MAPS}?fieldSelector=metadata.name%3Da", token="alice"))[0] == 200
        assert (await client.ask("GET", worlds.MAPS, token="alice"))[0] == 403

    worlds.tell(story)


def test_reviews_answer_and_are_not_kept() -> None:
    async def story(client: worlds.Client) -> None:
        review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        for token, allowed in (("admin", True), ("alice", False)):
            status, answer, _ = await client.ask("POST", path, review, token=token)
            assert (status, answer["status"]["allowed"]) == (201, allowed)
        assert (await client.ask("GET", path))[0] == 405

    worlds.tell(story)


def test_callers_are_recorded_by_name() -> None:
    log = calls.CallLog(clocks.Clock())

    async def story(client: worlds.Client) -> None:
        await client.ask("GET", worlds.MAPS)
        await client.ask("GET", worlds.MAPS, token="alice")

    worlds.tell(story, middlewares=[calls.recording(log, "kube")])
    assert [(call.who, call.status) for call in log.calls()] == [("admin", 200), ("alice", 403)]


async def _presented(port: int, name: str | None) -> str:
    context = ssl.create_default_context(cadata=worlds.AUTHORITY[0])
    context.check_hostname = False
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection(worlds.HOST, port, ssl=context, server_hostname=name or worlds.HOST)
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    found = x509.load_der_x509_certificate(tls.getpeercert(True) or b"")
    assert tls.selected_alpn_protocol() == "http/1.1"
    writer.close()
    return str(found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (None, worlds.HOST),
        ("api.lab", worlds.HOST),
        ("API-INT.lab", "api-int.lab"),
        ("console.apps.lab", "api-int.lab"),
        ("deep.er.apps.lab", worlds.HOST),
        ("unknown.lab", worlds.HOST),
    ],
)
def test_the_certificate_is_the_one_for_the_name_asked_for(asked: str | None, shown: str) -> None:
    async def story(client: worlds.Client) -> str:
        return await _presented(client.server.port, asked)

    assert worlds.tell(story) == shown


def test_a_client_certificate_names_its_user_and_a_strange_one_is_not_let_in(tmp_path: Any) -> None:
    async def whoami(client: worlds.Client, made: str, key: worlds.Key) -> str:
        chain = tmp_path / "client.pem"
        chain.write_text(made + worlds.pem(key))
        context = ssl.create_default_context(cadata=worlds.AUTHORITY[0])
        context.load_cert_chain(chain)
        path = client.url + "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            for _ in range(2):
                answer = await session.post(path, json={})
                found = await answer.json()
        return str(found["status"]["userInfo"]["username"])

    async def story(client: worlds.Client) -> None:
        good = worlds.issued("system:node:n1", (), worlds.CLIENTS, organisation="system:nodes")
        assert await whoami(client, *good) == "system:node:n1"
        strange = worlds.issued("system:node:n1", (), worlds.issued("somebody", ()), organisation="system:nodes")
        with pytest.raises(aiohttp.ClientError):
            await whoami(client, *strange)

    worlds.tell(story)


def test_tls_older_than_1_2_is_not_spoken() -> None:
    assert server.tls_context([worlds.MAIN], "").minimum_version == ssl.TLSVersion.TLSv1_2
    with pytest.raises(ValueError, match="needs a certificate"):
        server.tls_context([], "")
