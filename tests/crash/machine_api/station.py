"""Where controllers die: a lab's engine with neighbours on it, a cluster's API, and a set that wants a machine or none.

No node ever comes: the machine boots with nothing to do, so it is Provisioned and stays so. Lives of the controllers
are begun one by one, and only after the set was told what it wants, so that each makes the same calls.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from moorage.engine import clock as clocks
from moorage.lab import client as labs
from moorage.lab.nodes import payload
from moorage.machines import assembly
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import connection, errors, kinds
from tests.crash import cradle
from tests.kube import calls, embedded
from tests.kube import cluster as clusters
from tests.kube import objects as kube_objects
from tests.lab import rack
from tests.machines import mooring

INFRA = "harbour-x7k2p"
SET = f"{INFRA}-worker-0"
SPACE = assembly.NAMESPACE
#: Cloud seconds in a real one: an instance that was asked for is waited for for 60 of them, longer than a call takes.
SPEED = 100.0
KILLED = -9
LEASE_LOST = "this process leads no longer"
#: Real seconds for anything to come about on a busy machine.
PATIENCE = 120.0
MADE = ("vms", "templates", "disks", "tags", "affinity_groups", "nics", "disk_attachments")

Object = dict[str, Any]
Condition = Callable[[], object]


class Life:
    """A process with the controllers in it."""

    def __init__(self, program: subprocess.Popen[str], order: Object) -> None:
        self._program = program
        assert program.stdin
        program.stdin.write(json.dumps(order) + "\n")
        program.stdin.flush()
        self.pid = int(self._answer()["pid"])
        self.code: int | None = None
        self._end = threading.Thread(target=self._await_end, daemon=True)
        self._end.start()

    def wait(self) -> int:
        """How it ended."""
        self._end.join(PATIENCE)
        assert self.code is not None, "the controllers go on"
        return self.code

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.code is None:
                os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def is_stopped(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def _await_end(self) -> None:
        self.code = int(self._answer()["code"])

    def _answer(self) -> Object:
        assert self._program.stdout
        found: Object = json.loads(self._program.stdout.readline())
        return found


@dataclasses.dataclass
class Station:
    """One engine, one cluster, one set."""

    lab: labs.Lab
    cluster: clusters.Cluster
    program: subprocess.Popen[str]
    folder: Path

    def __post_init__(self) -> None:
        self.said = self.folder / "said"
        self.listed, self.met = self.folder / "calls", self.folder / "met"
        self._last: Life | None = None
        self.client = clients.Client(connection.from_kubeconfig(self.cluster.kubeconfig()), clocks.Clock())
        # Ours brings what the installer leaves on an engine: a template, the tag, an affinity group and a master.
        for infra_id in (INFRA, f"{INFRA}0", f"x-{INFRA}"):
            self.lab.control("POST", "/lab/ovirt/foreign", {"infra_id": infra_id})
        _serve_machines(self.cluster)
        mooring.settle_in(self.cluster, "ovirt", INFRA, '{"ignition": {"version": "3.2.0"}}')
        self.client.create(kinds.MACHINE_SET, self._set())
        self.before = self.everything()

    def _set(self) -> Object:
        labels = {
            "machine.openshift.io/cluster-api-cluster": INFRA,
            "machine.openshift.io/cluster-api-machineset": SET,
        }
        value = {
            "apiVersion": "ovirtproviderconfig.machine.openshift.io/v1beta1",
            "kind": "OvirtMachineProviderSpec",
            "cluster_id": self._id("clusters", "Default"),
            "template_name": f"{INFRA}-rhcos",
            "storage_domain_id": self._id("storage_domains", "data"),
            "cpu": {"sockets": 1, "cores": 4, "threads": 1},
            "memory_mb": 8192,
            "guaranteed_memory_mb": 8192,
            "os_disk": {"size_gb": 120},
            "type": "server",
            "affinity_groups_names": [f"{INFRA}-controlplane"],
            "network_interfaces": [{"vnic_profile_id": self._id("vnic_profiles", "ovirtmgmt")}],
            "userDataSecret": {"name": "worker-user-data"},
        }
        return {
            "metadata": {"name": SET, "namespace": SPACE},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"providerSpec": {"value": value}}},
            },
        }

    def _id(self, kind: str, name: str) -> str:
        return next(str(each["id"]) for each in self.inventory()[kind] if each["name"] == name)

    # -- what is done ------------------------------------------------------------------------------------------------

    def scale(self, replicas: int) -> None:
        self.client.patch(kinds.MACHINE_SET, SET, SPACE, {"spec": {"replicas": replicas}})

    def live(
        self, place: str = "", phase: str = "", *, listed: bool = False, pod: str = "", alone: bool = True
    ) -> Life:
        """Begin a life; it ends, or is stopped, at that phase of the call at that place."""
        life = Life(self.program, self.order(place, phase, listed=listed, pod=pod, alone=alone))
        self._last = life
        return life

    def end(self) -> None:
        """Nothing that a story has begun and left goes on."""
        if self._last is not None:
            self._last.kill()

    def order(self, place: str = "", phase: str = "", *, listed: bool = False, pod: str = "", alone: bool) -> Object:
        if place or listed:
            self.listed.unlink(missing_ok=True)
            self.met.unlink(missing_ok=True)
        words = [f"--kubeconfig={self.cluster.kubeconfig()}", "--platform=ovirt"]
        environ = {**self.lab.environment, "TMPDIR": str(self.folder), "XDG_CACHE_HOME": str(self.folder)}
        return {
            "words": [*words, *(["--no-leader-elect"] if alone else [])],
            "environ": {**environ, **({"POD_NAME": pod} if pod else {})},
            "said": str(self.said),
            "place": place,
            "phase": phase,
            "met": str(self.met),
            "calls": str(self.listed) if listed else "",
        }

    # -- what there is -----------------------------------------------------------------------------------------------

    def machines(self) -> list[Object]:
        found, _ = self.client.list(kinds.MACHINE, SPACE)
        return found

    def inventory(self) -> Object:
        found: Object = self.lab.control("GET", "/lab/ovirt")
        return found

    def everything(self) -> dict[str, str]:
        """All that anybody made on the engine, with who bears which tag: by id."""
        inventory = self.inventory()
        words = {
            "vms": lambda each: f"{each['tags']} {each['description']}",
            "affinity_groups": lambda each: sorted(each["vms"]),
        }
        return {
            each["id"]: f"{kind} {each.get('name', '')} {words.get(kind, lambda _: '')(each)}"
            for kind in MADE
            for each in inventory.get(kind, ())
        }

    def leaks(self) -> list[str]:
        """What is there that was not before, and what is gone or changed that was."""
        now = self.everything()
        return [f"left: {now[each]}" for each in now.keys() - self.before.keys()] + [
            f"lost: {was}, now {now.get(each)}" for each, was in self.before.items() if now.get(each) != was
        ]

    def vms(self) -> list[Object]:
        return [each for each in self.inventory()["vms"] if each["id"] not in self.before]

    def made(self, after: int = 0) -> list[str]:
        """The VMs that the engine was asked for since a call, by what it answered."""
        posts = [each for each in self.engine_calls(after) if each["method"] == "POST"]
        return [str(each["status"]) for each in posts if each["path"].partition("?")[0].endswith("/api/vms")]

    def engine_calls(self, after: int = 0) -> list[Object]:
        found: list[Object] = self.lab.control("GET", "/lab/calls?service=ovirt")
        return [each for each in found if each["number"] > after]

    def last_call(self) -> int:
        return max((each["number"] for each in self.engine_calls()), default=0)

    def places(self) -> list[str]:
        """Where a life may end, by the one that was listed."""
        return list(dict.fromkeys(self.listed.read_text().splitlines()))

    def was_met(self) -> bool:
        """Whether the last life came by the place at which it was to end."""
        return self.met.exists()

    def portrait(self) -> Object:
        """The one machine there is and all that it consists of, in words that are the same for every run."""
        inventory = self.inventory()
        (machine,), (vm,) = self.machines(), self.vms()
        tags = {each["id"]: each["name"] for each in inventory["tags"]}
        disks = {each["id"]: each for each in inventory["disks"]}
        held = [each for each in inventory["disk_attachments"] if (each.get("vm") or {}).get("id") == vm["id"]]
        (group,) = (each for each in inventory["affinity_groups"] if each["name"] == f"{INFRA}-controlplane")
        return {
            "name": vm["name"] == machine["metadata"]["name"],
            "known as": machine["spec"]["providerID"] == f"ovirt://{vm['id']}",
            "phase": machine["status"]["phase"],
            "description": vm["description"],
            "tags": sorted(tags[each] for each in vm["tags"]),
            "memory": vm["memory"],
            "disks": [
                (disks[each["disk"]["id"]]["provisioned_size"], disks[each["disk"]["id"]]["status"]) for each in held
            ],
            "stray disks": [each["name"] for each in disks.values() if each["id"] not in self.before][len(held) :],
            "nics": sum((each.get("vm") or {}).get("id") == vm["id"] for each in inventory.get("nics", ())),
            "in its group": vm["id"] in group["vms"],
            "runs": vm["status"] in ("wait_for_launch", "powering_up", "up"),
        }

    # -- waiting -----------------------------------------------------------------------------------------------------

    def until(self, true: Condition, what: str, tend: Callable[[], None] = lambda: None) -> None:
        """Look until it is so, and ``tend`` to what may need it meanwhile."""
        end = time.monotonic() + PATIENCE
        while not true():
            tend()
            assert time.monotonic() < end, f"never: {what}\n{self.words()}"
            time.sleep(0.05)

    def is_provisioned(self) -> bool:
        found = self.machines()
        return [(each.get("status") or {}).get("phase") for each in found] == ["Provisioned"]

    def holder(self) -> str:
        with contextlib.suppress(errors.NotFound):
            lease = self.client.get(kinds.LEASE, assembly.LEASE, SPACE)
            return str(lease["spec"].get("holderIdentity") or "").partition("_")[0]
        return ""

    def forget_lease(self) -> None:
        """Let the next story's controllers be elected at once."""
        with contextlib.suppress(errors.NotFound):
            self.client.delete(kinds.LEASE, assembly.LEASE, SPACE)

    def words(self) -> str:
        said = self.said.read_text(errors="replace")[-4000:] if self.said.exists() else ""
        shown = [(each["metadata"]["name"], each.get("status")) for each in self.machines()]
        return f"{said}\n{shown}\n{[(each['name'], each['status']) for each in self.vms()]}"


class Follower:
    """Controllers that stand for election beside others, and are begun again when they lose it, as pods are.

    A lease lasts for a few real seconds at the lab's speed, which a busy machine does not always give to everybody.
    """

    def __init__(self, here: Station, started: subprocess.Popen[str], pod: str) -> None:
        self._here = here
        self._program = started
        self._pod = pod
        self._life: Life | None = None

    def begin(self) -> None:
        self._life = Life(self._program, self._here.order(pod=self._pod, alone=False))

    def tend(self) -> None:
        if self._life is not None and self._life.code is not None:
            assert LEASE_LOST in self._here.words(), f"they ended by themselves\n{self._here.words()}"
            self.begin()

    def leads(self) -> bool:
        return self._here.holder() == self._pod

    def end(self) -> None:
        if self._life is not None:
            self._life.kill()


def _serve_machines(cluster: clusters.Cluster) -> None:
    for definition in payload.definitions():
        if definition["spec"]["group"] == kinds.MACHINE.group:
            cluster.admin.post(kube_objects.DEFINITIONS, definition).got(201)
    for plural in ("machines", "machinesets", "machinehealthchecks"):
        path = f"/apis/{kinds.MACHINE.api_version}/{plural}"
        calls.eventually(lambda path=path: cluster.admin.get(path).code == 200, f"{plural} served")


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Station]:
    """A station of one's own."""
    (folder / "kube").mkdir(parents=True)
    with contextlib.ExitStack() as open_:
        lab = open_.enter_context(rack.running_lab(folder / "lab", SPEED))
        cluster = open_.enter_context(embedded.running(folder / "kube"))
        here = Station(lab, cluster, open_.enter_context(program()), folder)
        open_.callback(here.end)
        yield here


def program() -> AbstractContextManager[subprocess.Popen[str]]:
    """Where lives begin, one after the other."""
    return cradle.opened("tests.crash.machine_api.program")
