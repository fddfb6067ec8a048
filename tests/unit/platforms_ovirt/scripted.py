"""A server that answers as a test tells it to: HTTP over plain sockets, since misbehaving is what it is for."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

CUT = None
"""A reply that is none: the connection is closed instead, after the request was read."""

TOKEN_PATH = "/ovirt-engine/sso/oauth/token"
LOGOUT_PATH = "/ovirt-engine/services/sso-logout"


@dataclasses.dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


Answer = Callable[[Request], bytes | None]


def reply(status: str, body: str = "", kind: str = "application/xml;charset=UTF-8") -> bytes:
    content = body.encode()
    typed = f"Content-Type: {kind}\r\n" if kind else ""
    return f"HTTP/1.1 {status}\r\n{typed}Content-Length: {len(content)}\r\n\r\n".encode() + content


def fault(status: str, detail: str, *, action: bool = False, reason: str = "Operation Failed") -> bytes:
    inner = f"<fault><detail>{detail}</detail><reason>{reason}</reason></fault>"
    return reply(status, f"<action>{inner}</action>" if action else inner)


def api(version: str = "<major>4</major><minor>5</minor>") -> bytes:
    return reply("200 OK", f"<api><product_info><version>{version}</version></product_info></api>")


class Scripted:
    """What came in, and what is answered: sign-ins are granted unless the script says otherwise."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.seen: list[Request] = []
        self.connections = 0
        self.tokens = 0
        self.url = ""

    @property
    def calls(self) -> list[str]:
        """What came in, but for sign-ins and sign-outs."""
        return [str(request) for request in self.seen if request.path not in (TOKEN_PATH, LOGOUT_PATH)]

    @property
    def sign_ins(self) -> int:
        return sum(request.path == TOKEN_PATH for request in self.seen)

    @property
    def sign_outs(self) -> int:
        return sum(request.path == LOGOUT_PATH for request in self.seen)

    def signing_in(self, answer: Answer) -> Answer:
        """The answers of an engine that lets everybody in and out, and answers the rest so."""

        def answered(request: Request) -> bytes | None:
            if request.path == TOKEN_PATH:
                return self.grant()
            return reply("200 OK", "{}", "application/json") if request.path == LOGOUT_PATH else answer(request)

        return answered

    def grant(self) -> bytes:
        self.tokens += 1
        return reply("200 OK", f'{{"access_token": "token-{self.tokens}"}}', "application/json")


@contextlib.contextmanager
def serving(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    script = Scripted(answer)
    listener = socket.create_server(("127.0.0.1", 0))
    open_sockets: set[socket.socket] = set()
    script.url = f"http{'s' if context else ''}://127.0.0.1:{listener.getsockname()[1]}/ovirt-engine/api"

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            open_sockets.add(connection)
            script.connections += 1
            threading.Thread(target=_converse, args=(script, connection, context), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield script
    finally:
        listener.close()
        for each in list(open_sockets):
            each.close()


def _converse(script: Scripted, connection: socket.socket, context: ssl.SSLContext | None) -> None:
    with contextlib.suppress(OSError, ValueError):
        if context is not None:
            connection = context.wrap_socket(connection, server_side=True)
        with connection, connection.makefile("rwb") as stream:
            while (request := _read(stream)) is not None:
                script.seen.append(request)
                answer = script.answer(request)
                if answer is CUT:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                stream.write(answer)
                stream.flush()


def _read(stream: object) -> Request | None:
    line = stream.readline().decode()  # type: ignore[attr-defined]
    if not line:
        return None
    headers: dict[str, str] = {}
    while header := stream.readline().decode().strip():  # type: ignore[attr-defined]
        name, _, value = header.partition(":")
        # As Apache takes it: one that was said twice is one with a comma.
        headers[name.lower()] = ", ".join(filter(None, (headers.get(name.lower()), value.strip())))
    body = stream.read(int(headers.get("content-length", 0))).decode()  # type: ignore[attr-defined]
    method, path, _ = line.split()
    return Request(method, path, headers, body)
