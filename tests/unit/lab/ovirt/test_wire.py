"""The vendor's SDK meets the engine: it logs in, looks around, and loses and regains its session."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import ovirtsdk4
import pytest

from moorage.lab.ovirt import serving, sso
from tests.unit.lab.ovirt import engine_world

_NOBODY = "5f0b0a6e-0000-4000-8000-000000000000"


def test_the_front_page_tells_who_answers_and_who_asks(api: Any) -> None:
    front = api.get()

    assert (front.product_info.version.major, front.product_info.version.minor) == (4, 5)
    assert front.summary.hosts.total == front.summary.hosts.active == 5
    assert front.special_objects.blank_template.id == "00000000-0000-0000-0000-000000000000"
    assert front.special_objects.root_tag.href == "/ovirt-engine/api/tags/00000000-0000-0000-0000-000000000000"
    assert api.users_service().user_service(front.authenticated_user.id).get().user_name == "admin@internal-authz"


@pytest.mark.parametrize(
    ("user", "password", "words"),
    [
        (
            "admin@internal",
            "wrong",
            "Error during SSO authentication access_denied : "
            "Cannot authenticate user 'admin@internal': The user name or password is incorrect..",
        ),
        ("admin", "wrong", "Cannot authenticate user 'admin@N/A': No valid profile found in credentials.."),
        ("admin@elsewhere", "wrong", "Cannot authenticate user 'admin@elsewhere': No valid profile found in"),
        ("nobody@internal", "", "The user name or password is incorrect"),
    ],
)
def test_who_cannot_log_in_is_told_why(running: engine_world.Running, user: str, password: str, words: str) -> None:
    connection = running.connect(password=password) if user == serving.ADMIN else None
    connection = connection or ovirtsdk4.Connection(
        url=running.served.url, username=user, password=password, ca_file=str(running.ca_file)
    )
    with pytest.raises(ovirtsdk4.AuthError) as refused:
        connection.authenticate()
    assert words in str(refused.value)


def test_a_token_lasts_while_it_is_used_and_half_an_hour_longer(tmp_path: Path) -> None:
    with engine_world.started(tmp_path, speed=3000) as running:
        connection = running.connect()
        token = connection.authenticate()
        # Given that it is used before half an hour has passed
        for _ in range(2):
            running.clock.sleep(sso.IDLE_SECONDS * 0.6)
            assert running.tell(lambda: running.engine.sessions.user(token)) == serving.ADMIN
        # When nobody uses it for longer than that
        running.clock.sleep(sso.IDLE_SECONDS + 1)
        # Then the SDK logs in again by itself, once
        assert connection.test(raise_exception=True)
        assert connection.authenticate() != token
        statuses = [(each.path.rpartition("/")[2], each.status) for each in running.site.calls.calls(service="ovirt")]
        assert statuses == [("token", 200), ("api", 401), ("token", 200), ("api", 200)]


def test_who_logs_out_has_no_token_any_more(running: engine_world.Running) -> None:
    connection = running.connect()
    token = connection.authenticate()
    connection.close(logout=True)
    assert running.tell(lambda: running.engine.sessions.user(token)) == ""
    late = running.connect(token=token)
    late._password = "changed"
    with pytest.raises(ovirtsdk4.AuthError, match="access_denied"):
        late.system_service().get()


def test_tokens_are_revoked_by_the_other_way_too(running: engine_world.Running) -> None:
    token = running.connect().authenticate()
    content = urllib.parse.urlencode({"token": token, "scope": "ovirt-app-api"}).encode()
    assert _opened(running, "/ovirt-engine/sso/oauth/revoke", data=content) == (200, b"{}")
    assert running.tell(lambda: running.engine.sessions.user(token)) == ""


@pytest.mark.parametrize(
    ("form", "code", "words"),
    [
        ({}, "invalid_request", "Missing parameter: 'grant_type'"),
        ({"grant_type": "password"}, "invalid_request", "Missing parameter: 'username'"),
        ({"grant_type": "magic"}, "unsupported_grant_type", "not supported"),
        ({"grant_type": "password", "username": "a", "password": "b", "scope": "x"}, "invalid_scope", "'x'"),
    ],
)
def test_the_sign_on_says_what_it_lacks(
    running: engine_world.Running, form: dict[str, str], code: str, words: str
) -> None:
    status, body = _opened(
        running,
        "/ovirt-engine/sso/oauth/token",
        data=urllib.parse.urlencode(form).encode(),
        headers={"Accept": "application/json"},
    )
    assert (status, f'"error_code": "{code}"' in body.decode(), words in body.decode()) == (400, True, True)


def test_the_authority_can_be_fetched_by_who_does_not_trust_it_yet(running: engine_world.Running) -> None:
    path = "/ovirt-engine/services/pki-resource?resource=ca-certificate&format=X509-PEM-CA"
    status, body = _opened(running, path)
    assert (status, body.decode()) == (200, running.engine.ca_pem)
    assert _opened(running, "/ovirt-engine/services/pki-resource?resource=secrets")[0] == 404


def test_a_name_and_password_in_every_call_will_do(running: engine_world.Running) -> None:
    import base64

    pair = base64.b64encode(f"admin@internal:{running.served.password()}".encode()).decode()
    status, body = _opened(running, "/ovirt-engine/api/clusters", headers={"Authorization": f"Basic {pair}"})
    assert (status, b"<name>Edge</name>" in body) == (200, True)
    assert _opened(running, "/ovirt-engine/api/clusters")[0] == 401


@pytest.mark.parametrize("collection", ["vms", "disks", "templates", "tags", "clusters", "networks", "jobs", "roles"])
def test_what_is_not_there_is_answered_without_a_word(running: engine_world.Running, api: Any, collection: str) -> None:
    with pytest.raises(ovirtsdk4.NotFoundError) as missing:
        api.service(f"{collection}/{_NOBODY}").get()
    assert (missing.value.code, missing.value.fault) == (404, None)


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Accept": "application/json"}, 406),
        ("GET", {"Accept": "text/html, application/xml;q=0.9"}, 200),
        ("POST", {"Content-Type": "application/json"}, 415),
        ("POST", {"Content-Type": "application/xml"}, 400),
        ("PATCH", {}, 405),
    ],
)
def test_it_speaks_xml_and_says_so(
    running: engine_world.Running, method: str, headers: dict[str, str], status: int
) -> None:
    token = running.connect().authenticate()
    data = b"{}" if method == "POST" else None
    found, _ = _opened(
        running,
        "/ovirt-engine/api/tags",
        data=data,
        method=method,
        headers={"Authorization": f"Bearer {token}", **headers},
    )
    assert found == status


@pytest.mark.parametrize(
    "body",
    [
        b"<tag><name>x</tag>",
        b"<vm><name>x</name></vm>",
        b"<tags/>",
        b'<!DOCTYPE tag [<!ENTITY a "aaaa">]><tag><name>&a;</name></tag>',
        b"<tag>" + b"<parent>" * 100 + b"</parent>" * 100 + b"</tag>",
        b"\xff\xfe<tag/>",
    ],
)
def test_what_cannot_be_read_is_refused(running: engine_world.Running, body: bytes) -> None:
    token = running.connect().authenticate()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/xml"}
    status, said = _opened(running, "/ovirt-engine/api/tags", data=body, method="POST", headers=headers)
    assert (status, b"<fault>" in said) == (400, True)
    assert running.tell(lambda: len(running.engine.inventory.all("tags"))) == 1


def _opened(
    running: engine_world.Running,
    path: str,
    data: bytes | None = None,
    method: str | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes]:
    """Ask without the SDK."""
    url = f"https://{running.served.fqdn}{path}"
    request = urllib.request.Request(url, data, headers or {}, method=method)
    context = engine_world.trusting(running.ca_file)
    try:
        with urllib.request.urlopen(request, context=context, timeout=20) as reply:  # noqa: S310
            return reply.status, reply.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()
