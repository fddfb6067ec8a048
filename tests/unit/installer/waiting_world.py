"""A cluster that comes up by script, and somebody who waits for it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from moorage.engine import clock as clocks
from moorage.installer import diagnosis, waiting
from tests.unit.installer import fake_cluster
from tests.unit.installer.fake_cluster import API, A, Zone

MINUTE = 60.0
Said = list[tuple[str, str, float]]
Story = Callable[[float], Mapping[str, Any]]


def conditions(**states: str | tuple[str, str]) -> dict[str, Any]:
    """A status from ``Type="True"`` or ``Type=("True", "message")``."""
    told = {kind: state if isinstance(state, tuple) else (state, "") for kind, state in states.items()}
    return {"conditions": [{"type": kind, "status": state[0], "message": state[1]} for kind, state in told.items()]}


def node(name: str, role: str = "master", ready: str | tuple[str, str] = "True") -> dict[str, Any]:
    labels = {f"node-role.kubernetes.io/{role}": ""}
    return {"metadata": {"name": name, "labels": labels}, "status": conditions(Ready=ready)}


def request(name: str, of: str, signer: str = "kube-apiserver-client-kubelet", **states: str) -> dict[str, Any]:
    spec = {"signerName": f"kubernetes.io/{signer}", "request": fake_cluster.node_request(of)}
    return {"metadata": {"name": name}, "spec": spec, "status": conditions(**states)}


def operator(name: str, moved: str = "t0", **states: str | tuple[str, str]) -> dict[str, Any]:
    status = conditions(**{"Available": "True", "Progressing": "False", "Degraded": "False", **states})
    for found in status["conditions"]:
        found["lastTransitionTime"] = moved
    return {"metadata": {"name": name}, "status": status}


def items(*things: Mapping[str, Any]) -> dict[str, Any]:
    return {"items": list(things)}


MASTERS = [node(f"master-{number}") for number in range(3)]
WORKERS = [node(f"worker-{number}", "worker") for number in range(3)]
DONE = {
    "metadata": {"name": "version"},
    "status": {**conditions(Available="True", Failing="False", Progressing="False"), "desired": {"version": "4.20.1"}},
}
ADMITTED = {"status": {"ingress": [{"host": "console.apps.example.com", **conditions(Admitted="True")}]}}
ROUTER = fake_cluster.authority("ingress-operator@1").split("-----BEGIN PRIVATE")[0]
READY: dict[str, Any] = {
    "/version": {"major": "1"},
    waiting.BOOTSTRAP: {"data": {"status": "complete"}},
    waiting.ETCD: {"status": conditions(EtcdBootstrapMemberRemoved="True")},
    waiting.INGRESS_AUTHORITY: {"data": {"ca-bundle.crt": ROUTER}},
    waiting.CONSOLE: ADMITTED,
    diagnosis.NODES: items(*MASTERS, *WORKERS),
    diagnosis.VERSION: DONE,
    diagnosis.OPERATORS: items(operator("authentication"), operator("console")),
}


@dataclasses.dataclass
class Watched:
    """A wait on a cluster that follows a story told in cloud seconds."""

    built: fake_cluster.Built
    clock: clocks.ManualClock
    environ: Mapping[str, str]
    said: Said = dataclasses.field(default_factory=list)

    def say(self, stage: str, waiting_for: str, seconds: float) -> None:
        self.said.append((stage, waiting_for, seconds))

    def bootstrap(self) -> None:
        waiting.bootstrap_complete(self.built.directory, self.clock, self.environ, self.say)

    def install(self) -> waiting.Installed:
        return waiting.install_complete(self.built.directory, self.clock, self.environ, self.say)


@contextlib.contextmanager
def watched(
    built: fake_cluster.Built, story: Story, folder: Path, *, named_at: float = 0.0, certificate: str = ""
) -> Iterator[Watched]:
    clock = clocks.ManualClock()

    class Late(Zone):
        def reply(self, query: bytes, by: str) -> list[bytes]:
            self.records = [(API, A, api.address)] if clock.now() >= named_at else []
            return super().reply(query, by)

    with (
        fake_cluster.serving(lambda: story(clock.now()), built, folder, certificate) as api,
        fake_cluster.naming(Late()) as environ,
    ):
        yield Watched(built, clock, environ)
