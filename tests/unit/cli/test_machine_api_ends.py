"""How `moorage machine-api run` ends when it is told to: in good order or at once, and with no password left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.unit.cli.test_machine_api import MACHINES, PATIENCE, SPACE, WORKER, Harbour, harbour, machine

__all__ = ["harbour"]


@pytest.mark.needs("kubectl")
def test_a_terminal_that_is_closed_ends_it_in_good_order(harbour: Harbour) -> None:
    with harbour.controllers() as running:
        harbour.put(MACHINES, machine(WORKER))
        running.eventually(lambda: harbour.phase() == "Provisioned", "the credentials are in use")
        assert passwords(harbour)

        running.process.send_signal(signal.SIGHUP)

        assert running.process.wait(PATIENCE) == 0, running.log
    assert not list(harbour.cluster.folder.glob("moorage-*")), "credentials were left behind"
    lease = harbour.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases/moorage-machine-api").got()
    assert not lease["spec"].get("holderIdentity"), "the lease was not given back"


@pytest.mark.needs("kubectl")
def test_whoever_cannot_wait_leaves_no_credentials_behind_either(harbour: Harbour) -> None:
    with harbour.controllers() as running:
        harbour.put(MACHINES, machine(WORKER))
        running.eventually(lambda: harbour.phase() == "Provisioned", "the credentials are in use")
        # The platform does not answer any more, so there is something under way that does not end.
        (harbour.folder / "password").unlink()
        os.mkfifo(harbour.folder / "password")
        harbour.put(MACHINES, machine(f"{WORKER}-2"))
        silent = running.eventually(lambda: held(harbour.folder / "password"), "a call is under way")
        running.process.send_signal(signal.SIGTERM)
        running.eventually(lambda: "stopping" in running.log, "it has heard the first")
        assert passwords(harbour)

        running.process.send_signal(signal.SIGTERM)

        assert running.process.wait(PATIENCE) == 8, running.log
        os.close(silent)
    assert not list(harbour.cluster.folder.glob("moorage-*")), "credentials were left behind"


def passwords(harbour: Harbour) -> list[Path]:
    return list(harbour.cluster.folder.glob("moorage-*/*/password"))


def held(pipe: Path) -> int | None:
    """The other end of a pipe that somebody is about to read, and reads in vain while it is open; else None."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
