"""What a process has used, as the kernel counts it, and a line of a report."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Used:
    """Processor seconds so far; bytes of memory now, and at most."""

    cpu: float
    resident: int
    peak: int


def used(pid: int) -> Used:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    found = {key: int(kib) << 10 for key, kib in re.findall(r"^(VmHWM|VmRSS):\s+(\d+) kB", status, re.MULTILINE)}
    return Used((int(words[11]) + int(words[12])) / TICKS, found.get("VmRSS", 0), found.get("VmHWM", 0))


def tell(name: str, figures: str) -> None:
    print(f"{name:50} {figures}", flush=True)


def load() -> str:
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
