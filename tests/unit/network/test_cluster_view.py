"""Nodes, asked of an API with a kubelet's credentials."""

from __future__ import annotations

import base64
import dataclasses
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.network import cluster_view, settings, view
from tests.kube import pki


def node(name: str, *addresses: str, role: str = "worker", **labels: str) -> dict[str, Any]:
    listed = [{"type": "InternalIP", "address": each} for each in addresses]
    return {
        "metadata": {"name": name, "labels": {f"node-role.kubernetes.io/{role}": "", **labels}},
        "status": {
            "addresses": [{"type": "Hostname", "address": name}, *listed],
            "conditions": [{"type": "Ready", "status": "False"}],
        },
    }


def listed(*items: dict[str, Any]) -> bytes:
    return json.dumps({"kind": "NodeList", "items": items}).encode()


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (node("w", "10.0.0.20"), view.Node("w", "worker", ("10.0.0.20",))),
        (node("m", "10.0.0.10", role="master"), view.Node("m", "master", ("10.0.0.10",))),
        (node("m", "10.0.0.10", role="control-plane"), view.Node("m", "master", ("10.0.0.10",))),
        (
            node("m", "10.0.0.10", role="master", **{"node-role.kubernetes.io/worker": ""}),
            view.Node("m", "master", ("10.0.0.10",)),
        ),
        (node("m", "10.0.0.5", "10.0.0.10", "fd00::10"), view.Node("m", "worker", ("10.0.0.10", "fd00::10"))),
        (node("m", "10.0.0.5"), None),
        ({"metadata": {"name": "new"}}, None),
    ],
)
def test_a_node_is_known_by_role_and_addresses_ready_or_not(item: dict[str, Any], expected: view.Node | None) -> None:
    found = cluster_view.parse(listed(item), ("10.0.0.5",))

    assert found == ((expected,) if expected else ())


def test_the_order_of_the_list_does_not_matter() -> None:
    one, other = node("a", "10.0.0.1"), node("b", "10.0.0.2")

    assert cluster_view.parse(listed(one, other)) == cluster_view.parse(listed(other, one))


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"items": 3}', b"<html>"])
def test_what_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        cluster_view.parse(body)


@pytest.mark.parametrize(
    ("role", "server", "hosts"),
    [
        ("master", "https://api-int.x:6443", ["localhost", "10.0.0.5", "api-int.x"]),
        ("worker", "https://api-int.x:6443", ["10.0.0.5", "api-int.x"]),
        ("bootstrap", "https://localhost:6443", ["localhost"]),
    ],
)
def test_masters_ask_themselves_first_and_nobody_has_to_resolve_a_name(
    wanted: settings.Settings, role: str, server: str, hosts: list[str]
) -> None:
    found = cluster_view.endpoints(wanted, role, server)

    assert [each.host for each in found] == hosts
    assert all(each.name == ("localhost" if each.host == "localhost" else "api-int.x") for each in found)


class Api:
    """A server with TLS that lists nodes to those who show a certificate."""

    def __init__(self) -> None:
        self.authority = pki.Authority()
        self.body, self.status = listed(node("w", "10.0.0.20")), 200
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                subject = dict(pair[0] for pair in self.connection.getpeercert()["subject"])
                outer.asked.append(f"{subject['commonName']} {self.path}")
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]

    def serve(self, folder: Path, name: str = "localhost") -> None:
        pair = self.authority.server("127.0.0.1", names=(name,))
        (folder / "server.pem").write_text(pair.certificate + pair.key)
        (folder / "ca.pem").write_text(self.authority.pair.certificate)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(folder / "server.pem")
        tls.load_verify_locations(folder / "ca.pem")
        tls.verify_mode = ssl.CERT_REQUIRED
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def kubeconfig(
        self, folder: Path, *, inline: bool, authority: pki.Authority | None = None, name: str = "localhost"
    ) -> Path:
        pair = self.authority.client("system:node:m", ["system:nodes"])
        ca = (authority or self.authority).pair.certificate
        (folder / "node.pem").write_text(pair.certificate + pair.key)
        (folder / "ca.crt").write_text(ca)
        user: dict[str, str] = {"client-certificate": "node.pem", "client-key": "node.pem"}
        cluster: dict[str, str] = {"certificate-authority": "ca.crt"}
        if inline:
            encoded = [base64.b64encode(each.encode()).decode() for each in (pair.certificate, pair.key, ca)]
            user = {"client-certificate-data": encoded[0], "client-key-data": encoded[1]}
            cluster = {"certificate-authority-data": encoded[2]}
        cluster["server"] = f"https://{name}:{self.port}"
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.close()


@pytest.mark.parametrize("inline", [False, True], ids=["files", "inline"])
def test_nodes_are_listed_with_the_kubelets_certificate(
    wanted: settings.Settings, api: Api, tmp_path: Path, inline: bool
) -> None:
    api.serve(tmp_path)

    found = cluster_view.nodes(wanted, "bootstrap", api.kubeconfig(tmp_path, inline=inline))

    assert found == (view.Node("w", "worker", ("10.0.0.20",)),)
    assert api.asked == ["system:node:m /api/v1/nodes?resourceVersion=0"]


def test_the_virtual_address_is_asked_under_the_name_that_nobody_has_to_resolve(
    wanted: settings.Settings, api: Api, tmp_path: Path
) -> None:
    api.serve(tmp_path, "api-int.invalid")
    here = dataclasses.replace(wanted, api_vips=("127.0.0.1",))

    found = cluster_view.nodes(here, "worker", api.kubeconfig(tmp_path, inline=False, name="api-int.invalid"))

    assert [each.name for each in found] == ["w"]


def test_a_server_of_another_authority_is_not_believed(wanted: settings.Settings, api: Api, tmp_path: Path) -> None:
    api.serve(tmp_path)
    config = api.kubeconfig(tmp_path, inline=True, authority=pki.Authority())

    with pytest.raises(cluster_view.Unanswered, match="certificate verify failed"):
        cluster_view.nodes(wanted, "bootstrap", config)


def test_a_server_of_another_name_is_not_believed(wanted: settings.Settings, api: Api, tmp_path: Path) -> None:
    api.serve(tmp_path, "elsewhere")

    with pytest.raises(cluster_view.Unanswered, match="Hostname mismatch"):
        cluster_view.nodes(wanted, "bootstrap", api.kubeconfig(tmp_path, inline=True))


@pytest.mark.parametrize(("status", "why"), [(403, "403 Forbidden"), (500, "500 Internal Server Error")])
def test_an_error_is_no_list(wanted: settings.Settings, api: Api, tmp_path: Path, status: int, why: str) -> None:
    api.serve(tmp_path)
    api.status = status

    with pytest.raises(cluster_view.Unanswered, match=f"localhost: {why}"):
        cluster_view.nodes(wanted, "bootstrap", api.kubeconfig(tmp_path, inline=True))


@pytest.mark.parametrize("text", [None, "", "x", "current-context: c\n", "{}", "contexts: ["])
def test_a_kubeconfig_that_is_not_there_yet_is_said(
    wanted: settings.Settings, tmp_path: Path, text: str | None
) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)

    with pytest.raises(cluster_view.Unanswered, match="cannot be used yet"):
        cluster_view.nodes(wanted, "master", path)
