"""Where lives begin that a trial will end: a program that forks one for each order, so that none starts cold."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def opened(module: str) -> Iterator[subprocess.Popen[str]]:
    """The program ``module``, which reads orders and tells what came of them; it ends with its orders."""
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH", "")))
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    try:
        yield process
    finally:
        assert process.stdin
        assert process.stdout
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()
