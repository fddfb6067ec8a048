"""Shared by all tests: real programs are asked for by name, and never skipped in silence."""

from __future__ import annotations

import datetime
import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest

from moorage.assets import keys, store
from moorage.installer import produce

# How long an example takes says how busy the machine is, and nothing of us; as Hypothesis itself has it for CI.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")

IGNITION = Path("/usr/lib/dracut/modules.d/30ignition/ignition")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kube", choices=("lab", "real"), default="lab", help="what the stories of tests/kube are told to"
    )


def pytest_configure() -> None:
    """Whoever starts the tests in the background has Ctrl-C ignored, and programs under test would inherit that.

    With nohup it is the end of the terminal: we go on to outlive it, but programs get back the default.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Commands that are run within a test turn the log to where they want it; the next test reads it as ever."""
    log = logging.getLogger("moorage")
    former = log.handlers[:], log.propagate, log.level
    yield
    log.handlers[:], log.propagate = former[:2]
    log.setLevel(former[2])


def _there(program: str) -> bool:
    if program == "root":
        return os.geteuid() == 0
    if program.startswith("kube"):
        from tests.kube import real  # the client library it brings takes a second to load

        return real.program(program) is not None
    if program == "coredns":
        from tests.conformance import coredns

        return coredns.path() is not None
    return IGNITION.exists() if program == "ignition" else shutil.which(program) is not None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """`@pytest.mark.needs("openssl")`: a named skip on a user's machine, a failure in CI."""
    wanted = [program for mark in item.iter_markers("needs") for program in mark.args]
    missing = [program for program in wanted if not _there(program)]
    if missing:
        lacking(f"needs {', '.join(missing)}, not to be had here (make conformance installs programs when run as root)")


def lacking(what: str) -> NoReturn:
    """End a test whose real part is not to be had: a user is told so, and in CI it must not pass for a success."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The seeds of what was left to chance are told at the end of every run, not only of one that failed."""
    for report in (each for reports in terminalreporter.stats.values() for each in reports):
        if isinstance(report, pytest.TestReport) and report.when == "call":
            for seed in (value for name, value in report.user_properties if name == "seed"):
                terminalreporter.write_line(f"{report.nodeid}: {seed}")


SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHzV9tPOUGRTXaI2fYzPeBRPJc4QzeQN8yUkZ7rQrM2p somebody@example.com"
PULL_SECRET = '{"auths":{"registry.example.com":{"auth":"c29tZWJvZHk6dmVyeS1zZWNyZXQ="}}}'
INSTALL_CONFIG = f"""\
apiVersion: v1
baseDomain: example.com
metadata:
  name: harbour
platform:
  none: {{}}
pullSecret: '{PULL_SECRET}'
sshKey: {SSH_KEY}
"""


@pytest.fixture
def asset_dir(tmp_path: Path) -> Path:
    """A directory that holds nothing but an install-config."""
    directory = tmp_path / "cluster"
    directory.mkdir()
    (directory / "install-config.yaml").write_text(INSTALL_CONFIG)
    return directory


@pytest.fixture(scope="session")
def keyring() -> keys.Keyring:
    """One set of keys for all tests that do not care which."""
    ring = keys.Keyring({}, keys.KeySource(len(keys.NAMES)))
    ring.to_state()
    return ring


@pytest.fixture
def ready_dir(asset_dir: Path, keyring: keys.Keyring) -> Path:
    """An asset directory whose state holds the session's keys already, so that a run is quick."""
    with store.opened(asset_dir) as directory:
        directory.commit(store.State(kept={"keyring": keyring.to_state()}), {})
    return asset_dir


def make(
    directory: Path,
    targets: Sequence[str] = produce.IGNITION_CONFIGS,
    moment: datetime.datetime | None = None,
    environ: Mapping[str, str] | None = None,
) -> produce.Produced:
    """What `moorage create` does, without the command line."""
    return produce.produce(directory, targets, keys.KeySource(0), environ or {}, moment)


@pytest.fixture(name="make")
def make_fixture() -> Callable[..., produce.Produced]:
    return make
