"""What Ctrl-C means: the first asks the flow to stop in good order, the second ends the process at once.

Python runs signal handlers in the main thread between two bytecodes, which may be while that thread holds the very lock
that a polite stop needs. So the handler does nothing: the interpreter's wake-up pipe tells a watching thread of the
signal, even while the main thread is deep in a C call.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator

from moorage import errors
from moorage.engine import clock as clocks

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _ignore(_number: int, _frame: object) -> None:
    """Take the signal away from its default action; the watcher acts on it."""


def _watch(pipe: socket.socket, stop: Callable[[], None], exit_now: Callable[[int], object]) -> None:
    asked = False
    while numbers := pipe.recv(64):
        for _ in (number for number in numbers if number in SIGNALS):
            if asked:
                exit_now(errors.INTERRUPT)
            asked = True
            stop()


@contextlib.contextmanager
def stops(clock: clocks.Clock, *, notice: Callable[[], None] | None = None) -> Iterator[None]:
    """While inside, SIGINT and SIGTERM stop what runs on ``clock``; ``notice`` is called at the first of them.

    To be entered in the main thread, once. The former handlers are back when the block is left.
    """

    def stop() -> None:
        clock.request_stop()
        if notice is not None:
            notice()

    reading, writing = socket.socketpair()
    writing.setblocking(False)
    watcher = threading.Thread(target=_watch, args=(reading, stop, os._exit), name="interrupt", daemon=True)
    former_pipe = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    former = {number: signal.signal(number, _ignore) for number in SIGNALS}
    watcher.start()
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(former_pipe)
        writing.close()
        watcher.join()
        reading.close()
