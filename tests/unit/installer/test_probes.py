"""Why machines keep silent: what is wrong is told, what cannot be told from here leaves the last finding as it was."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.assets import keys
from moorage.engine import clock as clocks
from moorage.installer import probes
from tests.unit.installer import fake_cluster
from tests.unit.installer.fake_cluster import A, Zone

HOST = "api-int.harbour.example.com"
HEALTH, REQUESTS = "/healthz", "/apis/certificates.k8s.io/v1/certificatesigningrequests?limit=1"
WELL: dict[str, Any] = {HEALTH: {}, REQUESTS: {"items": []}, "/version": {}}


def data_url(content: str) -> str:
    return f"data:text/plain;charset=utf-8;base64,{base64.b64encode(content.encode()).decode()}"


def halves(pem: str) -> tuple[str, str]:
    """Certificate and key of a file that holds both."""
    cut = pem.index("-----BEGIN PRIVATE")
    return pem[:cut], pem[cut:]


AUTHORITY = fake_cluster.authority("the cluster's CA")
STRANGER = fake_cluster.authority("somebody else's CA")


@dataclasses.dataclass
class Quarter:
    """A directory whose configs lead machines to a machine-config server and an API, and the way to both."""

    directory: Path
    clock: clocks.ManualClock
    zone: Zone
    environ: dict[str, str]
    answers: dict[str, Any]
    servers: list[fake_cluster.Api]

    def finding(self, question: Callable[..., probes.Finding]) -> probes.Finding:
        wanted = probes.needs(self.directory, "master")
        assert wanted is not None
        return question(wanted, self.clock, self.environ)

    def prober(self) -> probes.Prober:
        return probes.Prober(self.directory, self.clock, self.environ)


@contextlib.contextmanager
def listening(answers: dict[str, Any], address: str, certificate: str, folder: Path) -> Iterator[fake_cluster.Api]:
    """A TLS listener on a port of its own; it lets strangers in, and clients whom the cluster's CA signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    path = folder / f"listener-{len(list(folder.iterdir()))}.pem"
    path.write_text(certificate)
    context.load_cert_chain(path)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=halves(AUTHORITY)[0])
    with fake_cluster.Api((address, 0), lambda: answers, context) as api, fake_cluster.running(api):
        yield api


@contextlib.contextmanager
def quarter(tmp_path: Path, *, configs: str = "", api: str = "", kubelet: str = "") -> Iterator[Quarter]:
    """All is well, but for the certificates that are given: those two servers show theirs, kubelets show the last."""
    right = fake_cluster.server(AUTHORITY, host=HOST)
    answers, address = dict(WELL), fake_cluster.free_address()
    zone = Zone([(HOST, A, address)])
    with (
        listening(answers, address, configs or right, tmp_path) as first,
        listening(answers, address, api or right, tmp_path) as second,
        fake_cluster.naming(zone) as environ,
    ):
        directory = tmp_path / "cluster"
        directory.mkdir()
        write(directory, first.server_address[1], second.server_address[1], kubelet or fake_cluster.server(AUTHORITY))
        yield Quarter(directory, clocks.ManualClock(), zone, environ, answers, [first, second])


def write(directory: Path, configs: int, api: int, kubelet: str) -> None:
    """What the product would write: the pointer of masters, and the credentials in the bootstrap's own config."""
    certificate, key = halves(kubelet)

    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    kubeconfig = {
        "clusters": [
            {
                "name": "local",
                "cluster": {
                    "server": f"https://{HOST}:{api}",
                    "certificate-authority-data": encoded(halves(AUTHORITY)[0]),
                },
            }
        ],
        "users": [
            {
                "name": "kubelet",
                "user": {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)},
            }
        ],
        "contexts": [{"name": "kubelet", "context": {"cluster": "local", "user": "kubelet"}}],
        "current-context": "kubelet",
    }
    file = {
        "path": "/opt/openshift/auth/kubeconfig-kubelet",
        "contents": {"source": data_url(yaml.safe_dump(kubeconfig))},
    }
    (directory / "bootstrap.ign").write_text(json.dumps({"storage": {"files": [file]}}))
    source = f"https://{HOST}:{configs}/config/master"
    pointer = {
        "config": {"merge": [{"source": source}]},
        "security": {"tls": {"certificateAuthorities": [{"source": data_url(halves(AUTHORITY)[0])}]}},
    }
    (directory / "master.ign").write_text(json.dumps({"ignition": pointer}))


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_what_the_product_writes_leads_where_machines_go(tmp_path: Path, keyring: keys.Keyring) -> None:
    built = fake_cluster.build(tmp_path / "cluster", keyring)

    for role in ("master", "worker"):
        found = probes.needs(built.directory, role)
        assert found is not None
        assert (found.config.host, found.config.port) == (HOST, 22623)
        assert found.config.authority.startswith("-----BEGIN CERTIFICATE-----")
        assert found.kubelet is not None
        assert (found.kubelet.host, found.kubelet.port) == (HOST, 6443)
        assert found.kubelet.client_certificate or found.kubelet.token


def test_where_all_is_well_nothing_is_said(tmp_path: Path) -> None:
    with quarter(tmp_path) as made:
        assert [made.finding(question) for question in probes.QUESTIONS] == ["", ""]
        assert made.prober().sentence("master") == ""
        assert made.servers[1].asked == [REQUESTS, REQUESTS]


@pytest.mark.parametrize(
    ("broken", "question", "words"),
    [
        ({"configs": fake_cluster.server(STRANGER, host=HOST)}, 0, "the CA in master.ign has not signed"),
        ({"configs": fake_cluster.server(AUTHORITY, host="other.example.com")}, 0, f"is not for {HOST}"),
        ({"configs": fake_cluster.server(AUTHORITY, host=HOST, since=-2, until=-1)}, 0, "has expired"),
        ({"api": fake_cluster.server(STRANGER, host=HOST)}, 1, "new machines refuse the API"),
        ({"api": fake_cluster.server(AUTHORITY, host="other.example.com")}, 1, f"is not for {HOST}"),
        ({"api": fake_cluster.server(AUTHORITY, host=HOST, since=-2, until=-1)}, 1, "has expired"),
        ({"kubelet": fake_cluster.server(STRANGER)}, 1, "the API refuses the credentials that new machines are given"),
    ],
)
def test_a_wrong_certificate_is_named_by_the_question_it_concerns(
    broken: dict[str, str], question: int, words: str, tmp_path: Path
) -> None:
    with quarter(tmp_path, **broken) as made:
        findings = [made.finding(each) for each in probes.QUESTIONS]

    assert words in (findings[question] or "")
    assert findings[1 - question] == ""


@pytest.mark.parametrize(
    ("path", "answer", "findings"),
    [
        (HEALTH, 500, ["is not well: it answers 500", ""]),
        (HEALTH, 0, ["hangs up: the balancer has no healthy member behind that port", ""]),
        (REQUESTS, 401, ["", "the API refuses the credentials"]),
        (REQUESTS, 403, ["", "the API refuses the credentials"]),
        (REQUESTS, 0, ["", "it hangs up on them, and answers without them"]),
        (REQUESTS, 503, ["", None]),
        (REQUESTS, 429, ["", None]),
    ],
)
def test_answers_that_tell_something(path: str, answer: int, findings: list[probes.Finding], tmp_path: Path) -> None:
    with quarter(tmp_path) as made:
        made.answers[path] = answer
        found = [made.finding(question) for question in probes.QUESTIONS]

    for words, told in zip(findings, found, strict=True):
        assert told == words if not words else words in str(told)


def test_an_api_that_hangs_up_on_everybody_says_nothing_about_credentials(tmp_path: Path) -> None:
    with quarter(tmp_path) as made:
        made.answers |= {REQUESTS: 0, "/version": 0}

        assert made.finding(probes.kubelet_trouble) is None


def test_an_api_that_hung_up_for_a_moment_says_nothing_about_credentials(tmp_path: Path) -> None:
    class Once(dict[str, Any]):
        """Hangs up on the first who asks for requests, and on nobody after that."""

        def get(self, path: str, default: object = None) -> object:
            first = path == REQUESTS and self.pop("hangs up", False)
            return 0 if first else super().get(path, default)

    with quarter(tmp_path) as made:
        answers = Once(made.answers | {"hangs up": True})
        made.servers[1].script = lambda: answers

        assert made.finding(probes.kubelet_trouble) is None


def test_a_name_that_is_not_there_is_told_once(tmp_path: Path) -> None:
    with quarter(tmp_path) as made:
        made.zone.records.clear()

        told = made.prober().sentence("master")

    assert told.count(f"{HOST} does not resolve") == 1
    assert told.endswith("masters get their config from there")


def test_nodes_that_carry_the_address_themselves_need_no_name_of_ours(tmp_path: Path) -> None:
    with quarter(tmp_path) as scene:
        # Given a pointer that leads to a virtual address, and a name server that has never heard of api-int
        pointer = scene.directory / "master.ign"
        pointer.write_text(pointer.read_text().replace(HOST, scene.servers[0].server_address[0]))
        scene.zone.records.clear()

        wanted = probes.needs(scene.directory, "master")

        # Then machines are known to ask there, under the name that the API's certificate is for
        assert wanted is not None
        assert wanted.kubelet is not None
        assert (wanted.kubelet.host, wanted.kubelet.server_name) == (wanted.config.host, HOST)
        assert scene.finding(probes.kubelet_trouble) == ""


def test_a_name_server_that_fails_proves_nothing(tmp_path: Path) -> None:
    with quarter(tmp_path) as made:
        made.zone.code = 2

        assert made.finding(probes.config_trouble) is None


def test_where_nothing_listens(tmp_path: Path) -> None:
    with quarter(tmp_path) as made:
        write(made.directory, closed_port(), closed_port(), fake_cluster.server(AUTHORITY))
        found = [made.finding(question) for question in probes.QUESTIONS]

    assert "where masters get their config" in str(found[0])
    assert "where new machines ask to be let in" in str(found[1])


def test_what_was_found_is_kept_until_a_better_answer_is_had(tmp_path: Path) -> None:
    with quarter(tmp_path) as made:
        prober = made.prober()
        made.answers[REQUESTS] = 403
        told = prober.sentence("master")
        assert "refuses the credentials" in told

        # Now the API cannot be asked; and then it can, and all is well.
        made.answers[REQUESTS] = 503
        made.clock.advance(probes.EVERY)
        assert prober.sentence("master") == told

        made.answers[REQUESTS] = {"items": []}
        made.clock.advance(probes.EVERY)
        assert prober.sentence("master") == ""


def test_nobody_is_asked_more_than_once_a_minute(tmp_path: Path) -> None:
    with quarter(tmp_path) as made:
        prober = made.prober()
        for _ in range(13):
            prober.sentence("master")
            made.clock.advance(5)

        assert made.servers[1].asked == [REQUESTS] * 2


def test_roles_are_told_apart(tmp_path: Path) -> None:
    with quarter(tmp_path) as made:
        made.answers[HEALTH] = 500
        prober = made.prober()

        assert "is not well" in prober.sentence("master")
        assert prober.sentence("worker") == "", "there is no worker.ign"


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"ignition": {"config": {"merge": []}}}', '{"ignition": 7}', "\x00"],
)
def test_configs_that_tell_nothing_are_passed_over(content: str, tmp_path: Path) -> None:
    (tmp_path / "master.ign").write_text(content)

    assert probes.needs(tmp_path, "master") is None


@pytest.mark.parametrize(
    "source", [7, "data:,%FF%FE", "data:;base64,@", data_url("clusters: ["), data_url("[]"), data_url("users: {}")]
)
def test_without_credentials_only_the_config_is_asked_for(source: object, tmp_path: Path) -> None:
    with quarter(tmp_path) as made:
        file = {"path": "/opt/openshift/auth/kubeconfig-kubelet", "contents": {"source": source}}
        (made.directory / "bootstrap.ign").write_text(json.dumps({"storage": {"files": [file]}}))

        assert [made.finding(question) for question in probes.QUESTIONS] == ["", None]


def test_a_broken_authority_ends_no_wait(tmp_path: Path) -> None:
    with quarter(tmp_path) as made:
        text = (made.directory / "master.ign").read_text()
        pointer = json.loads(text)
        authorities = pointer["ignition"]["security"]["tls"]["certificateAuthorities"]
        authorities[0]["source"] = data_url("-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n")
        (made.directory / "master.ign").write_text(json.dumps(pointer))

        assert "the CA in master.ign cannot be used" in made.prober().sentence("master")
