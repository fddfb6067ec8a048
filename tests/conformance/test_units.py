"""Every unit of the bootstrap node, read by systemd itself in a root that has what the units point at."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from moorage.assets import bootstrap, releases, values

SYSTEM_UNITS = Path("/usr/lib/systemd/system")

# What the operating system of a node brings; here it only has to exist.
OF_THE_SYSTEM = (
    "NetworkManager.service",
    "coreos-update-ca-trust.service",
    "crio.service",
    "rpc-statd.service",
    "sshd.service",
    "systemd-journal-gatewayd.service",
    "systemd-user-sessions.service",
    "zincati.service",
)
PROGRAMS = ("usr/bin/chcon", "usr/bin/systemctl", "usr/bin/update-ca-trust", "usr/lib/systemd/systemd-journal-gatewayd")


def program(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


def lay_out(root: Path, units: list[values.IgnitionUnit]) -> None:
    """A root with the units, the system's targets and services they refer to, and the programs they start."""
    vendor, own = root / "usr/lib/systemd/system", root / "etc/systemd/system"
    vendor.mkdir(parents=True)
    own.mkdir(parents=True)
    for target in SYSTEM_UNITS.glob("*.target"):
        (vendor / target.name).write_bytes(target.read_bytes())
    for name in OF_THE_SYSTEM:
        (vendor / name).write_text("[Service]\nExecStart=/usr/bin/systemctl\n")
    (vendor / "run-ephemeral.mount").write_text("[Mount]\nWhat=tmpfs\nWhere=/run/ephemeral\n")
    (vendor / "systemd-journal-gatewayd.socket").write_text("[Socket]\nListenStream=19531\n")
    for name in PROGRAMS:
        program(root / name)
    for name in bootstrap.SCRIPTS:
        program(root / "usr/local/bin" / name)
    for unit in units:
        if unit.contents is not None:
            (own / unit.name).write_text(unit.contents)
        for name, contents in unit.dropins:
            (own / f"{unit.name}.d").mkdir(exist_ok=True)
            (own / f"{unit.name}.d" / name).write_text(contents)


def verify(root: Path, names: list[str]) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "verify", "--man=no", "--generators=no", f"--root={root}", *names]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("stream", ["ocp", "okd"])
def test_systemd_has_nothing_to_say(tmp_path: Path, stream: str) -> None:
    units = bootstrap.node_units(releases.choose("amd64", {"MOORAGE_STREAM": stream}))
    lay_out(tmp_path, units)

    done = verify(tmp_path, [unit.name for unit in units])

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (
            "[Unit]\nAfter=a.service\nRequires=missing.service\n[Service]\nExecStart=/usr/local/bin/kubelet.sh\n",
            "missing",
        ),
        ("[Service]\nExecStart=/usr/local/bin/no-such-script.sh\n", "no-such-script.sh"),
        ("[Service]\nExecStrat=/usr/local/bin/kubelet.sh\n", "ExecStrat"),
    ],
)
def test_systemd_would_have_something_to_say(tmp_path: Path, damage: str, complaint: str) -> None:
    lay_out(tmp_path, [values.IgnitionUnit("kubelet.service", damage)])

    done = verify(tmp_path, ["kubelet.service"])

    assert complaint in done.stdout + done.stderr


def test_every_program_that_a_unit_starts_is_installed_or_the_systems() -> None:
    units = bootstrap.node_units(releases.choose("amd64", {}))
    texts = [unit.contents or "" for unit in units] + [contents for unit in units for _, contents in unit.dropins]
    lines = [line for text in texts for line in text.splitlines() if line.startswith(("ExecStart=/", "ExecStartPre=/"))]
    started = {line.partition("=")[2].split()[0] for line in lines}

    assert started <= {f"/usr/local/bin/{name}" for name in bootstrap.SCRIPTS} | {f"/{name}" for name in PROGRAMS}
