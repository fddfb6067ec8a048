"""`moorage create install-config` for oVirt as a person types it, at a real terminal, with an engine to talk to."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import selectors
import signal
import stat
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage import errors
from moorage.config import load
from moorage.lab import client
from moorage.platforms import registry
from moorage.platforms.ovirt import config as ovirt
from moorage.platforms.ovirt import credentials
from tests.lab import rack

DOWN, ENTER, CLEAR, BREAK = "\x1b[B", "\r", "\x15", "\x03"
PULL_SECRET = '{"auths":{"registry.example.com":{"auth":"dXNlcjpwYXNz"}}}'
WRONG = "a-wrong-horse"
_PATIENCE = 60.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>()][0-9A-Z]?")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.Lab]:
    with rack.running_lab(tmp_path_factory.mktemp("lab") / "lab", 60.0) as found:
        yield found


class Terminal:
    """A program at a terminal of its own, and the person in front of it."""

    def __init__(self, *words: str, environ: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moorage", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=dict(environ),
            start_new_session=True,
        )
        os.close(theirs)
        self.screen = ""
        self._seen = 0

    def expect(self, words: str) -> None:
        """Wait until these words appear behind those that were waited for before."""
        deadline = time.monotonic() + _PATIENCE
        while (found := self.screen.find(words, self._seen)) < 0:
            ended = not self._read(deadline - time.monotonic())
            assert not ended, f"{words!r} did not appear; the screen:\n{self.screen}"
        self._seen = found + len(words)

    def answer(self, question: str, *keys: str) -> None:
        """Wait for a question, then press keys."""
        self.expect(question)
        self.press(*keys)

    def press(self, *keys: str) -> None:
        os.write(self._ours, "".join(keys).encode())

    def end(self) -> int:
        """Read what is left, until the program ends."""
        deadline = time.monotonic() + _PATIENCE
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(_PATIENCE)

    def until_nobody_asks(self) -> None:
        """Wait until the program has let go of the keyboard, which it holds in raw mode while it asks."""
        deadline = time.monotonic() + _PATIENCE
        while not termios.tcgetattr(self._ours)[3] & termios.ICANON:
            assert time.monotonic() < deadline, self.screen
            self._read(0.01)

    @property
    def echoes(self) -> bool:
        """Whether what is typed is shown by the terminal itself."""
        return bool(termios.tcgetattr(self._ours)[3] & termios.ECHO)

    def close(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._ours)

    def _read(self, patience: float) -> bool:
        """Take in some of the output; False at its end, or when patience is."""
        # Not select(): whoever runs many tests in one process has descriptors beyond what that can name.
        with selectors.DefaultSelector() as watched:
            watched.register(self._ours, selectors.EVENT_READ)
            ready = watched.select(max(patience, 0.0))
        if not ready:
            return False
        try:
            raw = os.read(self._ours, 65536).decode(errors="replace")
        except OSError:  # the other end is closed
            return False
        if "\x1b[6n" in raw:
            # A terminal tells where its cursor is when it is asked.
            os.write(self._ours, b"\x1b[1;1R")
        self.screen += _ESCAPES.sub("", raw)
        return bool(raw)


class Desk:
    """Somebody's computer: a home, a directory for the cluster, a terminal."""

    def __init__(self, lab: client.Lab, folder: Path) -> None:
        self.lab = lab
        self.home = folder / "home"
        self.assets = folder / "cluster"
        self.home.mkdir()
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("MOORAGE_", "OVIRT_"))}
        clock = {name: value for name, value in lab.environment.items() if name.startswith("MOORAGE_")}
        self.environ = {**clean, **clock, "HOME": str(self.home), "TERM": "xterm", "NO_COLOR": "1"}
        self.terminals: list[Terminal] = []

    @property
    def password(self) -> str:
        secret = yaml.safe_load(Path(self.lab.environment["OVIRT_CONFIG"]).read_text())
        return str(secret["ovirt_password"])

    def survey(self, **environ: str) -> Terminal:
        found = Terminal(*("create", "install-config", "--dir", str(self.assets)), environ={**self.environ, **environ})
        self.terminals.append(found)
        return found

    def left(self) -> list[Path]:
        """All files there are, at home and in the cluster's directory."""
        return [
            path for root in (self.home, self.assets) if root.exists() for path in root.rglob("*") if path.is_file()
        ]

    def found(self, kind: str, name: str) -> str:
        things: list[dict[str, Any]] = self.lab.control("GET", "/lab/ovirt")[kind]
        return str(next(thing["id"] for thing in things if thing["name"] == name))


@pytest.fixture
def desk(lab: client.Lab, tmp_path: Path) -> Iterator[Desk]:
    found = Desk(lab, tmp_path)
    yield found
    for terminal in found.terminals:
        terminal.close()


def up_to_the_password(terminal: Terminal, host: str) -> None:
    terminal.answer("SSH public key", ENTER)
    terminal.answer("Platform", DOWN, ENTER)
    terminal.answer("Engine (host name", host, ENTER)
    terminal.expect("SHA-256 fingerprint")
    terminal.answer("Is this certificate to be trusted?", ENTER)
    terminal.answer("User", ENTER)


def commands_with(words: str) -> list[str]:
    """Processes of this computer whose command line or environment, as far as it is ours to read, holds the words."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                if words.encode() in (process / name).read_bytes():
                    found.append(f"{process.name}/{name}")
            except OSError:
                continue  # gone, or somebody else's
    return found


def test_a_person_answers_with_the_keyboard_and_has_a_config_that_validates(desk: Desk) -> None:
    terminal = desk.survey()

    # The engine, with a slip of the pen
    up_to_the_password(terminal, desk.lab.ovirt["fqdn"])
    terminal.answer("Password of admin@internal", WRONG, ENTER)
    terminal.expect("the engine refuses user name or password")
    terminal.answer("Password of admin@internal", desk.password, ENTER)
    terminal.expect("signed in to the oVirt engine")

    # What it has, by arrow keys
    terminal.answer("Cluster", DOWN, ENTER)
    terminal.answer("Storage domain", DOWN, ENTER)
    terminal.answer("Network", DOWN, ENTER)
    terminal.answer("vNIC profile", DOWN, ENTER)
    terminal.answer("Template", ENTER)

    # Addresses, the first of them outside the network just named
    terminal.answer("Network of the machines", CLEAR, "192.168.7.0/24", ENTER)
    terminal.answer("API VIP", "10.0.0.5", ENTER)
    terminal.answer("is outside networking.machineNetwork, 192.168.7.0/24", CLEAR, "192.168.7.2", ENTER)
    terminal.answer("Ingress VIP", "192.168.7.3", ENTER)

    # Until the last answer nothing is written, and the password is nowhere to be seen
    terminal.expect("Base domain")
    assert desk.left() == []
    assert commands_with(desk.password) == []
    terminal.press("example.com", ENTER)
    terminal.answer("Cluster name", "demo", ENTER)
    terminal.answer("Pull secret", PULL_SECRET, ENTER)
    assert terminal.end() == 0, terminal.screen

    # Then the config is sound and is what was chosen
    text = (desk.assets / "install-config.yaml").read_text()
    config, warnings = load.parse(text, registry.stanzas())
    assert [warning.field for warning in warnings] == ["platform.ovirt.networkImage"]
    settings = ovirt.settings(config)
    assert settings.ovirt_cluster_id == desk.found("clusters", "Edge")
    assert settings.ovirt_storage_domain_id == desk.found("storage_domains", "slow")
    assert settings.ovirt_network_name == "storage"
    assert settings.vnic_profile_id == desk.found("vnic_profiles", "storage-trusted")
    assert (settings.template, settings.api_vips, settings.ingress_vips) == ("", ("192.168.7.2",), ("192.168.7.3",))
    assert config.networking.machine_network[0].cidr == "192.168.7.0/24"
    assert (config.name, config.base_domain) == ("demo", "example.com")

    # and the credentials are where every tool of oVirt looks for them, for their owner alone
    file = desk.home / ".ovirt" / "ovirt-config.yaml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    read = credentials.read({"HOME": str(desk.home)})
    assert (read.username, read.password.reveal()) == ("admin@internal", desk.password)
    assert desk.password not in terminal.screen
    assert WRONG not in terminal.screen
    assert desk.password not in text
    holding = {path.name for path in desk.left() if desk.password in path.read_text(errors="replace")}
    assert holding == {"ovirt-config.yaml"}


def test_a_password_typed_before_it_is_asked_for_is_not_shown(desk: Desk) -> None:
    # Given a person who has mistyped, and an engine that takes its time to say so
    late = {"action": "delay", "service": "ovirt", "path": "/ovirt-engine/sso/oauth/token", "seconds": 90, "nth": 1}
    desk.lab.control("POST", "/lab/faults", late)
    terminal = desk.survey()
    up_to_the_password(terminal, desk.lab.ovirt["fqdn"])
    terminal.answer("Password of admin@internal", WRONG, ENTER)

    # When the right one is typed before it is asked for
    terminal.until_nobody_asks()
    terminal.press(desk.password, ENTER)
    terminal.expect("signed in to the oVirt engine")
    terminal.answer("Cluster", BREAK)
    terminal.end()

    # Then nobody saw it, and the terminal is given back as it was
    assert desk.password not in terminal.screen
    assert terminal.echoes


@pytest.mark.parametrize("when", ["Password of admin@internal", "Cluster", "API VIP", "Pull secret"])
def test_who_presses_ctrl_c_leaves_nothing_behind(desk: Desk, when: str) -> None:
    terminal = desk.survey()
    steps = [
        ("Password of admin@internal", (desk.password, ENTER)),
        ("Cluster", (ENTER,)),
        ("Storage domain", (ENTER,)),
        ("Network", (ENTER,)),
        ("Template", (ENTER,)),
        ("Network of the machines", (ENTER,)),
        ("API VIP", ("10.0.0.5", ENTER)),
        ("Ingress VIP", ("10.0.0.6", ENTER)),
        ("Base domain", ("example.com", ENTER)),
        ("Cluster name", ("demo", ENTER)),
        ("Pull secret", ()),
    ]
    up_to_the_password(terminal, desk.lab.ovirt["fqdn"])
    for question, keys in steps:
        if question == when:
            break
        terminal.answer(question, *keys)

    terminal.answer(when, BREAK)

    assert terminal.end() == errors.INTERRUPT, terminal.screen
    assert desk.left() == []


def test_a_file_of_credentials_is_offered_and_used(desk: Desk) -> None:
    terminal = desk.survey(OVIRT_CONFIG=desk.lab.environment["OVIRT_CONFIG"])

    terminal.answer("SSH public key", ENTER)
    terminal.answer("Platform", DOWN, ENTER)
    terminal.answer("Credentials of the engine", ENTER)
    terminal.expect(f"with the credentials of {desk.lab.environment['OVIRT_CONFIG']}")
    terminal.answer("Cluster", BREAK)

    assert terminal.end() == errors.INTERRUPT, terminal.screen
    assert f"admin@internal at {desk.lab.ovirt['fqdn']}" in terminal.screen


def alone(desk: Desk, answers: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The same command with nobody at a terminal."""
    file = desk.home.parent / "answers.yaml"
    file.write_text(answers)
    words = ("create", "install-config", "--dir", str(desk.assets), "--answers", str(file))
    return subprocess.run(
        [sys.executable, "-m", "moorage", *words],
        env={**desk.environ, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


ANSWERS = f"""\
platform: ovirt
cluster_name: demo
base_domain: example.com
pull_secret: '{PULL_SECRET}'
ovirt_cluster: Default
ovirt_storage_domain: data
machine_network: 10.9.0.0/16
api_vip: 10.9.0.2
ingress_vip: 10.9.0.3
ovirt_network_image: registry.example.com/moorage:1
"""


def test_a_file_of_answers_and_one_of_credentials_are_enough(desk: Desk) -> None:
    done = alone(desk, ANSWERS, OVIRT_CONFIG=desk.lab.environment["OVIRT_CONFIG"])

    assert done.returncode == 0, done.stderr
    config, warnings = load.parse((desk.assets / "install-config.yaml").read_text(), registry.stanzas())
    assert warnings == []
    assert ovirt.settings(config).ovirt_storage_domain_id == desk.found("storage_domains", "data")
    assert [path.name for path in desk.left()] == ["install-config.yaml"]


def test_all_missing_answers_are_named_at_once(desk: Desk) -> None:
    done = alone(desk, "platform: ovirt\ncluster_name: demo\n")

    assert done.returncode == errors.INSTALL_CONFIG
    for key in ("base_domain", "pull_secret", "ovirt_engine", "ovirt_password", "api_vip", "ingress_vip"):
        assert f"the answers: {key}: is not answered" in done.stderr
    assert desk.left() == []


def test_a_wrong_password_from_the_environment_is_told_and_not_repeated(desk: Desk) -> None:
    engine = f"ovirt_engine: '{desk.lab.ovirt['fqdn']}'\novirt_ca_file: {desk.lab.ovirt['ca_file']}\n"

    done = alone(desk, ANSWERS + engine, MOORAGE_OVIRT_PASSWORD=WRONG)

    assert done.returncode == errors.INSTALL_CONFIG
    assert "the answers: ovirt_password: " in done.stderr
    assert WRONG not in done.stderr
    assert desk.left() == []


def test_an_engine_that_is_not_there_ends_with_the_code_of_infrastructure(desk: Desk) -> None:
    engine = f"ovirt_engine: '127.0.0.1:1'\novirt_ca_file: {desk.lab.ovirt['ca_file']}\n"

    done = alone(desk, ANSWERS + engine, MOORAGE_OVIRT_PASSWORD="any")

    assert done.returncode == errors.INFRASTRUCTURE
    assert desk.left() == []
