"""Runs a command of moorage again and again, as whoever looks after a pod does: a life that was killed is followed by
the next. All is loaded once, and every life is a fork of that, so that it begins at once.
"""

from __future__ import annotations

import os
import signal
import sys

import kubernetes  # noqa: F401 - loaded for all lives
import prometheus_client  # noqa: F401

from moorage.cli import main as command
from moorage.machines import assembly  # noqa: F401
from moorage.machines.runtime import connection  # noqa: F401


def main() -> int:
    while True:
        life = os.fork()
        if life == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os._exit(command.main(sys.argv[1:]))

        def end(*_: object, life: int = life) -> None:
            os.kill(life, signal.SIGKILL)
            os.waitpid(life, 0)
            os._exit(0)

        signal.signal(signal.SIGTERM, end)
        _, status = os.waitpid(life, 0)
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
