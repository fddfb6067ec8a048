"""As much of an API server as a node's network services ask of one; run by itself on a machine of the tests.

``/readyz`` says what the file ``ready`` says, ``/whoami`` whose it is, and nodes are listed to those who show a node's
certificate.
"""

from __future__ import annotations

import http.server
import ssl
import sys
from pathlib import Path

NAME, FOLDER = sys.argv[1], Path(sys.argv[2])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path in ("/readyz", "/healthz"):
            ready = (FOLDER / "ready").read_text() == "ok"
            self._answer(200 if ready else 500, b"ok" if ready else b"not yet")
        elif path == "/whoami":
            self._answer(200, NAME.encode())
        elif path == "/api/v1/nodes":
            subject = dict(pair[0] for pair in (self.connection.getpeercert() or {}).get("subject", ()))
            allowed = subject.get("organizationName") == "system:nodes"
            self._answer(200, (FOLDER / "nodes.json").read_bytes()) if allowed else self._answer(403, b"forbidden")
        else:
            self._answer(404, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        if "readyz" not in self.path and "whoami" not in self.path:
            sys.stderr.write(f"{format % args}\n")


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("0.0.0.0", 6443), Handler)  # noqa: S104 - a namespace of its own
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FOLDER / "server.pem")
    context.load_verify_locations(FOLDER / "ca.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()
