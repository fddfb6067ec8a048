"""The file cloud's server: ``python -m tests.crash.filecloud.server STATE``, one process that outlives installers.

Prints one line of JSON with its addresses, then serves until its standard input is closed. Below /v1 is what clients
see; /admin resets it, orders faults for the n-th call from now, and tells the inventory.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import sys
import threading
import urllib.parse
from pathlib import Path
from typing import Any

from tests.crash.filecloud import cloud as clouds
from tests.crash.filecloud import kube

TOKEN = "open-sesame"
FAULTS = ("429", "500", "503", "silent", "lost", "twice", "stale")


class Station:
    """The cloud, the clusters that run on it, and the faults that are ordered."""

    def __init__(self, path: Path, speed: float) -> None:
        self.network = ""
        self.cloud: clouds.Cloud
        self.clusters: list[kube.Cluster] = []
        self.faults: dict[int, str] = {}
        self.calls = 0
        self._path, self._speed = path, speed

    def listen(self, port: int) -> None:
        # Two servers must not share addresses: the port, which they cannot share either, is made part of them.
        self.network = f"127.{port >> 8}.{port & 255}"
        self.cloud = clouds.Cloud(self._path, self._speed, self.network)

    def fault(self) -> str:
        with self.cloud.turn:
            self.calls += 1
            return self.faults.pop(self.calls, "")

    def act(self, method: str, path: str, body: Any, key: str, *, stale: bool = False) -> tuple[int, dict[str, Any]]:
        address = urllib.parse.urlsplit(path)
        _, _, kind, *rest = address.path.split("/")
        query = dict(urllib.parse.parse_qsl(address.query))
        try:
            with self.cloud.turn:
                match method, kind, rest:
                    case "GET", "limits", []:
                        return 200, self.cloud.limits()
                    case "GET", _, []:
                        return 200, self.cloud.list(kind, query, stale=stale)
                    case "GET", _, [ident]:
                        return 200, self.cloud.get(kind, ident)
                    case "DELETE", _, [ident]:
                        return 202, self.cloud.delete(kind, ident)
                    case "POST", _, []:
                        thing = self.cloud.create(kind, body, key)
                        self._boot(body)
                        return 201, thing
            return 405, {"error": "no such call"}
        except clouds.Refusal as refusal:
            return refusal.status, {"error": str(refusal)}
        finally:
            self._bury()

    def _boot(self, body: dict[str, Any]) -> None:
        """A bootstrap machine starts its cluster's API, once."""
        if "role:bootstrap" not in body["tags"]:
            return
        mark = next(tag for tag in body["tags"] if tag.startswith("cluster:"))
        balancers = self.cloud.ready("balancer", mark)
        if balancers and mark not in [cluster.mark for cluster in self.clusters]:
            cluster = kube.Cluster(self.cloud, mark, balancers[0]["address"], body["spec"]["data"])
            self.clusters.append(cluster)

    def _bury(self) -> None:
        with self.cloud.turn:
            dead = [cluster for cluster in self.clusters if not cluster.alive()]
            self.clusters = [cluster for cluster in self.clusters if cluster not in dead]
        for cluster in dead:
            threading.Thread(target=cluster.close, daemon=True).start()

    def administer(self, path: str, body: Any) -> dict[str, Any]:
        with self.cloud.turn:
            match path:
                case "/admin/reset":
                    self.cloud.reset(body)
                    self.faults, self.calls = {}, 0
                    for cluster in self.clusters:
                        cluster.close()
                    self.clusters.clear()
                case "/admin/settings":
                    self.cloud.settings.update(body)
                case "/admin/faults":
                    self.faults = {self.calls + int(number): kind for number, kind in body.items()}
                case "/admin/things":
                    for kind, thing in body:
                        self.cloud.create(kind, thing, os.urandom(8).hex())
                case "/admin/inventory":
                    return {"inventory": self.cloud.inventory(), "calls": self.calls}
            return {}


def handler(station: Station) -> type[http.server.BaseHTTPRequestHandler]:
    """The HTTP face of a station."""

    class Handler(http.server.BaseHTTPRequestHandler):
        disable_nagle_algorithm = True

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            if self.path.startswith("/admin/"):
                self._reply(200, station.administer(self.path, body))
            elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._reply(401, {"error": "who are you?"})
            else:
                self._serve(body, station.fault())

        def _serve(self, body: Any, fault: str) -> None:
            if fault == "lost":
                return
            if fault in ("429", "500", "503"):
                self._reply(int(fault), {"error": "not now"}, {"Retry-After": "3"} if fault == "429" else {})
                return
            key = self.headers.get("Idempotency-Key", "")
            done = station.act(self.command, self.path, body, key, stale=fault == "stale")
            if fault == "twice":
                done = station.act(self.command, self.path, body, key)
            if fault != "silent":
                self._reply(*done)

        def _reply(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
            text = json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(text)), **(headers or {})}.items():
                self.send_header(name, value)
            # The caller may be dead: that is what it is here for.
            with contextlib.suppress(ConnectionError):
                self.end_headers()
                self.wfile.write(text)

        do_GET = do_POST = do_DELETE = _handle  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            """Silence: the calls are numbered by those who make them."""

    return Handler


def main() -> None:
    station = Station(Path(sys.argv[1]), float(os.environ.get("MOORAGE_CLOCK_SPEED", "1")))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(station))
    server.daemon_threads = True
    port = server.server_address[1]
    station.listen(port)
    names = kube.Names(station.cloud)
    print(json.dumps({"url": f"http://127.0.0.1:{port}", "resolver": f"127.0.0.1:{names.port}"}), flush=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
