"""Stands in for `moorage` where only its being run matters: it writes down what it was given, and does as it is told.

``STORY`` names a folder: ``starts`` gets a line for each start, ``manner`` tells how to behave, and whether there is a
``ready`` tells whether it is ready.
"""

from __future__ import annotations

import base64
import http.client
import http.server
import json
import os
import signal
import ssl
import sys
import threading
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

STORY = Path(os.environ["STORY"])


def whoami(kubeconfig: Path) -> object:
    """Who the API says we are."""
    document = yaml.safe_load(kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    url = urllib.parse.urlsplit(cluster["server"])
    tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    connection = Connection(url.hostname or "", url.port, context=tls)
    connection.name = cluster["tls-server-name"]
    body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    headers = {"Authorization": f"Bearer {user['token']}", "Content-Type": "application/json"}
    connection.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body, headers)
    return json.loads(connection.getresponse().read())["status"]["userInfo"]


class Connection(http.client.HTTPSConnection):
    """One that knows the server by a name other than its address."""

    name = ""

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self.name)  # type: ignore[attr-defined]


class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if (STORY / "ready").exists() else 500)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nobody asks."""


def main() -> None:
    manner = (STORY / "manner").read_text() if (STORY / "manner").exists() else ""
    if manner == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: done.set())
    kubeconfig = Path(sys.argv[sys.argv.index("--kubeconfig") + 1])
    for word in sys.argv:
        if word.startswith("--metrics-address="):
            host, _, port = word.partition("=")[2].rpartition(":")
            server = http.server.ThreadingHTTPServer((host, int(port)), Health)
            threading.Thread(target=server.serve_forever, daemon=True).start()
    told = {
        "pid": os.getpid(),
        "words": sys.argv[1:],
        "environment": dict(os.environ),
        "who": whoami(kubeconfig),
        "modes": [oct(each.stat().st_mode & 0o777) for each in (kubeconfig, kubeconfig.parent)],
    }
    with (STORY / "starts").open("a") as file:
        file.write(json.dumps(told) + "\n")
    print("it began", flush=True)
    print("it complains", file=sys.stderr, flush=True)
    if manner == "dies":
        sys.exit(3)
    done.wait()
    print("it was asked to end", flush=True)


done = threading.Event()
main()
