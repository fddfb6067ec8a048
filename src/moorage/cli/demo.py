"""`moorage demo`: a whole cluster in the lab, by the very commands a user would type, with no account and no hardware.

The demo plays the user of ``platform: none``: it brings machines, names and a balancer (the lab's), lets the workers
in, and leaves the rest to moorage. Everything lands in one folder, the lab included, so that the user's own lab, if
there is one, is left alone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from moorage import errors
from moorage.cli import lab as lab_command
from moorage.cli import talk

if TYPE_CHECKING:
    from moorage.lab import client

FOLDER = "moorage-demo"
SPEED = 100.0
NAME, DOMAIN = "harbour", "example.com"
MASTERS, WORKERS = 3, 2
_MARK = ".moorage-demo"
_MADE = ("lab", "cluster", "kubeconfig", "pull-secret.json", "timeline.html")
# Not with modules that happen to lie where the user is.
_MOORAGE = [sys.executable, "-P", "-m", "moorage"]
_SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHzV9tPOUGRTXaI2fYzPeBRPJc4QzeQN8yUkZ7rQrM2p demo"
_PULL_SECRET = '{"auths":{"registry.example.com":{"auth":"ZGVtbzpkZW1v"}}}'  # noqa: S105 - nobody's


def add(command: argparse.ArgumentParser, _: argparse.ArgumentParser) -> None:
    command.description = (
        f"Installs a cluster of {MASTERS} masters and {WORKERS} workers in a lab of its own, in the folder "
        f"{FOLDER} or in --dir."
    )
    command.add_argument("--keep", action="store_true", help="leave the lab and the cluster running at the end")
    command.add_argument(
        "--speed", type=lab_command.speed, default=SPEED, metavar="N", help="cloud seconds per real second"
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.lab import client

    began = time.monotonic()
    root = Path(FOLDER if arguments.dir == "." else arguments.dir).resolve()
    _clear(root)
    where = root / "lab"
    _say("1. a datacentre: the lab, in a process of its own")
    lab = client.start(where, arguments.speed)
    print(f"network {lab.network}, {lab.speed:g} cloud seconds a second")
    try:
        demo = Demo(root, lab)
        demo.configs()
        demo.hardware()
        demo.bootstrap()
        demo.install()
        demo.show()
    except BaseException:
        _say("the demo did not get to its end; the lab still runs. Look into it, and stop it:")
        print(
            f"  export {client.FOLDER}={shlex.quote(str(where))}\n  moorage lab status\n  moorage lab stop", flush=True
        )
        raise
    _say(f"Done in {time.monotonic() - began:.0f} s: {MASTERS} masters and {WORKERS} workers, all Ready.")
    if arguments.keep:
        print(f"The cluster goes on. Look around:\n  export {client.FOLDER}={shlex.quote(str(where))}")
        print(f"  export KUBECONFIG={shlex.quote(str(demo.kubeconfig))}; kubectl get nodes\n  moorage lab stop")
    else:
        client.stop(lab)
        print("The lab has stopped. `moorage demo --keep` leaves it running, to look around and break things.")
    return 0


def _clear(root: Path) -> None:
    """Make room: what an earlier demo made goes, what anybody else put there stays."""
    from moorage.lab import client

    try:
        if root.exists() and any(root.iterdir()) and not (root / _MARK).exists():
            raise errors.MoorageError(
                f"{root} is not empty, and no demo made it", remedy="name another folder: moorage demo --dir DIR"
            )
        with contextlib.suppress(client.LabProblem):
            client.stop(client.find(root / "lab"))
        for name in _MADE:
            shutil.rmtree(root / name) if (root / name).is_dir() else (root / name).unlink(missing_ok=True)
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        (root / _MARK).touch()
    except OSError as problem:
        raise errors.MoorageError(
            f"{problem.filename}: {problem.strerror}", remedy="name another folder: moorage demo --dir DIR"
        ) from problem


class Demo:
    """One run; each method is a chapter."""

    def __init__(self, root: Path, lab: client.Lab) -> None:
        from moorage.lab import client as clients

        self.root = root
        self.lab = lab
        self.assets = root / "cluster"
        self.kubeconfig = root / "kubeconfig"
        self._plain = clients.Plain(lab)
        self._environment = {**os.environ, **lab.environment, clients.FOLDER: str(lab.folder)}
        self._addresses: dict[str, str] = {}

    def configs(self) -> None:
        _say("2. an install-config, then the Ignition configs that machines boot from")
        secret = self.root / "pull-secret.json"
        secret.touch(mode=0o600)
        secret.write_text(_PULL_SECRET)
        named = ["--cluster-name", NAME, "--base-domain", DOMAIN, "--platform", "none"]
        named += ["--control-plane-replicas", str(MASTERS), "--worker-replicas", str(WORKERS)]
        self._moorage("create", "install-config", *named, "--pull-secret", f"@{secret}", "--ssh-key", _SSH_KEY)
        self._moorage("create", "ignition-configs")

    def hardware(self) -> None:
        _say("3. what the user brings: machines, a balancer, names")
        plain, domain = self._plain, f"{NAME}.{DOMAIN}"
        plain.zone(DOMAIN)
        boots = {"bootstrap": "bootstrap"}
        boots |= {f"master-{number}": "master" for number in range(MASTERS)}
        boots |= {f"worker-{number}": "worker" for number in range(WORKERS)}
        for name, role in boots.items():
            self._addresses[name] = plain.machine(name, (self.assets / f"{role}.ign").read_bytes(), power="off")
        balancer = plain.balancer("front", self._listeners(bootstrap=True))
        for host in (f"api.{domain}", f"api-int.{domain}", f"*.apps.{domain}"):
            plain.record(host, balancer)
        self._switch_on("bootstrap", "master")
        print(f"{len(boots)} machines; api, api-int and *.apps lead to the balancer at {balancer}")

    def bootstrap(self) -> None:
        _say("4. the bootstrap machine raises the control plane and hands over to the masters")
        self._moorage("wait-for", "bootstrap-complete")
        self._plain.balancer("front", self._listeners(bootstrap=False))
        self._plain.delete_machine("bootstrap")
        print("the bootstrap machine is out of the balancer, and gone")

    def install(self) -> None:
        _say("5. the workers boot and ask to be let in; they are, and the cluster completes itself")
        self._switch_on("worker")
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(_output([*_MOORAGE, "lab", "kubeconfig"], self._environment))
        with self._letting_in():
            self._moorage("wait-for", "install-complete")

    def show(self) -> None:
        _say("6. the cluster")
        nodes = self._nodes()
        print(nodes, end="")
        ready = [line for line in nodes.splitlines()[1:] if line.split()[1:2] == ["Ready"]]
        if len(ready) != MASTERS + WORKERS:
            raise errors.MoorageError(f"only {len(ready)} of {MASTERS + WORKERS} nodes are Ready")
        self._moorage("timeline", "--output-file", str(self.root / "timeline.html"))

    def _switch_on(self, *kinds: str) -> None:
        for name in self._addresses:
            if name.startswith(kinds):
                self._plain.call("POST", f"/v1/machines/{name}/on")

    def _listeners(self, *, bootstrap: bool) -> list[dict[str, object]]:
        masters = [address for name, address in self._addresses.items() if name.startswith("master")]
        workers = [address for name, address in self._addresses.items() if name.startswith("worker")]
        first = [self._addresses["bootstrap"]] if bootstrap else []
        health = {"path": "/readyz", "interval": 5, "rise": 1}
        plain = {"interval": 5, "rise": 1}
        return [
            {"port": 6443, "members": [*first, *masters], "check": health},
            {"port": 22623, "members": [*first, *masters], "check": {**health, "path": "/healthz"}},
            {"port": 443, "members": workers, "check": plain},
            {"port": 80, "members": workers, "check": plain},
        ]

    @contextlib.contextmanager
    def _letting_in(self) -> Iterator[None]:
        from moorage.cli import demo_requests

        over = threading.Event()
        names = [f"worker-{number}" for number in range(WORKERS)]
        thread = threading.Thread(target=demo_requests.approve, args=(self.kubeconfig, names, over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _nodes(self) -> str:
        if shutil.which("kubectl"):
            print("$ kubectl get nodes")
            return _output(["kubectl", "--kubeconfig", str(self.kubeconfig), "get", "nodes"], self._environment)
        from moorage.cli import demo_requests

        print("kubectl is not installed (apt-get install kubernetes-client); the API says:")
        return demo_requests.nodes(self.kubeconfig)

    def _moorage(self, *words: str) -> None:
        print(f"$ moorage {shlex.join(words)}", flush=True)
        ended = subprocess.run([*_MOORAGE, *words, "--dir", str(self.assets)], check=False, env=self._environment)
        if ended.returncode:
            raise StepFailed(" ".join(["moorage", *words[:2]]), ended.returncode)


class StepFailed(errors.MoorageError):
    """A command of the demo failed; its exit code becomes the demo's."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what} ended with {code}", remedy="see its words above")
        self.exit_code = code


def _output(command: list[str], environment: dict[str, str]) -> str:
    ended = subprocess.run(command, check=False, env=environment, stdout=subprocess.PIPE, text=True)
    if ended.returncode:
        raise StepFailed(shlex.join(command), ended.returncode)
    return ended.stdout


def _say(text: str) -> None:
    bold, plain = ("\x1b[1m", "\x1b[0m") if talk.wants_colour(sys.stdout) else ("", "")
    print(f"\n{bold}# {text}{plain}", flush=True)
