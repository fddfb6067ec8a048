"""Every way in which an engine, or what stands before it, can say no: which failure it becomes, and with what words."""

from __future__ import annotations

from collections.abc import Callable

import ovirtsdk4
import pytest
from ovirtsdk4 import services, types

from moorage.engine import clock as clocks
from moorage.engine import errors, secret
from moorage.platforms import contract
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import credentials, faults
from tests.unit.platforms_ovirt import scripted

PASSWORD = "correct horse battery"
HTML = "<html><body>Service Unavailable</body></html>"


def make_vm(api: services.SystemService) -> types.Vm:
    return api.vms_service().add(types.Vm(name="x"))


def start_vm(api: services.SystemService) -> None:
    api.vms_service().vm_service("1").start()


def look(api: services.SystemService) -> types.Api:
    return api.get()


def failure(
    answer: Callable[[scripted.Request], bytes | None],
    use: Callable[[services.SystemService], object],
    *,
    safe: bool,
) -> errors.PlatformFailure:
    """What a call fails with if the engine signs everybody in and then answers so."""
    with scripted.serving(lambda _: None) as script:
        script.answer = script.signing_in(answer)
        client = made(script)
        with pytest.raises(errors.PlatformFailure) as raised:
            client.call("do the deed", use, safe=safe)
        client.close()
    return raised.value


def made(
    script: scripted.Scripted, trace: Callable[[str], None] = lambda _: None, clock: clocks.Clock | None = None
) -> clients.Client:
    who = credentials.Credentials(script.url, "admin@internal", secret.Secret(PASSWORD))
    return clients.Client(contract.Surroundings({}, clock or clocks.Clock(), trace), who)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "CALL_SECONDS", 1.0)


SPOKEN = [
    ("409 Conflict", "[Cannot run VM: VM is locked. Please try again in a few minutes.]", errors.Transient),
    (
        "409 Conflict",
        "[Cannot remove VM. Related operation is currently in progress. Please try again later.]",
        errors.Transient,
    ),
    ("409 Conflict", "[Cannot edit Virtual Disk: Disk is locked. Please try again later.]", errors.Transient),
    (
        "409 Conflict",
        "[Cannot run VM: The following disks are locked: a, b. Please try again in a few minutes.]",
        errors.Transient,
    ),
    (
        "409 Conflict",
        "[Cannot add VM. The VM name is already in use, please choose a unique name and try again.]",
        errors.AlreadyExists,
    ),
    ("400 Bad Request", "[Cannot add Affinity Group. Affinity Group name already exists.]", errors.AlreadyExists),
    ("409 Conflict", "[The specified Tag name already exists.]", errors.AlreadyExists),
    ("409 Conflict", "[Cannot add VM. Template name x-rhcos already used.]", errors.AlreadyExists),
    ("409 Conflict", "[Cannot add VM. Low disk space on Storage Domain data.]", errors.Exhausted),
    (
        "409 Conflict",
        "[Cannot run VM. There is no host that satisfies current scheduling constraints. See below for details:, The "
        "host a did not satisfy internal filter VmAffinityGroups because it matched negative affinity rules x.]",
        errors.Exhausted,
    ),
    ("409 Conflict", "[Cannot remove Template. Template is being used by the following VMs: a.]", errors.Conflict),
    ("409 Conflict", "[Cannot stop VM. VM is not running.]", errors.Conflict),
    ("400 Bad Request", "[size must be greater than or equal to 1]", errors.Terminal),
    ("400 Bad Request", "[Size must be between 1 and 50. Attribute: correlationId]", errors.Terminal),
    ("400 Bad Request", "[Cannot add VM. The given name is too long.]", errors.Terminal),
    ("400 Bad Request", "[Can not add VM. The given name contains special characters.]", errors.Terminal),
    ("400 Bad Request", "[Network error during communication with the Host.]", errors.Conflict),
    ("400 Bad Request", "[Internal Engine Error]", errors.Conflict),
    ("400 Bad Request", "[Resource unavailable]", errors.Conflict),
    ("403 Forbidden", "[User is not authorized to perform this action.]", errors.Unauthorized),
    ("400 Bad Request", "query execution failed due to insufficient permissions.", errors.Unauthorized),
    ("404 Not Found", "Entity not found: Vm: id=1", errors.NotFound),
    ("500 Internal Server Error", "[Internal Engine Error]", errors.Transient),
    ("503 Service Unavailable", "The engine starts", errors.Transient),
]


@pytest.mark.parametrize("action", [False, True])
@pytest.mark.parametrize(("status", "detail", "kind"), SPOKEN)
def test_the_engines_words_decide(status: str, detail: str, kind: type, action: bool) -> None:
    found = failure(
        lambda _: scripted.fault(status, detail, action=action), start_vm if action else make_vm, safe=False
    )

    assert type(found) is kind
    assert found.words == detail.strip("[]")
    assert "do the deed" in found.message


@pytest.mark.parametrize(("status", "detail", "kind"), SPOKEN)
def test_who_can_be_helped_is_told_how(status: str, detail: str, kind: type) -> None:
    found = failure(lambda _: scripted.fault(status, detail), make_vm, safe=False)

    if isinstance(found, errors.Transient) and "engine" not in found.message:
        assert found.retry_after == faults.LOCKED_FOR
    if "Low disk space" in detail:
        assert "ovirt_storage_domain_id" in found.remedy
    if "negative affinity" in detail:
        assert "enforcing: false" in found.remedy
    if kind is errors.Unauthorized:
        assert "role" in found.remedy


@pytest.mark.parametrize("reason", ["Incomplete parameters", "Request syntactically incorrect.", "Invalid value"])
def test_a_request_that_makes_no_sense_never_will(reason: str) -> None:
    found = failure(lambda _: scripted.fault("400 Bad Request", "Vm [name]", reason=reason), make_vm, safe=False)

    assert type(found) is errors.Terminal


def test_a_failure_without_a_word_is_told_by_what_is_known_of_it() -> None:
    found = failure(lambda _: scripted.fault("400 Bad Request", "[]"), make_vm, safe=False)

    assert type(found) is errors.Conflict
    assert found.told() == "do the deed: the engine failed to do it: Operation Failed"
    assert "engine.log" in found.remedy


def page(status: str, body: str = HTML, kind: str = "text/html") -> Callable[[scripted.Request], bytes]:
    return lambda _: scripted.reply(status, body, kind)


@pytest.mark.parametrize(
    ("answer", "reading", "writing"),
    [
        pytest.param(page("503 Service Unavailable"), errors.Transient, errors.Transient, id="Apache, engine down"),
        pytest.param(page("503 Busy", kind=""), errors.Transient, errors.Transient, id="untyped page"),
        pytest.param(page("503 Busy", "", ""), errors.Transient, errors.Transient, id="no body"),
        pytest.param(page("404 Not Found"), errors.Transient, errors.Transient, id="not deployed yet"),
        pytest.param(page("502 Proxy Error"), errors.Transient, errors.Ambiguous, id="Apache lost the engine"),
        pytest.param(page("504 Gateway Timeout"), errors.Transient, errors.Ambiguous, id="Apache gave up"),
        pytest.param(page("200 OK"), errors.Transient, errors.Ambiguous, id="a page where a VM should be"),
        pytest.param(
            page("200 OK", "<vm><name>x", "application/xml"), errors.Transient, errors.Ambiguous, id="half of a reply"
        ),
        pytest.param(page("404 Not Found", "", ""), errors.NotFound, errors.NotFound, id="the engine's bare 404"),
        pytest.param(lambda _: None, errors.Transient, errors.Ambiguous, id="connection cut"),
        pytest.param(
            lambda _: b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: 900\r\n\r\n<api>",
            errors.Transient,
            errors.Ambiguous,
            id="never the rest",
        ),
    ],
)
def test_what_is_not_the_engines_answer(
    answer: Callable[[scripted.Request], bytes | None], reading: type, writing: type
) -> None:
    assert type(failure(answer, look, safe=True)) is reading
    assert type(failure(answer, make_vm, safe=False)) is writing


def test_nobody_listens() -> None:
    with scripted.serving(lambda _: None) as script:
        pass
    client = made(script)

    with pytest.raises(errors.Transient, match="cannot be reached"):
        client.call("make a VM", make_vm, safe=False)


@pytest.mark.parametrize(
    ("status", "body", "kind", "expected"),
    [
        (
            "401 Unauthorized",
            '{"error_code": "access_denied", "error": "Cannot authenticate user"}',
            "json",
            errors.Unauthorized,
        ),
        ("400 Bad Request", '{"error": "invalid_grant", "error_description": "bad"}', "json", errors.Unauthorized),
        ("400 Bad Request", '{"error_code": "server_error", "error": "no database"}', "json", errors.Transient),
        ("503 Service Unavailable", HTML, "html", errors.Transient),
        ("500 Internal Server Error", '{"error": "boom"}', "json", errors.Transient),
        ("200 OK", "{}", "json", errors.Transient),
        ("200 OK", "{", "json", errors.Transient),
    ],
)
def test_signing_in_fails(status: str, body: str, kind: str, expected: type) -> None:
    mime = {"json": "application/json", "html": "text/html"}[kind]
    with scripted.serving(lambda _: scripted.reply(status, body, mime)) as script:
        client = made(script)
        with pytest.raises(errors.PlatformFailure) as raised:
            client.call("make a VM", make_vm, safe=False)

    assert type(raised.value) is expected
    assert script.calls == []


def attempts(script: scripted.Scripted, client: clients.Client, expected: type[errors.PlatformFailure]) -> int:
    """How often the engine was asked to sign somebody in, when three calls needed it."""
    before = script.sign_ins
    for _ in range(3):
        with pytest.raises(expected):
            client.call("look", look)
    return script.sign_ins - before


def test_a_password_that_was_refused_is_not_tried_until_the_account_is_locked() -> None:
    refused = scripted.reply("400 Bad", '{"error_code": "access_denied", "error": "no"}', "application/json")
    with scripted.serving(lambda _: refused) as script:
        clock = clocks.ManualClock()
        client = made(script, clock=clock)

        assert attempts(script, client, errors.Unauthorized) == 1
        for pause in (600.0, 1200.0, 2400.0, 4800.0, 7200.0, 7200.0):
            clock.advance(pause - 1)
            assert attempts(script, client, errors.Unauthorized) == 0, "too early"
            clock.advance(1)
            assert attempts(script, client, errors.Unauthorized) == 1

        # Somebody has given the account this password, or unlocked it.
        clock.advance(7200.0)
        script.answer = script.signing_in(page("401 No"))
        assert attempts(script, client, errors.Unauthorized) >= 1
        assert script.tokens >= 1


@pytest.mark.parametrize("body", ['{"error_code": "server_error", "error": "no database"}', "{"])
def test_an_engine_that_cannot_sign_anybody_in_is_asked_again(body: str) -> None:
    with scripted.serving(lambda _: scripted.reply("400 Bad", body, "application/json")) as script:
        assert attempts(script, made(script), errors.Transient) == 3


def test_a_session_that_ends_at_once_twice_is_not_asked_for_a_third_time() -> None:
    with scripted.serving(lambda _: None) as script:
        script.answer = script.signing_in(page("401 No"))
        client = made(script)
        with pytest.raises(errors.Unauthorized):
            client.call("look", look)

    assert script.calls == ["GET /ovirt-engine/api"] * 2


def test_an_engine_that_repeats_the_password_does_not_make_us_repeat_it() -> None:
    body = f'{{"error_code": "access_denied", "error": "wrong: {PASSWORD}"}}'
    traced: list[str] = []
    with scripted.serving(lambda _: scripted.reply("401 No", body, "application/json")) as script:
        client = made(script, trace=traced.append)
        with pytest.raises(errors.Unauthorized) as raised:
            client.call("look", look)

    shown = f"{raised.value} {raised.value.told()} {raised.value.remedy} {traced} {client!r} {vars(client)}"
    assert "horse" not in shown


def test_the_sdk_has_no_errors_that_we_do_not_know() -> None:
    def known(kind: type) -> bool:
        return kind.__module__ == "ovirtsdk4" or kind.__module__.startswith("moorage.")

    assert all(known(kind) for kind in ovirtsdk4.Error.__subclasses__())
    assert isinstance(faults.translate(ovirtsdk4.Error("odd"), "x", safe=True), errors.Transient)
