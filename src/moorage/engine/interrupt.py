"""What Ctrl-C means: the first asks the flow to stop in good order, the second ends the process at once.

A terminal that is closed asks to stop as well, but is never in a hurry: shell and kernel may both tell of it. Whoever
has chosen to outlive it (``nohup``) does.

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

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _ignore(_number: int, _frame: object) -> None:
    """Take the signal away from its default action; the watcher acts on it."""


def _watch(pipe: socket.socket, stop: Callable[[], None], exit_now: Callable[[int], object]) -> None:
    asked = False
    while numbers := pipe.recv(64):
        for number in (number for number in numbers if number in SIGNALS):
            if not asked:
                asked = True
                stop()
            elif number != signal.SIGHUP:
                exit_now(errors.INTERRUPT)


@contextlib.contextmanager
def stops(
    clock: clocks.Clock, *, notice: Callable[[], None] | None = None, at_once: Callable[[], None] | None = None
) -> Iterator[None]:
    """While inside, SIGINT, SIGTERM and SIGHUP stop what runs on ``clock``; ``notice`` is called at the first of them.

    ``at_once`` is called before the second ends the process: for what must not be left behind, and takes no time.
    To be entered in the main thread, once. The former handlers are back when the block is left.
    """

    def stop() -> None:
        clock.request_stop()
        if notice is not None:
            notice()

    def exit_now(code: int) -> None:
        try:
            if at_once is not None:
                at_once()
        finally:
            os._exit(code)

    reading, writing = socket.socketpair()
    writing.setblocking(False)
    watcher = threading.Thread(target=_watch, args=(reading, stop, exit_now), name="interrupt", daemon=True)
    former_pipe = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    deaf = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else set()
    former = {number: signal.signal(number, _ignore) for number in SIGNALS if number not in deaf}
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
