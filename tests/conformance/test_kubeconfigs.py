"""kubectl loads every kubeconfig and logs on with it to a server that checks client certificates."""

from __future__ import annotations

import contextlib
import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import ignition

pytestmark = pytest.mark.needs("kubectl")

KUBECONFIGS = {
    # name: (server certificate it meets, host it must name, who it says it is)
    "admin": ("kube-apiserver-lb-server", "api.harbour.example.com", "system:admin"),
    "kubeconfig": ("kube-apiserver-internal-lb-server", "api-int.harbour.example.com", "system:admin"),
    "kubeconfig-kubelet": (
        "kube-apiserver-internal-lb-server",
        "api-int.harbour.example.com",
        "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper",
    ),
    "kubeconfig-loopback": ("kube-apiserver-localhost-server", "localhost", "system:admin"),
}


@pytest.fixture(scope="module")
def node(cluster_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bootstrap node's tls and auth files, and the administrator's kubeconfig, in one folder."""
    folder = tmp_path_factory.mktemp("node")
    for path, content in ignition.embedded(cluster_dir / "bootstrap.ign").items():
        if path.startswith(("/opt/openshift/tls/", "/opt/openshift/auth/")):
            (folder / Path(path).name).write_bytes(content)
    (folder / "admin").write_bytes((cluster_dir / "auth/kubeconfig").read_bytes())
    return folder


@contextlib.contextmanager
def api_server(node: Path, certificate: str) -> Iterator[tuple[int, list[str]]]:
    """An HTTPS server that insists on a client certificate of the cluster; yields its port and who called."""
    callers: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert isinstance(self.connection, ssl.SSLSocket)
            subject = self.connection.getpeercert()["subject"]  # type: ignore[index]
            callers.append(next(value for part in subject for key, value in part if key == "commonName"))  # type: ignore
            body = json.dumps({"major": "1", "minor": "33", "gitVersion": "v1.33.0"}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(node / f"{certificate}.crt", node / f"{certificate}.key")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(node / "kube-apiserver-complete-client-ca-bundle.crt")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1], callers
    finally:
        server.shutdown()
        server.server_close()


def kubectl(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["kubectl", "--kubeconfig", kubeconfig, *words], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("name", KUBECONFIGS)
def test_loads(node: Path, name: str) -> None:
    done = kubectl(node / name, "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")

    assert done.returncode == 0, done.stderr
    assert done.stdout == f"https://{KUBECONFIGS[name][1]}:6443"


@pytest.mark.parametrize("name", KUBECONFIGS)
def test_logs_on(node: Path, name: str) -> None:
    certificate, host, identity = KUBECONFIGS[name]

    with api_server(node, certificate) as (port, callers):
        # Only the address differs from a real run: the name is still checked against the certificate.
        done = kubectl(
            node / name, "--server", f"https://127.0.0.1:{port}", "--tls-server-name", host, "get", "--raw", "/version"
        )

    assert done.returncode == 0, done.stderr
    assert callers
    assert set(callers) == {identity}


def test_the_wrong_server_is_refused(node: Path) -> None:
    with api_server(node, "machine-config-server") as (port, callers):
        done = kubectl(node / "admin", "--server", f"https://127.0.0.1:{port}", "get", "--raw", "/version")

    assert done.returncode != 0
    assert callers == []
