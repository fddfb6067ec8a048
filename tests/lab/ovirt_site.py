"""The infrastructure of a cluster and nothing after it, on the engine of a lab that is a process of its own.

Most of what an engine can do to an installer it does before there is a cluster. So the platform's flow, its preflight
and its removal are called here as `create cluster` and `destroy cluster` call them, with the journal of a real asset
directory: another run, in this process or as a command, goes on where one stopped.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moorage.assets import keys, store
from moorage.config import findings
from moorage.engine import clock as clocks
from moorage.engine import flow, journal, progress
from moorage.installer import aside, destroy, plan, preflight, produce
from moorage.lab import client
from moorage.platforms import contract
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import destroy as removal
from moorage.platforms.ovirt import infra, machine, vms
from tests.lab import ovirt_scene, rack

SPEED = 150.0
#: Somebody's cluster; its template is good enough to make machines from.
GOLDEN = "golden-abcde"
OWN_TEMPLATE = f"template: {GOLDEN}-rhcos"
#: What must be as it was before, down to the last word.
_KINDS = (*ovirt_scene.MADE, "disk_attachments", "nics")
_API = "/ovirt-engine/api"


def unheard(_event: progress.Event) -> None:
    """Nobody watches."""


@dataclasses.dataclass
class Site:
    """A cluster to be made, the engine it goes to, and what others have there."""

    scene: ovirt_scene.Scene
    cluster: contract.Cluster
    around: contract.Surroundings
    events: list[progress.Event] = dataclasses.field(default_factory=list)
    traced: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        # A neighbour whose name begins as ours does.
        self.control("POST", "/lab/ovirt/foreign", {"infra_id": f"{self.infra_id}0"})
        self.before = self.belongings()
        self.around = dataclasses.replace(self.around, trace=self.traced.append)
        self.scene.before = self.scene.things()

    @property
    def infra_id(self) -> str:
        return self.cluster.infra_id

    # -- what moorage does -------------------------------------------------------------------------------------------

    def objections(self) -> list[findings.Finding]:
        """What a look at the platform finds wrong before anything is made."""
        return [
            each
            for each in plan.objections(preflight.look(self.cluster, self.around, patience=600))
            if each.severity == "error"
        ]

    def build(self, watch: progress.Listener = unheard, **options: Any) -> flow.Outcome:
        """Make the infrastructure, or go on making it."""
        declared = infra.declare(self.cluster, self.around)
        secrets = infra.secrets(self.cluster, self.around)
        with journal.Journal(self.scene.assets / aside.JOURNAL, secrets=secrets) as opened:
            return flow.run(
                declared,
                journal=opened,
                clock=self.around.clock,
                listeners=[self.events.append, watch],
                timeout=4 * 3600,
                **options,
            )

    def destroy(self, watch: progress.Listener = unheard, patience: float = destroy.PATIENCE) -> destroy.Destroyed:
        metadata = contract.Metadata("ovirt", self.infra_id)
        tell = progress.Broadcast([self.events.append, watch])
        return destroy.destroy(metadata, "cluster", removal, self.around, tell, patience=patience)

    # -- what the lab is told ----------------------------------------------------------------------------------------

    def control(self, method: str, path: str, body: object = None) -> Any:
        return self.scene.control(method, path, body)

    def shape(self, **changes: object) -> None:
        self.control("PUT", "/lab/ovirt", changes)

    def fault(self, action: str, method: str, path: str, **more: object) -> int:
        """Order a fault of the engine's API, once unless told otherwise; its number."""
        rule = {"action": action, "service": "ovirt", "method": method, "path": f"{_API}{path}", "nth": 1, **more}
        return int(self.control("POST", "/lab/faults", rule)["number"])

    def heal(self) -> None:
        self.control("DELETE", "/lab/faults")

    def struck(self) -> dict[str, int]:
        """How often each ordered fault struck, by its path below the API."""
        return {each["path"].removeprefix(_API): each["struck"] for each in self.control("GET", "/lab/faults")}

    def hold(self, kind: str, name: str, seconds: float) -> bool:
        """Let another tool work on a thing for a while; False if somebody does already."""
        try:
            self.control("POST", "/lab/ovirt/lock", {"kind": kind, "name": name, "seconds": seconds})
        except client.LabProblem:
            return False
        return True

    # -- what there is -----------------------------------------------------------------------------------------------

    def belongings(self) -> dict[str, dict[str, Any]]:
        """All that anybody made, with every word of it, by id."""
        inventory = self.scene.inventory()
        return {each["id"]: _filled(each) for kind in _KINDS for each in inventory.get(kind, ())}

    def ours(self, kind: str = "vms") -> dict[str, dict[str, Any]]:
        """The things of a kind that were not there before, by name; there are no two of a name among them."""
        found = self._new(kind)
        names = [each["name"] for each in found]
        assert len(set(names)) == len(names), names
        return dict(zip(names, found, strict=True))

    def disks(self) -> dict[str, dict[str, Any]]:
        """The disks that were not there before, by id: many are called alike."""
        return {each["id"]: each for each in self._new("disks")}

    def loose_disks(self) -> set[str]:
        """Disks that were not there before and that no VM and no template has."""
        return self.disks().keys() - {each["disk"]["id"] for each in self.scene.inventory()["disk_attachments"]}

    def _new(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.scene.inventory()[kind] if each["id"] not in self.before]

    def machines(self) -> set[str]:
        """What all machines of the cluster are to be called."""
        declared = infra.declare(self.cluster, self.around).resources
        return {each.machine.name for each in declared if isinstance(each, infra.Node)}

    def instances(self) -> dict[str, contract.Instance]:
        """What the platform says of each machine that is there, by name."""
        declared = infra.declare(self.cluster, self.around).resources
        wanted = [each.machine for each in declared if isinstance(each, infra.Node)]
        actuator = machine.actuator(self.around)
        found = {each.name: actuator.exists(each) for each in wanted}
        return {name: instance for name, instance in found.items() if instance is not None}

    def reported(self) -> dict[str, list[str]]:
        """The IPv4 addresses that guests tell of the device with their own one, as they tell them."""
        with clients.Client(self.around) as engine:
            found = vms.tagged(engine, self.infra_id)
        return {
            str(vm.name): [str(ip.address) for ip in device.ips if "." in ip.address]
            for vm in found
            for device in vm.reported_devices
            if device.name in ("br-ex", "ens3") and any("." in ip.address for ip in device.ips or [])
        }

    def is_whole(self) -> bool:
        """Whether every machine runs, bears its tag, and there is nothing besides that should not be."""
        vms, tags = self.ours(), self.ours("tags")
        if set(vms) != self.machines() or set(tags) != {self.infra_id, f"{self.infra_id}-bootstrap"}:
            return False
        tag = tags[self.infra_id]["id"]
        return all(vm["status"] in ("powering_up", "up") and tag in vm["tags"] for vm in vms.values())

    def calls(self, method: str, path: str) -> list[int | None]:
        """What came of the calls of a kind, in order: statuses, None where there was no reply; ``*`` is one segment."""
        pattern = re.compile(re.escape(f"{_API}{path}").replace(r"\*", "[^/]+"))
        return [
            each["status"]
            for each in self.scene.calls()
            if each["method"] == method and pattern.fullmatch(each["path"].partition("?")[0])
        ]

    def told(self, kind: type[progress.Event] = progress.Retrying) -> str:
        """What was said in the events of a kind."""
        return "\n".join(
            f"{each.resource}: {each.message or each.waiting_for}" for each in self.events if isinstance(each, kind)
        )

    def until(self, true: Callable[[], object], what: str, patience: float = 60.0) -> None:
        """Look until it is so, in real time: how long a busy computer takes is nobody's deadline."""
        end = time.monotonic() + rack.unhurried(self.scene.lab, patience)
        while not true():
            assert time.monotonic() < end, f"never: {what}"
            time.sleep(0.02)

    def assert_only_others_are_left(self) -> None:
        """Nothing of the cluster is there any more, and everything else is as it was."""
        assert self.scene.left() == []
        assert self.belongings() == self.before


def _filled(thing: dict[str, Any]) -> dict[str, Any]:
    """A thing without what is empty: an empty list is as good as none."""
    return {key: value for key, value in thing.items() if value != []}


def opened(lab: client.Lab, folder: Path, ring: keys.Keyring, *, more: Iterable[str] = (), **scene: Any) -> Site:
    """A datacentre as new, with neighbours, and a cluster whose assets are made."""
    lab.control("POST", "/lab/reset")
    lab.control("DELETE", "/lab/faults")
    lab.control("POST", "/lab/ovirt/foreign", {"infra_id": GOLDEN})
    found = ovirt_scene.Scene(lab, folder, more="\n".join(more), **scene)
    with store.opened(found.assets) as directory:
        directory.commit(store.State(kept={"keyring": ring.to_state()}), {})
    targets = (*produce.IGNITION_CONFIGS, "boot_configs")
    made = produce.produce(found.assets, targets, keys.KeySource(0), found.environ)
    environ = {**found.environ, "XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}
    clock = clocks.from_environment(lab.environment)
    return Site(found, produce.cluster(made), contract.Surroundings(environ, clock, lambda _line: None))
