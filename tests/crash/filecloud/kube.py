"""The cluster that comes up on the file cloud: its API over TLS with the certificates of its own bootstrap.ign.

Only what is asked while waiting for a cluster is answered, from the state of the cloud: the bootstrap is complete once
all masters are ready. The names resolve to what the records say.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import socket
import socketserver
import ssl
import struct
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.crash.filecloud import cloud as clouds

TLS = "/opt/openshift/tls/"
MASTERS = 3


def files_of(user_data: str) -> dict[str, str]:
    """The text files of an Ignition config."""
    return {
        file["path"]: base64.b64decode(file["contents"]["source"].partition(",")[2]).decode(errors="replace")
        for file in json.loads(user_data)["storage"]["files"]
        if "contents" in file
    }


def _conditions(**states: str) -> dict[str, Any]:
    moved = "2026-01-01T00:00:00Z"
    return {"conditions": [{"type": t, "status": s, "lastTransitionTime": moved} for t, s in states.items()]}


class Cluster:
    """One cluster's API, at the address of its balancer, for as long as it has machines."""

    def __init__(self, cloud: clouds.Cloud, mark: str, address: str, user_data: str) -> None:
        self._cloud = cloud
        self.mark = mark
        self._files = files_of(user_data)
        self._server = _listener(address, self._context(), self.answer)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def alive(self) -> bool:
        """Whether anything is left for the API to run on."""
        with self._cloud.turn:
            return any(self.mark in thing["tags"] for thing in self._cloud.things if thing["died"] is None)

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            pair = [Path(folder) / "crt", Path(folder) / "key"]
            for path in pair:
                path.write_text(self._files[f"{TLS}kube-apiserver-lb-server.{path.name}"])
            context.load_cert_chain(*pair)
        context.load_verify_locations(cadata=self._files[f"{TLS}kube-apiserver-complete-client-ca-bundle.crt"])
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def answer(self, path: str) -> dict[str, Any] | None:
        with self._cloud.turn:
            masters = len([m for m in self._cloud.ready("machine", self.mark) if "role:master" in m["tags"]])
        complete = masters >= MASTERS
        at_rest = _conditions(Available="True", Progressing="False", Degraded="False")
        ca = self._files[f"{TLS}kube-apiserver-lb-signer.crt"]
        answers: Mapping[str, dict[str, Any]] = {
            "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
            "/api/v1/namespaces/kube-system/configmaps/bootstrap": {"data": {"status": "complete"} if complete else {}},
            "/apis/operator.openshift.io/v1/etcds/cluster": {
                "status": _conditions(EtcdBootstrapMemberRemoved=str(complete))
            },
            "/apis/config.openshift.io/v1/clusterversions/version": {
                "status": {
                    **_conditions(Available=str(complete), Failing="False", Progressing="False"),
                    "desired": {"version": "4.20.0"},
                }
            },
            "/api/v1/namespaces/openshift-config-managed/configmaps/default-ingress-cert": {
                "data": {"ca-bundle.crt": ca}
            },
            "/apis/config.openshift.io/v1/clusteroperators": {
                "items": [{"metadata": {"name": "ingress"}, "status": at_rest}]
            },
            "/apis/route.openshift.io/v1/namespaces/openshift-console/routes/console": {
                "status": {"ingress": [{"host": "console.apps", **_conditions(Admitted="True")}]}
            },
        }
        return answers.get(path.partition("?")[0])


class _TLSServer(http.server.ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = True


def _listener(address: str, context: ssl.SSLContext, answer: Any) -> _TLSServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            found = answer(self.path)
            content = json.dumps(found if found is not None else {"kind": "Status", "code": 404}).encode()
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Silence: the tests read the installer's log."""

    server = _TLSServer((address, 6443), Handler)
    # The handshake belongs to the connection's own thread: one that never comes must not hold up the others.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server


class Names:
    """A name server that knows the records of the cloud."""

    def __init__(self, cloud: clouds.Cloud) -> None:
        self._cloud = cloud
        names = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                query, channel = self.request
                with contextlib.suppress(OSError):
                    channel.sendto(names.answer(query), self.client_address)

        self._server = socketserver.ThreadingUDPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, query: bytes) -> bytes:
        labels, place = [], 12
        while length := query[place]:
            labels.append(query[place + 1 : place + 1 + length].decode())
            place += 1 + length
        question = query[12 : place + 5]
        (kind,) = struct.unpack("!H", query[place + 1 : place + 3])
        addresses = self._addresses(".".join(labels).lower())
        answers = b"".join(
            struct.pack("!HHHIH", 0xC00C, 1, 1, 1, 4) + socket.inet_aton(address) for address in addresses if kind == 1
        )
        count = len(addresses) if kind == 1 else 0
        flags = 0x8580 if addresses else 0x8583
        return query[:2] + struct.pack("!HHHHH", flags, 1, count, 0, 0) + question + answers

    def _addresses(self, host: str) -> list[str]:
        with self._cloud.turn:
            records = [thing for thing in self._cloud.things if thing["kind"] == "record" and thing["died"] is None]
            return [thing["spec"]["address"] for thing in records if thing["spec"].get("host") == host]
