"""What a user of ``platform: none`` brings, made in a lab: machines, a balancer and names, all of it or all but one."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from moorage.lab import client

DOMAIN = "harbour.example.com"
ROOT = "/opt/openshift"
_NOBODYS_PORT = 22699
#: Cloud seconds a second at which stories of whole clusters are told.
USUAL = 60.0
#: Programs for each core that want to run, up to which a lab is as fast as ever; and how much slower it gets at most.
_BEARABLE, _SLOWEST = 2.0, 6.0


@contextlib.contextmanager
def running_lab(folder: Path, speed: float) -> Iterator[client.Lab]:
    """A lab of one's own."""
    lab = client.start(folder, speed)
    try:
        yield lab
    finally:
        client.stop(lab)


@contextlib.contextmanager
def unhurried_lab(folder: Path, speed: float) -> Iterator[client.Lab]:
    """A lab for whole clusters, whose cloud time runs slower where the computer is busy with other things.

    Its nodes and controllers have to keep deadlines of the cloud. A computer that cannot follow would let them miss
    those, and a story would tell of that and of nothing else.
    """
    with running_lab(folder, bearable(speed)) as lab:
        yield lab


def bearable(speed: float) -> float:
    """That speed, or as much less as this computer is busier than it should be, or soon will be."""
    # The load is an average over a minute: of the tests that have just begun beside this one it does not know yet.
    wanting = max(os.getloadavg()[0], int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    busy = wanting / len(os.sched_getaffinity(0))
    return round(speed / min(_SLOWEST, max(1.0, busy / _BEARABLE)), 1)


def unhurried(lab: client.Lab, seconds: float) -> float:
    """Real seconds for what takes so many in a lab at its usual speed."""
    return seconds * max(1.0, USUAL / lab.speed)


@dataclasses.dataclass
class Rack:
    """The machines of one cluster, by role; ``listeners`` and ``names`` may be thinned out before `power_on`."""

    lab: client.Lab
    assets: Path
    masters: int = 3
    workers: int = 0
    listeners: tuple[int, ...] = (6443, 22623, 443, 80)
    names: tuple[str, ...] = ("api", "api-int", "*.apps")
    never_boots: tuple[str, ...] = ()
    #: Listeners that lead to machines on which nobody will ever answer.
    dead_ends: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.plain = client.Plain(self.lab)
        self.addresses: dict[str, str] = {}

    def power_on(self) -> None:
        self.plain.zone("example.com")
        roles = {"bootstrap": "bootstrap"}
        roles |= {f"master-{number}": "master" for number in range(self.masters)}
        roles |= {f"worker-{number}": "worker" for number in range(self.workers)}
        for name, role in roles.items():
            user_data = (self.assets / f"{role}.ign").read_bytes()
            self.addresses[name] = self.plain.machine(name, user_data, power="off")
        front = self.balance(bootstrap=True)
        for name in self.names:
            self.plain.record(f"{name}.{DOMAIN}", front)
        for name in roles:
            if name not in self.never_boots:
                self.plain.call("POST", f"/v1/machines/{name}/on")

    def balance(self, *, bootstrap: bool) -> str:
        """Point the balancer at the masters, and at the bootstrap machine while it is there."""

        def of(*kinds: str) -> list[str]:
            return [address for name, address in self.addresses.items() if name.startswith(kinds)]

        control = of("bootstrap", "master") if bootstrap else of("master")
        check = {"interval": 5, "rise": 1}
        found: dict[int, dict[str, Any]] = {
            6443: {"members": control, "check": {**check, "path": "/readyz"}},
            22623: {"members": control, "check": {**check, "path": "/healthz"}},
            443: {"members": of("worker") or of("master"), "check": check},
            80: {"members": of("worker") or of("master"), "check": check},
        }
        for port in self.dead_ends:
            found[port]["members"] = of("bootstrap", "master")
            found[port]["target"] = _NOBODYS_PORT
        return self.plain.balancer("front", [{"port": port, **found[port]} for port in self.listeners])

    def serves(self) -> bool:
        """Whether an API server can be reached."""
        return any(found["servers"] for found in self.lab.control("GET", "/lab")["clusters"])

    def says(self, name: str, words: str) -> bool:
        """Whether a machine has said that on its console."""
        return words in self.plain.console(name)

    def strike(self, name: str, blow: str) -> None:
        """Kill, start, reboot, partition or heal a machine."""
        self.lab.control("POST", f"/lab/machines/{name}/{blow}")

    def until(self, true: Callable[[], object], what: str, patience: float = 60.0) -> None:
        """Look until it is so, in real time: how long a busy machine takes is nobody's deadline."""
        end = time.monotonic() + unhurried(self.lab, patience)
        while not true():
            assert time.monotonic() < end, f"never: {what}\n{self.consoles()}"
            time.sleep(0.1)

    def moorage(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The program as a user runs it, with what `lab env` prints."""
        return subprocess.run(
            [sys.executable, "-m", "moorage", *words, "--dir", str(self.assets)],
            env={**os.environ, **self.lab.environment, client.FOLDER: str(self.lab.folder)},
            check=False,
            capture_output=True,
            text=True,
            timeout=unhurried(self.lab, 240),
        )

    def consoles(self) -> str:
        """What all machines said: for whoever has to find out why a test failed."""
        return "\n".join(f"== {name}\n{self.plain.console(name)[-3000:]}" for name in self.addresses)


def edit_bootstrap(assets: Path, edit: Callable[[dict[str, bytes]], Mapping[str, bytes]]) -> None:
    """Replace files in bootstrap.ign: ``edit`` gets them by their path below /opt/openshift, and gives the changed."""
    path = assets / "bootstrap.ign"
    config = json.loads(path.read_bytes())
    files: dict[str, dict[str, Any]] = {each["path"]: each for each in config["storage"]["files"]}
    below = {name.removeprefix(f"{ROOT}/"): name for name in files if name.startswith(f"{ROOT}/")}
    contents = {name: _content(files[full]) for name, full in below.items()}
    for name, content in edit(contents).items():
        files[below[name]]["contents"]["source"] = f"data:;base64,{base64.b64encode(content).decode()}"
    path.write_text(json.dumps(config))


def _content(file: dict[str, Any]) -> bytes:
    return base64.b64decode(file["contents"]["source"].partition(",")[2])


def heard(process: subprocess.Popen[str], words: str) -> str:
    """Listen to a program until it says that; all it has said."""
    said = ""
    assert process.stdout
    for line in process.stdout:
        said += line
        if words in line:
            return said
    raise AssertionError(f"it never said {words!r}:\n{said}")


def rest(process: subprocess.Popen[str], patience: float) -> str:
    """What a program says after what was `heard`, until its end; `communicate` would lose what is read ahead."""
    said: list[str] = []

    def read() -> None:
        assert process.stdout
        for line in process.stdout:
            said.append(line)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(patience)
    if reading.is_alive():
        process.kill()
        reading.join(patience)
        raise AssertionError(f"it did not end within {patience:g} s:\n{''.join(said)}")
    process.wait(patience)
    return "".join(said)
