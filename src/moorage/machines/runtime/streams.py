"""The lines of an answer that does not end, each as soon as it is there.

A watch is one event a line; what is between client and server cuts that into pieces as it likes, and some of it sends
no chunks at all.
"""

from __future__ import annotations

from collections.abc import Iterator

import urllib3

_PIECE = 64 * 1024


def lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The lines of a body as they come, whatever pieces it is sent in."""
    rest: list[bytes] = []
    for piece in _pieces(response):
        first, newline, behind = piece.partition(b"\n")
        if not newline:
            rest.append(first)
            continue
        yield b"".join([*rest, first])
        *whole, last = behind.split(b"\n")
        yield from whole
        rest = [last] if last else []


def _pieces(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    if getattr(response, "chunked", False):
        yield from response.stream(_PIECE)
        return
    # Some proxies send the body until the connection ends; read() would wait for a full buffer.
    while piece := response.read1(_PIECE):
        yield piece
