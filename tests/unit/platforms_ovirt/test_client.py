"""How the client holds its sessions and connections: never a call twice, never a wait without end, never a leak."""

from __future__ import annotations

import datetime
import gc
import ipaddress
import os
import re
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from ovirtsdk4 import services, types

import moorage
from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.engine import context, errors, secret
from moorage.platforms import contract
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import credentials
from tests.unit.platforms_ovirt import scripted

VM = scripted.reply("201 Created", '<vm id="7"><name>x</name></vm>')


def make_vm(api: services.SystemService) -> types.Vm:
    return api.vms_service().add(types.Vm(name="x"))


def look(api: services.SystemService) -> types.Api:
    return api.get()


@pytest.fixture
def engine() -> Iterator[scripted.Scripted]:
    with scripted.serving(lambda _: None) as script:
        script.answer = script.signing_in(lambda got: VM if got.method == "POST" else scripted.api())
        yield script


def surroundings(trace: list[str] | None = None, clock: clocks.Clock | None = None) -> contract.Surroundings:
    return contract.Surroundings({}, clock or clocks.Clock(), trace.append if trace is not None else lambda _: None)


def identity(url: str, bundle: str = "", *, insecure: bool = False) -> credentials.Credentials:
    return credentials.Credentials(url, "admin@internal", secret.Secret("correct horse"), bundle, insecure)


def test_a_call_is_traced_in_words_and_by_its_path(engine: scripted.Scripted) -> None:
    told: list[str] = []
    with clients.Client(surroundings(told), identity(engine.url)) as client:
        client.call("see whether the engine is there", look)
        client.call("look for VMs", lambda api: api.vms_service().list(search="name=a b"))

    assert told == [
        "oVirt: see whether the engine is there: POST /ovirt-engine/sso/oauth/token -> 200",
        "oVirt: see whether the engine is there: GET / -> 200",
        "oVirt: look for VMs: GET /vms?search=name%3Da+b -> 200",
    ]
    assert "horse" not in "".join(told)


def test_the_engine_is_asked_in_english(engine: scripted.Scripted) -> None:
    with clients.Client(surroundings(), identity(engine.url)) as client:
        client.call("look", look)

    assert engine.seen[1].headers["accept-language"] == "en"
    assert engine.seen[1].headers["version"] == "4"


@pytest.mark.parametrize("caller", ["installer", "machine-api"])
def test_the_engine_is_told_once_who_calls_and_in_which_version(engine: scripted.Scripted, caller: str) -> None:
    around = contract.Surroundings({}, clocks.Clock(), lambda _: None, caller)
    with clients.Client(around, identity(engine.url)) as client:
        client.call("look", look)
        client.call("make a VM", make_vm)

    named = rf"moorage-{caller}/{re.escape(moorage.__version__)} \([\w.-]+; pid {os.getpid()}\) PythonSDK/[\d.]+"
    assert [got.method for got in engine.seen] == ["POST", "GET", "POST", "POST"], "in, look, make, out"
    for got in engine.seen:
        assert re.fullmatch(named, got.headers["user-agent"]), f"{got}: and nothing besides"


def test_a_call_carries_what_the_sdk_gives_it(engine: scripted.Scripted) -> None:
    with clients.Client(surroundings(), identity(engine.url)) as client:
        client.call("look", lambda api: api.get(headers={"Correlation-Id": "look-1", "All-Content": None}))

    assert engine.seen[1].headers.keys() >= {"accept", "accept-encoding", "authorization", "host", "version"}
    assert engine.seen[1].headers["correlation-id"] == "look-1"
    assert engine.seen[1].headers["authorization"] == "Bearer token-1"
    assert engine.seen[1].headers["accept"] == engine.seen[1].headers["content-type"] == "application/xml"
    assert "all-content" not in engine.seen[1].headers


def test_an_expired_session_is_renewed_once_and_what_it_refused_is_done_once(engine: scripted.Scripted) -> None:
    made: list[str] = []

    def answer(got: scripted.Request) -> bytes:
        if got.headers["authorization"] == "Bearer token-1":
            return scripted.reply("401 Unauthorized", "<html/>", "text/html")
        made.append(got.body)
        return VM

    engine.answer = engine.signing_in(answer)
    with clients.Client(surroundings(), identity(engine.url)) as client:
        found = client.call("make a VM", make_vm, safe=False)

    assert found.id == "7"
    assert len(made) == 1
    assert engine.sign_ins == 2


def test_a_create_that_was_cut_off_is_not_sent_a_second_time(engine: scripted.Scripted) -> None:
    # On a kept connection libcurl would do so by itself: the engine would make two.
    engine.answer = engine.signing_in(lambda got: None if got.method == "POST" else scripted.api())
    with clients.Client(surroundings(), identity(engine.url)) as client:
        client.call("look", look)
        with pytest.raises(errors.Ambiguous):
            client.call("make a VM", make_vm, safe=False)

    assert engine.calls.count("POST /ovirt-engine/api/vms") == 1


def test_a_replayed_create_that_was_cut_off_is_not_sent_a_third_time(engine: scripted.Scripted) -> None:
    def answer(got: scripted.Request) -> bytes | None:
        if got.method == "GET":
            return scripted.api()
        return scripted.reply("401 No") if got.headers["authorization"] == "Bearer token-1" else None

    engine.answer = engine.signing_in(answer)
    with clients.Client(surroundings(), identity(engine.url)) as client:
        client.call("look", look)
        with pytest.raises(errors.Ambiguous):
            client.call("make a VM", make_vm, safe=False)

    assert engine.calls.count("POST /ovirt-engine/api/vms") == 2


def test_reads_share_a_connection_and_a_broken_one_is_replaced(engine: scripted.Scripted) -> None:
    with clients.Client(surroundings(), identity(engine.url)) as client:
        client.call("look", look)
        client.call("look", look)
        kept = engine.connections
        engine.answer = engine.signing_in(lambda _: None)
        with pytest.raises(errors.Transient):
            client.call("look", look)
        engine.answer = engine.signing_in(lambda _: scripted.api())
        assert client.call("look", look).product_info.version.major == 4

    assert kept == 2  # the sign-in's own, and one for both looks
    assert engine.sign_ins == 1


def four_look(engine: scripted.Scripted) -> None:
    """Four threads of one process look at the engine, and all of them see it."""
    with (
        clients.Client(surroundings(), identity(engine.url)) as client,
        futures.ThreadPoolExecutor(4) as threads,
    ):
        for seen in [threads.submit(client.call, "look", look) for _ in range(4)]:
            seen.result(10)


def test_threads_do_not_wait_for_each_other_and_sign_in_once(engine: scripted.Scripted) -> None:
    together = threading.Barrier(4, timeout=10)

    def answer(_: scripted.Request) -> bytes:
        together.wait()  # a reply comes only when four calls are under way
        return scripted.api()

    engine.answer = engine.signing_in(answer)
    four_look(engine)

    assert engine.sign_ins == 1
    assert engine.sign_outs == 1


def test_an_expired_session_is_renewed_once_for_all_threads(engine: scripted.Scripted) -> None:
    refused = threading.Barrier(4, timeout=10)

    def answer(got: scripted.Request) -> bytes:
        if got.headers["authorization"] == "Bearer token-1":
            refused.wait()
            return scripted.reply("401 No")
        return scripted.api()

    engine.answer = engine.signing_in(answer)
    four_look(engine)

    assert engine.sign_ins == 2


@pytest.mark.parametrize("silent", [scripted.TOKEN_PATH, "/ovirt-engine/api"])
def test_an_engine_that_falls_silent_is_not_waited_for_for_ever(
    engine: scripted.Scripted, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "CALL_SECONDS", 1.0)
    over = threading.Event()
    friendly = engine.answer
    engine.answer = lambda got: over.wait(20) and None if got.path == silent else friendly(got)
    client = clients.Client(surroundings(), identity(engine.url))
    began = time.monotonic()

    with pytest.raises(errors.Transient):
        client.call("look", look)

    assert time.monotonic() - began < 5
    over.set()
    client.close()


def test_closing_signs_out_and_what_comes_later_is_refused(engine: scripted.Scripted) -> None:
    client = clients.Client(surroundings(), identity(engine.url))
    client.call("look", look)

    client.close()
    client.close()

    assert engine.sign_outs == 1
    assert "token=token-1" in engine.seen[-1].body
    with pytest.raises(errors.Interrupted):
        client.call("look", look)


def test_closing_never_raises_and_never_hangs(engine: scripted.Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_FAREWELL_SECONDS", 1.0)
    over = threading.Event()
    friendly = engine.answer
    engine.answer = lambda got: over.wait(20) and None if got.path == scripted.LOGOUT_PATH else friendly(got)
    client = clients.Client(surroundings(), identity(engine.url))
    client.call("look", look)
    began = time.monotonic()

    client.close()

    assert time.monotonic() - began < 5
    over.set()


def test_a_client_that_nobody_closes_signs_out_when_it_goes(engine: scripted.Scripted) -> None:
    client = clients.Client(surroundings(), identity(engine.url))
    client.call("look", look)

    del client
    gc.collect()

    assert engine.sign_outs == 1


def test_without_credentials_the_user_is_told_at_the_first_call(tmp_path: Path) -> None:
    around = contract.Surroundings({"OVIRT_CONFIG": str(tmp_path / "no.yaml")}, clocks.Clock(), lambda _: None)
    client = clients.Client(around)

    with pytest.raises(top.ConfigError, match="there are no oVirt credentials"):
        client.call("look", look)


def test_lists_are_taken_page_by_page_and_names_compared_exactly(
    engine: scripted.Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "PAGE", 2)
    stored = ["a-1", "A-1", "a-10", "a-1", "a-1x"]

    def answer(got: scripted.Request) -> bytes:
        number = int(got.path.rpartition("page+")[2].partition("&")[0])
        items = list(enumerate(stored))[(number - 1) * 2 : number * 2]
        listed = "".join(f'<vm id="{place}"><name>{name}</name></vm>' for place, name in items)
        return scripted.reply("200 OK", f"<vms>{listed}</vms>")

    engine.answer = engine.signing_in(answer)
    with clients.Client(surroundings(), identity(engine.url)) as client:
        found = client.named("vms", "a-1")

    assert [vm.id for vm in found] == ["0", "3"]
    assert len(engine.calls) == 3
    assert "search=name%3D%22a-1%22+page+1" in engine.calls[0]


JOBS = "<jobs>{}</jobs>"
JOB = '<job id="{}"><description>making it</description><status>{}</status></job>'


def waiting(engine: scripted.Scripted, replies: list[list[str]]) -> tuple[float, int]:
    """Cloud seconds and calls that the wait for a job took, with these states seen one after another."""
    left = list(replies)

    def answer(_: scripted.Request) -> bytes:
        states = left.pop(0) if len(left) > 1 else left[0]
        return scripted.reply("200 OK", JOBS.format("".join(JOB.format(n, state) for n, state in enumerate(states))))

    engine.answer = engine.signing_in(answer)
    clock = clocks.ManualClock()
    ctx = context.Context(resource="disk", clock=clock, deadline=clock.deadline(600))
    with clients.Client(surroundings(clock=clock), identity(engine.url)) as client:
        client.wait_job("abc-upload", ctx)
    return clock.now(), len(engine.calls)


def test_a_job_is_over_when_all_its_parts_are(engine: scripted.Scripted) -> None:
    assert waiting(engine, [["started"], ["finished", "started"], ["finished", "finished"]]) == (10.0, 3)


def test_a_job_that_the_engine_has_forgotten_is_over_after_a_doubt(engine: scripted.Scripted) -> None:
    seconds, _ = waiting(engine, [[]])

    assert 10 <= seconds <= 15


def test_a_job_that_appears_late_is_waited_for(engine: scripted.Scripted) -> None:
    assert waiting(engine, [[], ["started"], ["finished"]]) == (10.0, 3)


def test_a_failed_job_is_told_in_the_engines_words(engine: scripted.Scripted) -> None:
    with pytest.raises(errors.Terminal, match="making it"):
        waiting(engine, [["started"], ["failed"]])


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ssl.SSLContext]:
    """A CA's certificate, and what a server with a certificate of that CA for 127.0.0.1 needs."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    file.write_bytes(pem + plain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return pem.decode(), context


def test_the_engine_is_trusted_by_the_bundle_of_the_credentials(trusted: tuple[str, ssl.SSLContext]) -> None:
    bundle, context = trusted
    with scripted.serving(lambda _: None, context) as script:
        script.answer = script.signing_in(lambda _: scripted.api())
        with clients.Client(surroundings(), identity(script.url, bundle)) as client:
            assert client.call("look", look).product_info.version.minor == 5
        with clients.Client(surroundings(), identity(script.url, insecure=True)) as client:
            assert client.call("look", look).product_info.version.minor == 5


def test_an_engine_of_another_authority_never_gets_the_password(trusted: tuple[str, ssl.SSLContext]) -> None:
    _, context = trusted
    with scripted.serving(lambda _: None, context) as script:
        client = clients.Client(surroundings(), identity(script.url))
        with pytest.raises(errors.Unusable, match="not trusted") as raised:
            client.call("look", look)

    assert "ovirt_ca_bundle" in raised.value.remedy
    assert script.seen == []


def test_all_who_have_the_same_surroundings_share_a_session_until_they_turn_to_others(
    engine: scripted.Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "read", lambda _environ: identity(engine.url))
    here, there = surroundings(), surroundings()

    clients.shared(here).call("look", look)
    clients.shared(here).call("look", look)
    assert (engine.sign_ins, engine.sign_outs) == (1, 0)

    clients.shared(there)
    gc.collect()
    assert (engine.sign_ins, engine.sign_outs) == (1, 1)

    closed = clients.shared(here)
    closed.call("look", look)
    closed.close()
    assert clients.shared(here) is not closed, "who was closed is of no use to anybody"
