"""The Kubernetes reader: one GET, and the right error for each way an API can be unreachable or refuse."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage.assets import keys
from moorage.engine import clock as clocks
from moorage.engine import errors as engine_errors
from moorage.installer import kube, kubeconfig
from tests.unit.installer import fake_cluster
from tests.unit.installer.fake_cluster import API, A, Zone

VERSION: dict[str, fake_cluster.Object | int] = {"/version": {"major": "1"}}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, keyring: keys.Keyring) -> fake_cluster.Built:
    return fake_cluster.build(tmp_path_factory.mktemp("kube") / "cluster", keyring)


def access(built: fake_cluster.Built) -> kubeconfig.Access:
    return kubeconfig.read(built.directory / kubeconfig.FILE)


@contextlib.contextmanager
def reading(built: fake_cluster.Built, *addresses: str, clock: clocks.Clock | None = None) -> Iterator[kube.Reader]:
    """A reader with the directory's own kubeconfig, for whom the API's name leads to ``addresses``."""
    zone = Zone([(API, A, address) for address in addresses])
    with (
        fake_cluster.naming(zone) as environ,
        kube.Reader(access(built), clock or clocks.Clock(), environ) as reader,
    ):
        yield reader


def test_the_kubeconfig_we_write_opens_the_api_we_describe(built: fake_cluster.Built, tmp_path: Path) -> None:
    with fake_cluster.serving(lambda: VERSION, built, tmp_path) as api, reading(built, api.address) as reader:
        assert reader.get("/version") == {"major": "1"}
        assert reader.get("/version") == {"major": "1"}

    assert api.connections == 1, "the connection is used again"
    assert "system:admin" in str(api.shown), "the administrator's certificate was shown"


def test_the_second_address_is_tried_when_nothing_listens_at_the_first(
    built: fake_cluster.Built, tmp_path: Path
) -> None:
    dead = fake_cluster.free_address()
    with fake_cluster.serving(lambda: VERSION, built, tmp_path) as api, reading(built, dead, api.address) as reader:
        assert reader.get("/version") == {"major": "1"}


def test_the_clients_key_is_not_left_on_disk(
    built: fake_cluster.Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    kube.Reader(access(built), clocks.Clock(), {}).close()

    assert list(tmp_path.iterdir()) == []


def test_a_name_that_does_not_exist(built: fake_cluster.Built) -> None:
    with reading(built) as reader, pytest.raises(kube.Unresolved, match=f"{API} does not resolve: .*no such name"):
        reader.get("/version")


def test_nothing_listens(built: fake_cluster.Built) -> None:
    address = fake_cluster.free_address()
    expected = f"nothing listens at {address}:6443, where {API} leads"

    with reading(built, address) as reader, pytest.raises(kube.Refused, match=expected):
        reader.get("/version")


def test_a_listener_that_never_answers(built: fake_cluster.Built) -> None:
    class Impatient(clocks.Clock):
        def socket_timeout(self, seconds: float) -> float:
            return 0.3

    address = fake_cluster.free_address()
    with (
        socket.create_server((address, 6443)),
        reading(built, address, clock=Impatient()) as reader,
        pytest.raises(kube.Unanswered, match="takes connections, but does not answer"),
    ):
        reader.get("/version")


def _strange(built: fake_cluster.Built) -> str:
    return fake_cluster.server(fake_cluster.authority())


def _expired(built: fake_cluster.Built) -> str:
    return fake_cluster.server(built.signer, since=-2, until=-1)


def _early(built: fake_cluster.Built) -> str:
    return fake_cluster.server(built.signer, since=1, until=2)


def _misnamed(built: fake_cluster.Built) -> str:
    return fake_cluster.server(built.signer, host="api.elsewhere.example.com")


@pytest.mark.parametrize(
    ("certificate", "kind", "words"),
    [
        (_strange, kube.UnknownAuthority, "not signed by this cluster's CA: another cluster's"),
        (_expired, kube.Expired, "its certificate has expired"),
        (_early, kube.Expired, "its certificate is not valid yet"),
        (_misnamed, kube.WrongName, f"its certificate is not for {API}"),
    ],
)
def test_a_server_that_cannot_prove_itself(
    certificate: Callable[[fake_cluster.Built], str],
    kind: type[kube.ApiProblem],
    words: str,
    built: fake_cluster.Built,
    tmp_path: Path,
) -> None:
    with (
        fake_cluster.serving(lambda: VERSION, built, tmp_path, certificate(built)) as api,
        reading(built, api.address) as reader,
        pytest.raises(kind, match=f"the API answers, but {words}" if kind is not kube.UnknownAuthority else words),
    ):
        reader.get("/version")

    assert api.asked == [], "nothing was asked of a stranger"


def test_another_clusters_api_refuses_our_certificate(built: fake_cluster.Built, tmp_path: Path) -> None:
    elsewhere = dataclasses.replace(built, clients=fake_cluster.authority().split("-----BEGIN PRIVATE")[0])
    with (
        fake_cluster.serving(lambda: VERSION, elsewhere, tmp_path) as api,
        reading(built, api.address) as reader,
        pytest.raises(kube.ClientDistrusted, match="does not accept the kubeconfig's client certificate"),
    ):
        reader.get("/version")


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, kube.ClientDistrusted, r"does not accept the kubeconfig's credentials \(401: scripted 401\)"),
        (403, kube.Forbidden, r"forbids reading /version \(403: scripted 403\)"),
        (404, kube.Missing, "there is no /version: scripted 404"),
        (429, kube.Troubled, "answers 429 Too Many Requests: scripted 429"),
        (500, kube.Troubled, "answers 500 Internal Server Error: scripted 500"),
        (503, kube.Troubled, "answers 503 Service Unavailable: scripted 503"),
    ],
)
def test_what_the_api_says_no_with(
    status: int, kind: type[kube.ApiProblem], words: str, built: fake_cluster.Built, tmp_path: Path
) -> None:
    with (
        fake_cluster.serving(lambda: {"/version": status}, built, tmp_path) as api,
        reading(built, api.address) as reader,
        pytest.raises(kind, match=words),
    ):
        reader.get("/version")


def test_a_kept_connection_that_died_is_opened_again(built: fake_cluster.Built, tmp_path: Path) -> None:
    answers = iter([{"major": "1"}, 0, {"major": "2"}])

    with (
        fake_cluster.serving(lambda: {"/version": next(answers)}, built, tmp_path) as api,
        reading(built, api.address) as reader,
    ):
        assert reader.get("/version") == {"major": "1"}
        assert reader.get("/version") == {"major": "2"}

    assert api.connections == 2


def test_a_fresh_connection_that_is_cut_is_an_answer(built: fake_cluster.Built, tmp_path: Path) -> None:
    with (
        fake_cluster.serving(lambda: {"/version": 0}, built, tmp_path) as api,
        reading(built, api.address) as reader,
        pytest.raises(kube.Unanswered, match="hangs up"),
    ):
        reader.get("/version")

    assert api.connections == 1


def test_a_wish_to_stop_is_heard(built: fake_cluster.Built) -> None:
    clock = clocks.Clock()
    clock.request_stop()

    with reading(built, clock=clock) as reader, pytest.raises(engine_errors.Interrupted):
        reader.get("/version")
