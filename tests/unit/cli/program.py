"""The real program, in a process of its own: what a user types, what is printed, and the exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def moorage(*words: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command without a terminal, and without a home in which it could find or leave anything."""
    return subprocess.run(
        [sys.executable, "-m", "moorage", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HOME": "/nonexistent", **environ},
        stdin=subprocess.DEVNULL,
    )
