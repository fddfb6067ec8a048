"""oVirt in the lab: how close the flow of a cluster comes to its critical path, and what an upload costs.

The flow is measured in cloud time, by the journal's own account. The clock runs fast enough to wait seconds instead of
minutes, and slow enough that the installer's own work does not count for much more than it would in life. An upload is
compared with a single PUT of the same bytes to the same daemon by nothing but `http.client`.

    python tests/bench/ovirt.py
"""

from __future__ import annotations

import contextlib
import http.client
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ovirtsdk4 import types  # noqa: E402 - run as a script, tests are not on the path

from moorage.assets import keys  # noqa: E402
from moorage.engine import clock as clocks  # noqa: E402
from moorage.engine import context, critical, runner  # noqa: E402
from moorage.engine import journal as journals  # noqa: E402
from moorage.installer import aside  # noqa: E402
from moorage.lab import client  # noqa: E402
from moorage.platforms import contract, registry  # noqa: E402
from moorage.platforms.ovirt import client as clients  # noqa: E402
from moorage.platforms.ovirt import qcow2, transfer, upload  # noqa: E402
from tests.lab import ovirt_site, rack  # noqa: E402

SPEED = 20.0
MOST_OF_PATH = 1.05
MIB = 1024**2
SMALL, LARGE = 64 * MIB, 16 * 1024 * MIB
# How much larger a process may be for having sent 16 GiB, and how much slower than a bare PUT.
MOST_MEMORY, MOST_TIME = 1.1, 1.25
SENT, ROUNDS = 128 * MIB, 3

_MEASURED = """
import resource, sys
sys.path[:0] = sys.argv[1:3]
import ovirt
print(ovirt.peak(*sys.argv[3:]))
"""


def report() -> bool:
    """Print the figures; whether all are within what we allow ourselves."""
    assert runner  # loaded beforehand: half a second once, in an installation of an hour
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as name, _lab(Path(name)) as lab:
        folder = Path(name)
        flow = _flow(lab, folder / "site")
        memory = _memory(lab, folder)
        speed = _speed(lab, folder)
        return all((flow, memory, speed))


def tell(name: str, ours: str, floor: str, ratio: float, most: float) -> bool:
    met = ratio <= most
    print(f"{name:50} {ours} / {floor} = {ratio:5.3f}  (at most {most}) {'ok' if met else 'MISSED'}", flush=True)
    return met


def _lab(folder: Path) -> contextlib.AbstractContextManager[client.Lab]:
    return rack.running_lab(folder / "lab", SPEED)


# --- the flow ----------------------------------------------------------------------------------------------------


def _flow(lab: client.Lab, folder: Path) -> bool:
    """Three masters, two workers and a bootstrap, from the image to machines that run."""
    ring = keys.Keyring({}, keys.KeySource(len(keys.NAMES)))
    site = ovirt_site.opened(lab, folder, ring)
    site.build()
    with journals.Journal(site.scene.assets / aside.JOURNAL, create=False) as journal:
        declared = registry.infra("ovirt").declare(site.cluster, site.around)
        (attempt,) = journal.attempts(declared.name)
        path = critical.critical_path(declared.needs, critical.observed(critical.spans(journal.events(declared.name))))
    assert attempt.finished is not None
    # Machines that go on booting would be in the way of what is measured next.
    site.destroy()
    took = (attempt.finished - attempt.started).total_seconds()
    chain = " → ".join(path.names)
    return tell(
        "oVirt flow / its critical path (cloud time)",
        f"{took:6.1f} s",
        f"{path.seconds:6.1f} s ({chain})",
        took / path.seconds,
        MOST_OF_PATH,
    )


# --- uploads -----------------------------------------------------------------------------------------------------


def _surroundings(config: str) -> contract.Surroundings:
    return contract.Surroundings({"OVIRT_CONFIG": config}, clocks.Clock(SPEED), lambda _line: None)


def _context(around: contract.Surroundings) -> context.Context:
    return context.Context(resource="bench", clock=around.clock, deadline=around.clock.deadline(1e6))


def _disk(known: clients.Client, image: qcow2.Image) -> str:
    """A disk for the image, unlocked."""
    domain = known.named("storage_domains", "data")[0]
    wanted = types.Disk(
        name="bench",
        format=types.DiskFormat(image.format),
        sparse=True,
        provisioned_size=image.virtual_size,
        storage_domains=[types.StorageDomain(id=domain.id)],
    )
    made = known.call("make a disk", lambda api: api.disks_service().add(wanted))
    _until(lambda: str(known.call("look", lambda api: api.disks_service().disk_service(made.id).get()).status) == "ok")
    return str(made.id)


def _until(true: Callable[[], bool], patience: float = 60.0) -> None:
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, "the engine does not get there"
        time.sleep(0.1)


def peak(config: str, path: str) -> int:
    """Send an image; the most memory that this process ever had, in KiB."""
    import resource

    around, image = _surroundings(config), qcow2.inspect(Path(path))
    with clients.Client(around) as known:
        upload.upload(known, known.who, _disk(known, image), image, "bench", _context(around))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _memory(lab: client.Lab, folder: Path) -> bool:
    """A large image, most of it holes, beside a small one that is all data: data at its begin, middle and end."""
    found = {}
    for size in (SMALL, LARGE):
        path = folder / f"{size}.raw"
        with path.open("wb") as file:
            file.truncate(size)
            for at in (*range(0, SMALL, MIB), size // 2, size - MIB):
                file.seek(at)
                file.write(os.urandom(MIB))
        words = [sys.executable, "-c", _MEASURED, str(ROOT), str(Path(__file__).parent)]
        config = lab.environment["OVIRT_CONFIG"]
        done = subprocess.run([*words, config, str(path)], check=True, capture_output=True, text=True)
        found[size] = int(done.stdout)
        path.unlink()
    ours, floor = (f"{found[size] / 1024:6.1f} MiB" for size in (LARGE, SMALL))
    ratio = found[LARGE] / found[SMALL]
    return tell("memory: upload of 16 GiB, sparse / of 64 MiB", ours, floor, ratio, MOST_MEMORY)


def _speed(lab: client.Lab, folder: Path) -> bool:
    """The upload's own way to send, and a bare PUT, in turn."""
    path = folder / "data.raw"
    path.write_bytes(os.urandom(SENT))
    image = qcow2.inspect(path)
    around = _surroundings(lab.environment["OVIRT_CONFIG"])
    with clients.Client(around) as known:
        pairs = [(_ours(known, image, around), _bare(known, image, around)) for _ in range(ROUNDS + 1)][1:]
    path.unlink()
    ours, floor = (statistics.median(side) for side in zip(*pairs, strict=True))
    told = [f"{SENT / MIB / seconds:6.1f} MiB/s" for seconds in (ours, floor)]
    return tell("upload / one PUT of the same bytes (time)", *told, ours / floor, MOST_TIME)


def _ours(known: clients.Client, image: qcow2.Image, around: contract.Surroundings) -> float:
    found = _transferring(known, image, around)
    began = time.perf_counter()
    upload._send(found, known.who, image, upload.Sent(image.size), _context(around))
    return _ended(known, found, began)


def _bare(known: clients.Client, image: qcow2.Image, around: contract.Surroundings) -> float:
    found = _transferring(known, image, around)
    url = urllib.parse.urlsplit(found.url)
    trust = ssl.create_default_context(cadata=known.who.ca_bundle)
    began = time.perf_counter()
    connection = http.client.HTTPSConnection(str(url.hostname), url.port, context=trust, blocksize=MIB)
    with contextlib.closing(connection), image.path.open("rb") as file:
        connection.request("PUT", url.path, file, {"Content-Length": str(image.size)})
        reply = connection.getresponse()
        reply.read()
        assert reply.status == 200, reply.status
    return _ended(known, found, began)


def _transferring(known: clients.Client, image: qcow2.Image, around: contract.Surroundings) -> transfer.Transfer:
    disk_id = _disk(known, image)
    # A disk says that it is well before its job lets go of it.
    begun = _context(around).retry(lambda: transfer.begin(known, disk_id, image.format, "bench"))
    _until(lambda: transfer.look(known, begun.id).phase == "transferring")
    return transfer.look(known, begun.id)


def _ended(known: clients.Client, found: transfer.Transfer, began: float) -> float:
    took = time.perf_counter() - began
    transfer.cancel(known, found.id)
    return took


if __name__ == "__main__":
    sys.exit(0 if report() else 1)
