"""What a process has used, as the kernel counts it, and a line of a report."""

from __future__ import annotations

import dataclasses
import os
import re
import time
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


def busy() -> float:
    """Processor seconds that this machine has spent for anybody."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(int(words[place]) for place in (1, 2, 3, 6, 7)) / TICKS


class Others:
    """What everybody else uses of this machine, from now until it is asked: what takes time can be judged without."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.perf_counter(), busy(), _own()
        #: Processor seconds of processes that are ours, and have been waited for or not.
        self.ours = 0.0

    @property
    def share(self) -> float:
        """Of all cores."""
        spent = busy() - self._busy - self.ours - (_own() - self._own)
        return max(0.0, spent) / (time.perf_counter() - self._began) / (os.cpu_count() or 1)


def _own() -> float:
    return sum(os.times()[:2])


def tell(name: str, figures: str) -> None:
    print(f"{name:50} {figures}", flush=True)


def load() -> str:
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


@dataclasses.dataclass(frozen=True)
class Figure:
    """A ratio that we hold ourselves to: ours against its floor, or its peer, in the same run."""

    name: str
    ours: float
    floor: float
    most: float
    unit: str = "s"
    #: Why it is told and not judged, if it is not.
    unjudged: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.floor

    @property
    def missed(self) -> bool:
        return not self.unjudged and self.ratio > self.most

    def __str__(self) -> str:
        verdict = f"(at most {self.most:g}) {self.unjudged or ('MISSED' if self.missed else 'ok')}"
        return f"{self.ours:.4g} {self.unit} / {self.floor:.4g} {self.unit} = {self.ratio:.2f}  {verdict}"
