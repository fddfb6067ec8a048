"""`moorage demo`: a whole cluster in the lab, by the very commands a user would type, with no account and no hardware.

The demo plays the user of an oVirt engine (the lab's): it answers the survey from a file, writes two names into DNS,
and leaves the rest to moorage. Everything lands in one folder, the lab and the engine's credentials included, so that
the user's own, if there are any, are left alone. Nothing outlives a demo that is killed.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from moorage import errors
from moorage.cli import lab as lab_command
from moorage.cli import talk

if TYPE_CHECKING:
    from moorage.cli import demo_day2
    from moorage.lab import client

FOLDER = "moorage-demo"
SPEED = 60.0
NAME, DOMAIN = "harbour", "example.com"
MASTERS, WORKERS = 3, 2
#: As many workers as there are after scaling up and down; each wants a host of its own.
MOST, LEAST = 4, 1
HOSTS = 5
_MARK = ".moorage-demo"
_MADE = (
    *("lab", "cluster", "kubeconfig", "timeline.html", "answers.yaml", "ovirt-config.yaml", "coreos.qcow2"),
    *("pull_secret", "ovirt_password", "healthcheck.json"),
)
#: What somebody can make on an engine, by its own names.
_KINDS = ("vms", "templates", "disks", "tags", "affinity_groups")
# Not with modules that happen to lie where the user is.
_MOORAGE = [sys.executable, "-P", "-m", "moorage"]
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHzV9tPOUGRTXaI2fYzPeBRPJc4QzeQN8yUkZ7rQrM2p demo"
_PULL_SECRET = '{"auths":{"registry.example.com":{"auth":"ZGVtbzpkZW1v"}}}'  # noqa: S105 - nobody's


def add(command: argparse.ArgumentParser, _: argparse.ArgumentParser) -> None:
    command.description = (
        f"Installs a cluster of {MASTERS} masters and {WORKERS} workers in a lab of its own, "
        "scales it, takes the power from a worker, sees it replaced, and destroys it all."
    )
    command.add_argument("--keep", action="store_true", help="leave the lab and the cluster running at the end")
    command.add_argument(
        "--speed", type=lab_command.speed, default=SPEED, metavar="N", help="cloud seconds per real second"
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.lab import owner

    root = Path(FOLDER if arguments.dir == "." else arguments.dir).resolve()
    _clear(root)
    # Whoever ends in good order, or tells of a failure, lets go of it first.
    with owner.owned(root / "lab"):
        return _shown(root, arguments)


def _shown(root: Path, arguments: argparse.Namespace) -> int:
    from moorage.lab import client

    began, where = time.monotonic(), root / "lab"
    _say("1. a datacentre: the lab, in a process of its own")
    lab = client.start(where, arguments.speed)
    print(f"network {lab.network}, {lab.speed:g} cloud seconds a second")
    try:
        demo = Demo(root, lab)
        demo.survey()
        demo.surroundings()
        demo.plan()
        demo.create()
        demo.show()
        demo.scale_up()
        demo.heal()
        demo.scale_down()
        if not arguments.keep:
            demo.destroy()
    except BaseException:
        _say("the demo did not get to its end; the lab still runs. Look into it, and stop it:")
        print(
            f"  export {client.FOLDER}={shlex.quote(str(where))}\n  moorage lab status\n  moorage lab stop", flush=True
        )
        raise
    _say(f"Done in {time.monotonic() - began:.0f} s.")
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
        self._environment = {
            **os.environ,
            **lab.environment,
            clients.FOLDER: str(lab.folder),
            "OVIRT_CONFIG": str(root / "ovirt-config.yaml"),
            "OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE": str(root / "coreos.qcow2"),
        }
        self._before: list[str] = []

    def survey(self) -> None:
        """The questions of `create install-config`, answered from a file."""
        _say("2. an install-config: the engine is asked what there is to choose from, a file has the answers")
        secrets = {"ovirt_password": _engine_password(self.lab), "pull_secret": _PULL_SECRET}
        for name, content in secrets.items():
            _private(self.root / name, content)
        answers = {**_answers(self.lab), **{name: f"@{self.root / name}" for name in secrets}}
        file = self.root / "answers.yaml"
        _private(file, "".join(f"{key}: {json.dumps(value)}\n" for key, value in answers.items()))
        print(
            "".join(f"  {line}\n" for line in file.read_text().splitlines() if not line.startswith("ssh_key")), end=""
        )
        self._moorage("create", "install-config", "--answers", str(file))

    def surroundings(self) -> None:
        """What is the user's own affair on oVirt: two names, and the image that machines boot from."""
        from moorage.lab import boot_image
        from moorage.lab import client as clients

        _say("3. what the user brings: two names in DNS; and an image, for there is nothing to download from here")
        boot_image.write(self.root / "coreos.qcow2")
        self.lab.control("PUT", "/lab/ovirt", {"hosts": {"Default": HOSTS}})
        plain, domain = clients.Plain(self.lab), f"{NAME}.{DOMAIN}"
        api, ingress = _virtual_addresses(self.lab)
        plain.zone(DOMAIN)
        plain.record(f"api.{domain}", api)
        plain.record(f"*.apps.{domain}", ingress)
        self._before = self._things()
        print(f"api.{domain} is {api}, *.apps.{domain} is {ingress}; the engine has {len(self._before)} things already")

    def plan(self) -> None:
        _say("4. what would be made, before anything is")
        self._moorage("plan")

    def create(self) -> None:
        _say("5. the cluster: image, template, groups, control plane; its controllers then make the workers")
        self._moorage("create", "cluster")

    def show(self) -> None:
        _say("6. there it is")
        _private(self.kubeconfig, _output([*_MOORAGE, "lab", "kubeconfig"], self._environment))
        nodes = self._nodes()
        print(nodes, end="")
        ready = [line for line in nodes.splitlines()[1:] if line.split()[1:2] == ["Ready"]]
        if len(ready) != MASTERS + WORKERS:
            raise errors.MoorageError(f"only {len(ready)} of {MASTERS + WORKERS} nodes are Ready")
        self._moorage("timeline", "--output-file", str(self.root / "timeline.html"))

    def scale_up(self) -> None:
        _say(f"7. more of it: {WORKERS} workers become {MOST}")
        self._pool().scale(MOST)

    def heal(self) -> None:
        _say("8. a worker loses its power, and a health check has it replaced")
        pool = self._pool()
        pool.watch_over(self.root / "healthcheck.json")
        lost = pool.victim()
        self._moorage("lab", "faults", "kill", lost)
        print(f"{lost} is no more; in its place there is {pool.replaced(lost)}")

    def scale_down(self) -> None:
        _say(f"9. less of it: {MOST} workers become {LEAST}")
        self._pool().scale(LEAST)
        self._moorage("machines", "--once", "--kubeconfig", str(self.kubeconfig))

    def _pool(self) -> demo_day2.Pool:
        from moorage.cli import demo_day2

        return demo_day2.Pool(self.kubeconfig, self._environment)

    def destroy(self) -> None:
        _say("10. and gone again")
        self._moorage("destroy", "cluster")
        left = sorted(set(self._things()) - set(self._before))
        if left:
            raise errors.MoorageError(f"{len(left)} resources are left: {', '.join(left)}")
        print(f"0 resources left: the engine has its {len(self._before)} things of before, and no other")

    def _things(self) -> list[str]:
        """Everything on the engine that somebody made, by kind and id."""
        inventory = self.lab.control("GET", "/lab/ovirt")
        return [f"{kind}/{each['name']} ({each['id']})" for kind in _KINDS for each in inventory.get(kind, ())]

    def _nodes(self) -> str:
        if shutil.which("kubectl"):
            print("$ kubectl get nodes")
            return _output(["kubectl", "--kubeconfig", str(self.kubeconfig), "get", "nodes"], self._environment)
        from moorage.cli import demo_requests

        print("kubectl is not installed (apt-get install kubernetes-client); the API says:")
        return demo_requests.nodes(self.kubeconfig)

    def _moorage(self, *words: str) -> None:
        print(f"$ moorage {shlex.join(words)}", flush=True)
        command = [*_MOORAGE, *words, "--dir", str(self.assets)]
        ended = subprocess.run(command, check=False, env=self._environment, preexec_fn=_with_us)
        if ended.returncode:
            raise StepFailed(" ".join(["moorage", *words[:2]]), ended.returncode)


def _virtual_addresses(lab: client.Lab) -> tuple[str, str]:
    """Two addresses that the lab gives to no machine."""
    network = ipaddress.ip_network(lab.network)
    return str(network[100]), str(network[101])


def _answers(lab: client.Lab) -> dict[str, str]:
    """What a user would choose on the lab's engine."""
    api, ingress = _virtual_addresses(lab)
    return {
        "platform": "ovirt",
        "ssh_key": _SSH_KEY,
        "base_domain": DOMAIN,
        "cluster_name": NAME,
        "control_plane_replicas": str(MASTERS),
        "worker_replicas": str(WORKERS),
        "ovirt_engine": lab.ovirt["fqdn"],
        "ovirt_ca_file": lab.ovirt["ca_file"],
        "ovirt_username": lab.ovirt["username"],
        "ovirt_cluster": "Default",
        "ovirt_storage_domain": "data",
        "ovirt_network": "ovirtmgmt",
        "ovirt_network_image": "registry.example.com/moorage:demo",
        "api_vip": api,
        "ingress_vip": ingress,
        "machine_network": lab.network,
    }


def _engine_password(lab: client.Lab) -> str:
    return str(yaml.safe_load((lab.folder / "ovirt-config.yaml").read_text())["ovirt_password"])


def _private(path: Path, content: str) -> None:
    path.touch(mode=0o600)
    path.write_text(content)


class StepFailed(errors.MoorageError):
    """A command of the demo failed; its exit code becomes the demo's."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what} ended with {code}", remedy="see its words above")
        self.exit_code = code


def _with_us() -> None:
    """Called in a new process: have the kernel end it when we die, as Ctrl-C would."""
    import ctypes

    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)


def _output(command: list[str], environment: dict[str, str]) -> str:
    ended = subprocess.run(command, check=False, env=environment, stdout=subprocess.PIPE, text=True)
    if ended.returncode:
        raise StepFailed(shlex.join(command), ended.returncode)
    return ended.stdout


def _say(text: str) -> None:
    bold, plain = ("\x1b[1m", "\x1b[0m") if talk.wants_colour(sys.stdout) else ("", "")
    print(f"\n{bold}# {text}{plain}", flush=True)
