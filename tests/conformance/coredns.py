"""Where the real CoreDNS is: `tools/real-coredns` knows."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def path() -> str | None:
    found = subprocess.run([ROOT / "tools/real-coredns", "--where"], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None
