"""How moorage talks: words on stderr, data on stdout, everything in the asset directory's log file.

Colour only on a terminal that wants it (NO_COLOR is respected); anywhere else plain lines that a log collector can
read. The log file is 0600 and always at debug level; secrets must not be handed to it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from moorage.config import findings

LOG = ".moorage.log"
_ORDER = {"debug": 0, "info": 1, "warn": 2, "error": 3}
_COLOURS = {"debug": "2", "info": "36", "warn": "33", "error": "31"}


class Voice:
    """Says things once, in the right place."""

    def __init__(self, level: str = "info", stream: TextIO | None = None) -> None:
        self._least = _ORDER[level]
        self._stream = stream or sys.stderr
        self._coloured = wants_colour(self._stream)
        self._log: TextIO | None = None
        self._unlogged: list[str] = []
        self.log_path: Path | None = None

    def log_to(self, directory: Path) -> None:
        """From now on, and for what was said before, also write to the log in ``directory``, if it can be written."""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(directory / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as problem:
            self.debug(f"no log file in {directory}: {problem.strerror}")
            return
        self._log = os.fdopen(descriptor, "a", encoding="utf-8")
        self.log_path = directory / LOG
        self._record("debug", f"moorage {' '.join(sys.argv[1:])}")
        for line in self._unlogged:
            self._log.write(line)
        self._unlogged.clear()

    def debug(self, text: str) -> None:
        self._say("debug", text)

    def info(self, text: str) -> None:
        self._say("info", text)

    def warn(self, text: str) -> None:
        self._say("warn", text)

    def error(self, text: str, *, remedy: str = "") -> None:
        self._say("error", text)
        if remedy:
            self._say("error", remedy, label="next")

    def finding(self, source: str, finding: findings.Finding) -> None:
        """One problem of an input file, where an editor can jump to it."""
        place = f"{source}:{finding.line}" if finding.line else source
        text = ": ".join(filter(None, (place, finding.field, finding.message)))
        if finding.remedy:
            text += f"\n       {finding.remedy}"
        self._say("error" if finding.severity == "error" else "warn", text)

    def shows(self, level: str) -> bool:
        """Whether what is said at this level reaches the terminal, or the log alone."""
        return _ORDER[level] >= self._least

    @property
    def stream(self) -> TextIO:
        return self._stream

    @contextlib.contextmanager
    def through(self, stream: TextIO) -> Iterator[None]:
        """Speak through another stream for a while: a live view has to know of every line that passes it."""
        before, self._stream = self._stream, stream
        try:
            yield
        finally:
            self._stream = before

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _say(self, level: str, text: str, label: str = "") -> None:
        label = label or {"warn": "warning"}.get(level, level)
        self._record(label, text)
        if not self.shows(level):
            return
        if self._coloured:
            label = f"\x1b[{_COLOURS[level]}m{label}\x1b[0m"
        try:
            self._stream.write(f"{label}: {text}\n")
            self._stream.flush()
        except OSError:
            pass  # stderr is gone; the log still has it

    def _record(self, label: str, text: str) -> None:
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {label}: {text}\n"
        if self._log is None:
            self._unlogged.append(line)
            return
        try:
            self._log.write(line)
            self._log.flush()
        except OSError:
            self._log = None  # a full disk must not hide the error that is being reported


def wants_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
