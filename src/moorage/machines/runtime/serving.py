"""What the process says about itself, on one port: /healthz, /readyz and /metrics.

A check is a function that returns what is wrong, or nothing. A kubelet restarts what is not healthy and sends nobody to
what is not ready; both answers name every check, so that the one who looks sees which.
"""

from __future__ import annotations

import http.server
import logging
import socket
import threading
from collections.abc import Callable, Mapping

from moorage import errors
from moorage.machines.runtime import metrics

Check = Callable[[], str]

METRICS = "text/plain; version=0.0.4; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"

_log = logging.getLogger(__name__)


def address(text: str) -> tuple[str, int]:
    """``host:port``; without a host, all addresses of this machine (``:8081``)."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdecimal() and int(port) < 65536):
        raise errors.ConfigError(f"{text!r} is no address with a port", remedy="write it like 127.0.0.1:8081 or :8081")
    return host.removeprefix("[").removesuffix("]"), int(port)


def family(host: str) -> socket.AddressFamily:
    """Of the address, or of a name's: IPv4 if it has both. Without a host both are served, if this machine can."""
    if not host:
        return socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    found = {each[0] for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    return socket.AF_INET if socket.AF_INET in found else socket.AF_INET6


class Serving:
    """Answers from `start` to `stop`; ``port`` is the one that was free if 0 was asked for."""

    def __init__(self, where: str, healthy: Mapping[str, Check], ready: Mapping[str, Check]) -> None:
        self._host, self.port = address(where)
        self._checks = {"/healthz": healthy, "/livez": healthy, "/readyz": ready}
        self._server: http.server.ThreadingHTTPServer | None = None

    def start(self) -> None:
        try:
            self._server = _server(self._host, self.port, self._answer)
        except OSError as taken:
            raise errors.MoorageError(
                f"nothing can listen on {self._host}:{self.port}: {taken}", remedy="choose another --metrics-address"
            ) from taken
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="serving", daemon=True).start()

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        if path == "/metrics":
            return 200, METRICS, metrics.text()
        checks = self._checks.get(path)
        if checks is None:
            return 404, _TEXT, b"there are /healthz, /readyz and /metrics\n"
        found = {name: check() for name, check in checks.items()}
        lines = [f"[-]{name}: {wrong}" if wrong else f"[+]{name}" for name, wrong in found.items()]
        return (500 if any(found.values()) else 200), _TEXT, "\n".join([*lines, ""]).encode()


def _server(host: str, port: int, answer: Callable[[str], tuple[int, str, bytes]]) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        # Who connects and says nothing does not hold a thread for ever.
        timeout = 10

        def do_GET(self) -> None:
            code, kind, body = answer(self.path.partition("?")[0])
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            _log.debug(format, *args)

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        address_family = family(host)

        def server_bind(self) -> None:
            if not host and self.address_family == socket.AF_INET6:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            super().server_bind()

    return Server((host, port), Handler)
