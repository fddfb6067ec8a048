"""A server that answers as it is told, over plain HTTP on an address of its own: what goes over the wire is real."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib import parse

import kubernetes

from moorage.engine import clock as clocks
from moorage.machines.runtime import client


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclasses.dataclass
class Answer:
    """``pieces`` are sent one by one as chunks; what a callable returns is waited for before it is sent."""

    code: int = 200
    body: Any = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    pieces: list[bytes | Callable[[], bytes]] | None = None


class Wire:
    """Answers each request with the next of ``answers``; ``asked`` has what came in."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: list[Answer] = []
        self.asked: list[Asked] = []

    def client(self, token: str = "") -> client.Client:
        configuration = kubernetes.client.Configuration(host=self.url)
        if token:
            configuration.api_key["BearerToken"] = f"Bearer {token}"
        return client.Client(kubernetes.client.ApiClient(configuration), clocks.Clock())

    def will(self, *answers: Answer | dict[str, Any]) -> None:
        self.answers += [each if isinstance(each, Answer) else Answer(body=each) for each in answers]


@contextlib.contextmanager
def running() -> Iterator[Wire]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.wire = Wire(f"http://127.0.0.1:{server.server_address[1]}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.wire  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        wire: Wire = self.server.wire  # type: ignore[attr-defined]
        where = parse.urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        headers = {key.lower(): value for key, value in self.headers.items()}
        wire.asked.append(Asked(self.command, where.path, dict(parse.parse_qsl(where.query)), headers, body))
        answer = wire.answers.pop(0)
        if answer.code == 0:
            self.connection.close()
            self.close_connection = True
            return
        self.send_response(answer.code)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.pieces is None:
            data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            for piece in answer.pieces:
                data = piece if isinstance(piece, bytes) else piece()
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - as http.server calls them

    def log_message(self, *_: object) -> None:
        pass
