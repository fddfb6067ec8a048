"""What the client sends and what it makes of each answer, seen on a real connection."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import connection, election, errors, kinds
from tests.unit.machines.runtime import wire as wires

PATIENCE = 20.0
END = b""


@pytest.fixture
def wire() -> Iterator[wires.Wire]:
    with wires.running() as found:
        yield found


def status(code: int, reason: str = "", message: str = "no", **details: Any) -> wires.Answer:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return wires.Answer(code, {**body, "details": details})


def page(names: str, revision: str = "7", more: str = "") -> dict[str, Any]:
    items = [{"metadata": {"name": name}} for name in names]
    return {"metadata": {"resourceVersion": revision, "continue": more}, "items": items}


def line(kind: str, name: str = "a", revision: str = "8") -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"name": name, "resourceVersion": revision}}}).encode()


@pytest.mark.parametrize(
    ("kind", "arguments", "path"),
    [
        (kinds.MACHINE, ("ns", "a"), "/apis/machine.openshift.io/v1beta1/namespaces/ns/machines/a"),
        (kinds.MACHINE, ("ns", "a", "status"), "/apis/machine.openshift.io/v1beta1/namespaces/ns/machines/a/status"),
        (kinds.MACHINE, ("ns",), "/apis/machine.openshift.io/v1beta1/namespaces/ns/machines"),
        (kinds.POD, (), "/api/v1/pods"),
        (kinds.NODE, ("", "n"), "/api/v1/nodes/n"),
        (kinds.NODE, ("ignored", "n"), "/api/v1/nodes/n"),
        (kinds.CSR, ("", "a/b?c"), "/apis/certificates.k8s.io/v1/certificatesigningrequests/a%2Fb%3Fc"),
    ],
)
def test_each_kind_has_its_path(kind: kinds.Kind, arguments: tuple[str, ...], path: str) -> None:
    assert kind.path(*arguments) == path


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (status(400, "BadRequest"), errors.Invalid),
        (status(401, "Unauthorized"), errors.Unauthorized),
        (status(403, "Forbidden"), errors.Forbidden),
        (status(404, "NotFound"), errors.NotFound),
        (status(409, "Conflict"), errors.Conflict),
        (status(409, "AlreadyExists"), errors.AlreadyExists),
        (status(410, "Expired"), errors.Gone),
        (status(422, "Invalid"), errors.Invalid),
        (status(429, "TooManyRequests"), errors.TooManyRequests),
        (status(500, "InternalError"), errors.Unavailable),
        (status(504, "Timeout"), errors.Unavailable),
        (wires.Answer(503, b"<html>a balancer with nobody behind it"), errors.Unavailable),
        (wires.Answer(200, b"<html>not an API"), errors.Unavailable),
        (wires.Answer(200, b"[1]"), errors.Unavailable),
        (wires.Answer(418, b"null"), errors.ApiError),
        (wires.Answer(0), errors.Unavailable),
    ],
)
def test_every_refusal_has_its_type(wire: wires.Wire, answer: wires.Answer, error: type[errors.ApiError]) -> None:
    wire.will(answer)

    with pytest.raises(errors.ApiError) as refusal:
        wire.client().get(kinds.MACHINE, "a", "ns")

    assert type(refusal.value) is error
    assert len(wire.asked) == 1, "nothing is repeated here"


def test_a_refusal_carries_the_words_the_causes_and_when_to_come_back(wire: wires.Wire) -> None:
    causes = [{"reason": "DisruptionBudget", "message": "needs 2 healthy pods"}]
    answer = status(429, "TooManyRequests", "Cannot evict", causes=causes)
    answer.headers["Retry-After"] = "7"
    wire.will(answer)

    with pytest.raises(clients.TooManyRequests) as refusal:
        wire.client().evict("ns", "pod", grace=5)

    assert refusal.value.retry_after == 7
    assert refusal.value.words == "Cannot evict"
    assert refusal.value.because("DisruptionBudget")
    assert not refusal.value.because("Other")
    assert "evict pod ns/pod" in str(refusal.value)
    assert wire.asked[0].path == "/api/v1/namespaces/ns/pods/pod/eviction"
    assert wire.asked[0].body["deleteOptions"] == {"gracePeriodSeconds": 5}


def test_nobody_there_is_unavailable() -> None:
    nobody = wires.Wire("http://127.0.0.1:1").client()

    with pytest.raises(clients.Unavailable, match="out of reach to list nodes"):
        nobody.list(kinds.NODE)


def test_a_list_is_read_page_by_page_and_says_what_its_objects_are(wire: wires.Wire) -> None:
    wire.will(page("ab", more="t1"), page("cd", more="t2"), page("e"))

    found, revision = wire.client().list(kinds.NODE, labels="a=b", limit=2)

    assert [each["metadata"]["name"] for each in found] == [*"abcde"]
    assert revision == "7"
    assert {(each["kind"], each["apiVersion"]) for each in found} == {("Node", "v1")}
    assert [asked.query.get("continue") for asked in wire.asked] == [None, "t1", "t2"]
    assert {(asked.query["limit"], asked.query["labelSelector"]) for asked in wire.asked} == {("2", "a=b")}


@pytest.mark.parametrize("body", [{}, {"items": []}, {"metadata": 7}, {"metadata": {}, "items": []}], ids=str)
def test_an_answer_that_is_no_list_is_not_of_a_kubernetes_api(wire: wires.Wire, body: Any) -> None:
    wire.will(wires.Answer(200, body))

    with pytest.raises(errors.Unavailable, match="is no Kubernetes API"):
        wire.client().list(kinds.NODE)


def test_a_list_whose_moment_is_forgotten_in_the_midst_begins_anew_and_at_last_in_one_piece(wire: wires.Wire) -> None:
    gone = status(410, "Expired")
    wire.will(page("ab", more="t"), gone, page("ab", more="t"), gone, page("xyz", "9"))

    found, revision = wire.client().list(kinds.NODE, limit=2)

    assert [each["metadata"]["name"] for each in found] == [*"xyz"], "no page of an earlier try is left"
    assert revision == "9"
    assert "limit" not in wire.asked[-1].query


def test_a_watch_tells_events_whatever_pieces_they_come_in(wire: wires.Wire) -> None:
    sent = line("ADDED", "a") + b"\n" + line("MODIFIED", "b") + b"\n\n" + line("BOOKMARK", "c") + b"\n"
    pieces: list[Any] = [sent[:10], sent[10:130], sent[130:], END]
    wire.will(wires.Answer(pieces=pieces))

    events = list(wire.client().watch(kinds.MACHINE, "7", "ns", seconds=300))

    assert [(event.type, event.object["metadata"]["name"]) for event in events] == [
        ("ADDED", "a"),
        ("MODIFIED", "b"),
        ("BOOKMARK", "c"),
    ]
    asked = wire.asked[0].query
    assert asked == {"watch": "1", "resourceVersion": "7", "allowWatchBookmarks": "true", "timeoutSeconds": "300"}


def test_an_event_is_told_when_it_comes_and_not_when_more_does(wire: wires.Wire) -> None:
    told = threading.Event()

    def later() -> bytes:
        assert told.wait(PATIENCE)
        return END

    wire.will(wires.Answer(pieces=[line("ADDED") + b"\n", later]))
    watch = iter(wire.client().watch(kinds.MACHINE, "7"))

    assert next(watch).type == "ADDED"
    told.set()
    assert next(watch, None) is None


@pytest.mark.parametrize("code", [410, 504])
def test_an_error_in_the_stream_is_raised_by_its_code(wire: wires.Wire, code: int) -> None:
    error = json.dumps({"type": "ERROR", "object": status(code).body}).encode() + b"\n"
    wire.will(wires.Answer(pieces=[line("ADDED") + b"\n", error, END]))

    with pytest.raises(clients.Gone if code == 410 else clients.Unavailable) as raised:
        list(wire.client().watch(kinds.MACHINE, "7"))
    assert raised.value.code == code


@pytest.mark.parametrize("cut", [b'{"type": "ADD\n', b'{"type": "ADDED"}\n', b"garbage\n"])
def test_a_line_that_makes_no_sense_breaks_the_watch(wire: wires.Wire, cut: bytes) -> None:
    wire.will(wires.Answer(pieces=[cut, END]))

    with pytest.raises(clients.Unavailable):
        list(wire.client().watch(kinds.MACHINE, "7"))


def test_a_watch_that_is_refused_raises_the_refusal(wire: wires.Wire) -> None:
    wire.will(status(403, "Forbidden"))

    with pytest.raises(clients.Forbidden):
        list(wire.client().watch(kinds.MACHINE, "7"))


def test_closing_a_watch_wakes_whoever_waits_for_it(wire: wires.Wire) -> None:
    ended = threading.Event()
    wire.will(wires.Answer(pieces=[line("ADDED") + b"\n", lambda: b"\n" * ended.wait(PATIENCE), END]))
    watch = wire.client().watch(kinds.MACHINE, "7")
    first, events = threading.Event(), []

    def read() -> None:
        for event in watch:
            events.append(event.type)
            first.set()
        events.append("the end")

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert first.wait(PATIENCE)
    began = time.monotonic()
    watch.close()
    reader.join(PATIENCE)
    took = time.monotonic() - began
    ended.set()

    assert not reader.is_alive()
    assert took < 2
    assert events == ["ADDED", "the end"], "being closed is no error"


@pytest.mark.parametrize(
    ("speed", "seconds", "silence"),
    [(1, 600, 180), (1, 100, 130), (1, 10, 90), (60, 600, 90)],
    ids=["three bookmarks", "not long after its end", "a slow server", "a slow server and a fast clock"],
)
def test_a_watch_bears_silence_for_a_while(wire: wires.Wire, speed: float, seconds: float, silence: float) -> None:
    found = clients.Client(wire.client()._api, clocks.Clock(speed)).watch(kinds.MACHINE, "7", seconds=seconds)

    assert found._timeout.read_timeout == silence


def test_a_watch_whose_server_says_nothing_more_ends(wire: wires.Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """A balancer keeps a connection open to a server that is no more."""
    monkeypatch.setattr(clients, "_SHORTEST_SILENCE", 1.0)
    monkeypatch.setattr(clients, "_SILENCE", 1.0)
    first, over = threading.Event(), threading.Event()

    def later() -> bytes:
        first.wait(PATIENCE)
        return line("BOOKMARK") + b"\n"

    def nothing() -> bytes:
        over.wait(PATIENCE)
        return END

    wire.will(wires.Answer(pieces=[line("ADDED") + b"\n", later, nothing]))
    caller = wire.client()
    watch = caller.watch(kinds.MACHINE, "7")
    heard: list[float] = []

    for _ in watch:
        heard.append(watch.heard)
        first.set()
    now = caller.clock.now()
    over.set()

    assert watch.opened
    assert heard[0] < heard[1] == watch.heard, "nothing was heard after the bookmark"
    assert now - watch.heard >= 1.0


def test_writes_go_where_the_object_says_with_who_writes(wire: wires.Wire) -> None:
    body = {"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "3"}, "spec": {}}
    wire.will({}, {}, {}, {}, {}, {})
    client = wire.client()

    client.create(kinds.MACHINE, body)
    client.replace(kinds.MACHINE, body, subresource="status")
    client.patch(kinds.MACHINE, "a", "ns", {"status": {}}, subresource="status")
    client.patch(kinds.MACHINE, "a", "ns", [{"op": "remove", "path": "/x"}], type="json")
    client.patch(kinds.MACHINE, "a", "ns", {"spec": {}}, type="apply", owner="me")
    client.delete(kinds.MACHINE, "a", "ns", uid="u", propagation="Foreground")

    root = "/apis/machine.openshift.io/v1beta1/namespaces/ns/machines"
    assert [(asked.method, asked.path) for asked in wire.asked] == [
        ("POST", root),
        ("PUT", f"{root}/a/status"),
        ("PATCH", f"{root}/a/status"),
        ("PATCH", f"{root}/a"),
        ("PATCH", f"{root}/a"),
        ("DELETE", f"{root}/a"),
    ]
    assert wire.asked[0].body == {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", **body}
    assert [asked.headers.get("content-type") for asked in wire.asked[2:5]] == [
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
    ]
    assert wire.asked[4].query == {"fieldManager": "me", "force": "true"}
    assert wire.asked[2].query == {"fieldManager": "moorage-machine-api"}
    assert wire.asked[5].body["preconditions"] == {"uid": "u"}
    assert wire.asked[5].body["propagationPolicy"] == "Foreground"


def test_a_pod_reads_its_token_again_for_every_call(wire: wires.Wire, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text("")
    around = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    api = connection.in_cluster(tmp_path, around)
    assert api.configuration.host == "https://127.0.0.1:6443"
    api.configuration.host = wire.url
    client = clients.Client(api, wire.client().clock)
    wire.will({}, {})

    client.get(kinds.NODE, "n")
    (tmp_path / "token").write_text("second\n")
    client.get(kinds.NODE, "n")

    assert [asked.headers["authorization"] for asked in wire.asked] == ["Bearer first", "Bearer second"]


def test_a_token_that_is_missing_for_a_moment_is_no_end(wire: wires.Wire, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text("")
    around = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    api = connection.in_cluster(tmp_path, around)
    api.configuration.host = wire.url
    client = clients.Client(api, clocks.Clock())
    candidate = election.Election(client, "lock", "ns", "a", client.clock)

    (tmp_path / "token").unlink()
    assert candidate.stand() is None
    with pytest.raises(errors.Unavailable, match="token"):
        client.get(kinds.NODE, "n")
    (tmp_path / "token").write_text("second\n")
    wire.will(status(404), {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "a"}})

    assert candidate.stand() is not None


def test_outside_of_a_cluster_without_a_kubeconfig_the_next_step_is_told(tmp_path: Path) -> None:
    with pytest.raises(top.MoorageError) as refusal:
        connection.in_cluster(tmp_path, {})
    assert "--kubeconfig" in refusal.value.remedy
    assert refusal.value.exit_code == top.OTHER


@pytest.mark.parametrize("text", ["", "apiVersion: v1\nkind: Config\n", "{"])
def test_a_kubeconfig_that_is_none_is_refused_by_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)

    with pytest.raises(top.MoorageError, match="kubeconfig") as refusal:
        connection.from_kubeconfig(path)
    assert refusal.value.exit_code == top.OTHER


@pytest.mark.parametrize("key", ["ns/a", "a"])
def test_a_key_is_made_and_read(key: str) -> None:
    namespace, name = clients.split_key(key)

    assert clients.key_of({"metadata": {"name": name, "namespace": namespace}}) == key
