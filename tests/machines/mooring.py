"""A cluster that is said to stand on the pier, and the controllers of its machines in processes of their own."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from moorage.assets import objects
from moorage.lab.nodes import payload
from moorage.machines import assembly
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import errors, kinds
from tests.kube import calls
from tests.kube import cluster as clusters
from tests.kube import objects as kube_objects
from tests.machines import pier_side

SPACE: Final = assembly.NAMESPACE
INFRA: Final = "berth-x7k2p"
INFRASTRUCTURES: Final = "/apis/config.openshift.io/v1/infrastructures"
#: Cloud seconds in a real one. An instance that was asked for is waited for for 60 of them: longer than calls take.
SPEED: Final = 20.0
ROOT: Final = Path(__file__).parents[2]
#: Real seconds for a story to come about on a busy machine.
PATIENCE: Final = 60.0
LEASE_LOST: Final = "this process leads no longer"


def settle_in(
    cluster: clusters.Cluster, platform: str = "pier", infra_id: str = INFRA, user_data: str = "{pointer}"
) -> None:
    """Have all that the controllers read; what another story has brought already is there."""
    admin = cluster.admin
    for definition in payload.definitions():
        if str(definition["metadata"]["name"]).startswith("infrastructures."):
            _put(admin, kube_objects.DEFINITIONS, definition)
    calls.eventually(lambda: admin.get(INFRASTRUCTURES).code == 200, "infrastructures are served")
    _put(admin, "/api/v1/namespaces", kube_objects.namespace(SPACE))
    install_config = yaml.safe_dump({"platform": {platform: {"api_vips": ["10.0.0.250"]}}})
    _put(
        admin,
        "/api/v1/namespaces/kube-system/configmaps",
        objects.config_map("kube-system", "cluster-config-v1", {"install-config": install_config}),
    )
    _put(
        admin,
        f"/api/v1/namespaces/{SPACE}/secrets",
        objects.secret(SPACE, "worker-user-data", {"userData": user_data}),
    )
    _put(admin, INFRASTRUCTURES, objects.cluster_config("Infrastructure", spec={"platformSpec": {"type": "External"}}))
    status = {"infrastructureName": infra_id, "platformStatus": {"type": "External"}, "platform": "External"}
    admin.patch(f"{INFRASTRUCTURES}/cluster/status", {"status": status}).got()


def _put(admin: calls.Caller, path: str, body: Any) -> None:
    answer = admin.post(path, body)
    assert answer.code in (201, 409), answer


def machine(name: str) -> dict[str, Any]:
    labels = {"machine.openshift.io/cluster-api-cluster": INFRA}
    value = {"userDataSecret": {"name": "worker-user-data"}}
    return {
        "metadata": {"name": name, "namespace": SPACE, "labels": labels},
        "spec": {"providerSpec": {"value": value}},
    }


@dataclasses.dataclass
class Mooring:
    """The cluster, the platform that it stands on, and a folder for what the controllers say."""

    cluster: clusters.Cluster
    client: clients.Client
    pier: pier_side.Pier
    folder: Path
    speed: float = SPEED

    def __post_init__(self) -> None:
        self._epoch = time.time()

    def add(self, *names: str) -> None:
        for name in names:
            self.client.create(kinds.MACHINE, machine(name))

    def delete(self, *names: str) -> None:
        for name in names:
            self.client.delete(kinds.MACHINE, name, SPACE)

    def phases(self) -> dict[str, str]:
        found, _ = self.client.list(kinds.MACHINE, SPACE)
        return {each["metadata"]["name"]: (each.get("status") or {}).get("phase", "") for each in found}

    def have(self, phase: str, *names: str, tend: Callable[[], None] = lambda: None) -> None:
        """Wait until these are all machines there are, and all in one phase; ``tend`` to what may need it meanwhile."""
        wanted = dict.fromkeys(names, phase)
        until = time.monotonic() + PATIENCE * max(1.0, SPEED / self.speed)
        while (found := self.phases()) != wanted:
            tend()
            assert time.monotonic() < until, f"{found}; {self.said()}"
            time.sleep(0.05)

    def holder(self) -> str:
        """Who leads; empty if nobody does."""
        try:
            lease = self.client.get(kinds.LEASE, assembly.LEASE, SPACE)
        except errors.NotFound:
            return ""
        return str(lease["spec"].get("holderIdentity") or "")

    def said(self) -> str:
        return "\n".join(f"{path.name}:\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))

    @contextlib.contextmanager
    def controllers(self, name: str, *words: str, program: str = "moorage") -> Iterator[subprocess.Popen[bytes]]:
        """The command in a process of its own; ``name`` is the pod's."""
        environ = {
            **os.environ,
            "MOORAGE_PLATFORMS": "pier=tests.machines.pier",
            "MOORAGE_CLOCK_SPEED": str(self.speed),
            # A life that follows another has to agree with it about the date.
            "MOORAGE_CLOCK_EPOCH": str(self._epoch),
            "PIER_SOCKET": str(self.pier.path),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", "")))),
            "POD_NAME": name,
            "TMPDIR": str(self.folder),
        }
        asked = ["machine-api", "run", f"--kubeconfig={self.cluster.kubeconfig()}", "--platform=pier", *words]
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen([sys.executable, "-m", program, *asked], env=environ, stdout=log, stderr=log)
            try:
                yield process
            finally:
                # A life that is left behind would go on working for the next story.
                process.terminate() if program != "moorage" else process.kill()
                process.wait()


class Pod:
    """Controllers that are begun again when they lose their lease, as a Deployment does.

    A lease lasts for a few real seconds here, which a busy machine does not always give to everybody.
    """

    def __init__(self, shore: Mooring, name: str) -> None:
        self._shore = shore
        self.name = name
        self._open = contextlib.ExitStack()
        self._lives = 0
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Pod:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _begin(self) -> None:
        self._open.close()
        self._lives += 1
        self.process = self._open.enter_context(self._shore.controllers(f"{self.name}-{self._lives}"))

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def tend(self) -> None:
        if self.process is not None and self.process.poll() is not None:
            assert LEASE_LOST in self._shore.said(), f"{self.name} ended by itself: {self._shore.said()}"
            self._begin()

    def leads(self) -> bool:
        return self._shore.holder().startswith(f"{self.name}-{self._lives}_")
