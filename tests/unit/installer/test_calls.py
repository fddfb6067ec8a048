"""The log has every call, on one line, without a secret in any spelling."""

from __future__ import annotations

import base64

import pytest

from moorage.engine import secret
from moorage.installer import calls


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def debug(self, text: str) -> None:
        self.lines.append(text)


def traced(line: str, *secrets: str) -> str:
    log = Log()
    calls.tracer(log, [secret.Secret(value) for value in secrets])(line)
    (written,) = log.lines
    return written


def test_a_harmless_call_is_logged_as_it_is() -> None:
    line = 'POST /v1/networks {"name": "harbour-x7k2p"} -> 201 in 0.3 s, token bucket 3 of 10'

    assert traced(line) == f"call: {line}"


@pytest.mark.parametrize("spelling", ["s3cr/t pass", "s3cr%2Ft%20pass", base64.b64encode(b"s3cr/t pass").decode()])
def test_the_runs_own_secrets_are_blotted_out(spelling: str) -> None:
    assert spelling not in traced(f"GET /login?x={spelling}&y=1", "s3cr/t pass")


@pytest.mark.parametrize(
    "line",
    [
        "GET /v1 Authorization: Bearer HUSH.HUSH-HUSH",
        "GET /v1\nAuthorization: HUSHHUSH\nAccept: */*",
        "> X-Auth-Token: HUSHHUSH",
        '-> 200 {"access_token":"HUSHHUSH","expires":3600}',
        r'-> 200 {"password": "a\\HUSHHUSH"}',
        "POST /token grant=x&apikey=HUSHHUSH&scope=all",
        "-> 200 <user><password>HUSHHUSH</password></user>",
        "-----BEGIN RSA PRIVATE KEY-----\nHUSHHUSH\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nHUSHHUSH cut off",
        "Set-Cookie: session=HUSHHUSH; Secure",
    ],
)
def test_what_looks_like_a_credential_is_blotted_out(line: str) -> None:
    written = traced(line)

    assert "HUSH" not in written
    assert secret.BLOT in written


def test_a_reply_cannot_write_log_lines_of_its_own() -> None:
    written = traced("-> 500 oops\n2026-01-01T00:00:00Z error: all is lost\r\x1b[2J")

    assert "\n" not in written
    assert "\x1b" not in written
    assert "oops\\n2026" in written


def test_an_endless_reply_is_cut_after_the_secrets_are_gone() -> None:
    written = traced("x" * (calls.LONGEST - 3) + "topsecret" + "y" * 5000, "topsecret")

    assert "tops" not in written
    assert "more characters" in written
    assert len(written) < calls.LONGEST + 100
