"""What a test needs to drive the real program against the file cloud: a server, an asset directory, commands.

The clock runs three hundred times as fast as the world's, so that time-outs of minutes are still seconds for a busy
machine. Keys are made once per session and copied: RSA is most of what an installation costs here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from moorage.assets import keys, store
from moorage.installer import produce
from tests.conftest import INSTALL_CONFIG
from tests.crash.filecloud import server

ROOT = Path(__file__).parents[2]
SPEED = "300"
EPOCH = str(time.time())
PLUGIN = "filecloud=tests.crash.filecloud"
CONFIG = INSTALL_CONFIG.replace("none: {}", "filecloud: {}")

Inventory = list[dict[str, Any]]


def environment(**more: str) -> dict[str, str]:
    """The installer's surroundings, without the cloud's address."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENSHIFT_", "FILECLOUD_"))}
    ours = {
        "PYTHONPATH": str(ROOT),
        "MOORAGE_PLATFORMS": PLUGIN,
        "MOORAGE_CLOCK_SPEED": SPEED,
        "MOORAGE_CLOCK_EPOCH": EPOCH,
    }
    return {**kept, **ours, **more}


@dataclasses.dataclass(frozen=True)
class Cloud:
    """A running file cloud."""

    url: str
    resolver: str

    def admin(self, what: str, body: Any = None) -> dict[str, Any]:
        address = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(str(address.hostname), address.port or 80, timeout=30)
        try:
            connection.request("POST", f"/admin/{what}", json.dumps(body if body is not None else {}))
            return dict(json.loads(connection.getresponse().read()))
        finally:
            connection.close()

    def reset(self, **settings: Any) -> None:
        self.admin("reset", settings)

    def inventory(self) -> Inventory:
        return list(self.admin("inventory")["inventory"])

    def neighbours(self, infra_id: str) -> None:
        """Clusters whose marks contain ours."""
        for other in (f"x-{infra_id}", f"{infra_id}-x"):
            self.neighbour(other)

    def neighbour(self, mark: str) -> None:
        """Things of another cluster, of the same kinds as ours."""
        for kind, spec in (("network", {}), ("image", {}), ("record", {"host": f"api.{mark}"})):
            self.admin("things", [[kind, {"name": f"{mark}-{kind}", "tags": [f"cluster:{mark}"], "spec": spec}]])

    def environ(self) -> dict[str, str]:
        return {"FILECLOUD_URL": self.url, "FILECLOUD_TOKEN": server.TOKEN, "MOORAGE_RESOLVER": self.resolver}


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Cloud]:
    """A file cloud in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.filecloud.server", str(folder / "cloud.json")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    assert process.stdin
    assert process.stdout
    try:
        yield Cloud(**json.loads(process.stdout.readline()))
    finally:
        process.stdin.close()
        process.wait(timeout=10)
        process.stdout.close()


@dataclasses.dataclass(frozen=True)
class Done:
    """A command that ended."""

    code: int
    said: str
    output: str


@dataclasses.dataclass(frozen=True)
class Site:
    """An asset directory and the cloud its cluster goes to."""

    directory: Path
    cloud: Cloud

    @property
    def infra_id(self) -> str:
        return str(json.loads((self.directory / "metadata.json").read_bytes())["infraID"])

    @property
    def journal(self) -> Path:
        return self.directory / ".moorage_journal.sqlite"

    def moorage(self, *words: str, crash: str = "", environ: Mapping[str, str] | None = None) -> Done:
        """The real program, to its end."""
        more = {**self.cloud.environ(), **({"CRASH": crash} if crash else {}), **(environ or {})}
        done = subprocess.run(
            [sys.executable, "-m", "moorage", *words, "--dir", str(self.directory)],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=environment(**more),
            stdin=subprocess.DEVNULL,
            timeout=120,
        )
        return Done(done.returncode, done.stderr, done.stdout)

    def create(self, *words: str, **how: Any) -> Done:
        return self.moorage("create", "cluster", *words, **how)

    def destroy(self, *words: str, **how: Any) -> Done:
        return self.moorage("destroy", "cluster", *words, **how)

    def calls(self, *words: str) -> list[str]:
        """The calls of a command that succeeds."""
        path = self.directory.parent / f"{self.directory.name}.calls"
        path.unlink(missing_ok=True)
        done = self.moorage(*words, environ={"FILECLOUD_CALLS": str(path)})
        assert done.code == 0, done.said
        return path.read_text().splitlines()


def prepared(
    directory: Path, ring: keys.Keyring, config: str = CONFIG, environ: Mapping[str, str] | None = None
) -> Path:
    """An asset directory in which everything but the cluster is there: copies of it install quickly, and alike."""
    directory.mkdir(parents=True)
    (directory / "install-config.yaml").write_text(config)
    with store.opened(directory) as opened:
        opened.commit(store.State(kept={"keyring": ring.to_state()}), {})
    produce.produce(directory, produce.IGNITION_CONFIGS, keys.KeySource(0), environ or {})
    return directory


def copied(template: Path, to: Path) -> Path:
    """A copy, as if nothing had ever been created from it."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(template, to)
    return to
