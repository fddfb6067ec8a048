"""A web server with one file, that can be told to misbehave."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator

from moorage.engine import clock as clocks
from moorage.engine import context


class ImageServer:
    """Serves ``content`` under any path; tells which ranges were asked for."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked: list[int] = []
        #: What becomes of the next requests: a status, or the number of bytes after which the line is cut.
        self.statuses: list[int] = []
        self.cuts: list[int] = []
        self.knows_ranges = True
        self.url = ""

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        start = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.asked.append(start)
        if self.statuses:
            request.send_error(self.statuses.pop(0))
            return
        start = start if self.knows_ranges else 0
        if start and start >= len(self.content):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(self.content)}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        rest = self.content[start:]
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(rest)))
        request.end_headers()
        if self.cuts:
            rest = rest[: self.cuts.pop(0)]
        request.wfile.write(rest)
        request.close_connection = True


@contextlib.contextmanager
def serving(content: bytes) -> Iterator[ImageServer]:
    found = ImageServer(content)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}/images/rhcos.qcow2.gz"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def ctx(clock: clocks.Clock | None = None, seconds: float = 3600.0) -> context.Context:
    clock = clock or clocks.ManualClock()
    return context.Context(resource="template", clock=clock, deadline=clock.deadline(seconds, "the template"))
