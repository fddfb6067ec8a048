"""A wire to an API server that can be cut, muted, or lose what comes back, with TLS and all going through untouched.

What is lost is lost as in life: the server has done what it was asked, or has not, and nobody can tell.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from types import TracebackType
from urllib import parse

_PIECE = 64 * 1024


class Wire:
    """Listens on the server's own address (whose certificate names it) and passes on what it gets."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server((host, 0), backlog=64)
        self.url = f"https://{host}:{self._listener.getsockname()[1]}"
        # Whether new connections are refused; whether answers are held back; how likely one is lost with its wire.
        self.down = False
        self.muted = threading.Event()
        self.losing = 0.0
        self._chance = random.Random(7)
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break all connections that there are."""
        with self._guard:
            ends = list(self._open)
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.down = True
        self.muted.clear()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.down:
                near.close()
                continue
            try:
                far = socket.create_connection(self._target, timeout=10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._guard:
                self._open |= {near, far}
            threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        try:
            while piece := source.recv(_PIECE):
                if is_answer and self._lost():
                    break
                target.sendall(piece)
        except OSError:
            pass
        finally:
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            if is_answer:
                with self._guard:
                    self._open -= {source, target}
                source.close()

    def _lost(self) -> bool:
        while self.muted.is_set():
            threading.Event().wait(0.01)
        return self._chance.random() < self.losing


class Wires:
    """All wires of a story, until its end."""

    def __init__(self, url: str) -> None:
        where = parse.urlsplit(url)
        assert where.hostname
        assert where.port
        self._host, self._port = where.hostname, where.port
        self._made: list[Wire] = []

    def add(self) -> Wire:
        self._made.append(Wire(self._host, self._port))
        return self._made[-1]

    def __enter__(self) -> Wires:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for wire in self._made:
            wire.close()
