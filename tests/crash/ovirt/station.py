"""Where trials are held: a lab, the program in a process of its own, and a cluster that shall come and go, often.

Each trial ends with nothing left, so the next one finds the engine as the first one did; neighbours watch that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moorage.assets import keys, store
from moorage.installer import produce
from tests.crash import cradle
from tests.lab import ovirt_scene, rack

SPEED = 300.0
KILLED = -9
_SKIP = "OPENSHIFT_INSTALL_SKIP_PREFLIGHT_VALIDATIONS"

Portrait = dict[str, Any]


@dataclasses.dataclass
class Station:
    """One lab, one program, one cluster at a time."""

    scene: ovirt_scene.Scene
    program: subprocess.Popen[str]
    #: The asset directory before anything was created from it.
    template: Path

    def __post_init__(self) -> None:
        self.said = self.scene.folder / "said"
        self.calls = self.scene.folder / "calls"
        infra_id = self.scene.infra_id
        for other in (f"{infra_id}0", f"x-{infra_id}"):
            self.scene.control("POST", "/lab/ovirt/foreign", {"infra_id": other})
        self.before = self.everything()

    def reset(self) -> None:
        """A copy of the assets, as if nothing had ever been created from them."""
        shutil.rmtree(self.scene.assets)
        shutil.copytree(self.template, self.scene.assets)

    def run(self, *words: str, crash: str = "0:", listed: bool = False) -> int:
        """The real command, killed or to its end."""
        self.calls.unlink(missing_ok=True)
        order = {
            "words": [*words, "--dir", str(self.scene.assets)],
            "environ": {**self.scene.environ, _SKIP: "1"},
            "said": str(self.said),
            "crash": crash,
            "calls": str(self.calls) if listed else "",
        }
        assert self.program.stdin
        assert self.program.stdout
        self.program.stdin.write(json.dumps(order) + "\n")
        self.program.stdin.flush()
        return int(json.loads(self.program.stdout.readline())["code"])

    def create(self, **how: Any) -> int:
        return self.run("create", "cluster", **how)

    def destroy(self, **how: Any) -> int:
        return self.run("destroy", "cluster", **how)

    def words(self) -> str:
        return self.said.read_text(errors="replace")[-3000:]

    def everything(self) -> dict[str, str]:
        """All that anybody made on the engine: kind and name by id."""
        inventory = self.scene.inventory()
        kinds = (*ovirt_scene.MADE, "nics", "disk_attachments")
        return {each["id"]: f"{kind} {each.get('name', '')}" for kind in kinds for each in inventory.get(kind, ())}

    def leaks(self) -> list[str]:
        """What is there that was not before, and what is gone that was."""
        now = self.everything()
        return [f"left: {now[each]}" for each in now.keys() - self.before.keys()] + [
            f"lost: {self.before[each]}" for each in self.before.keys() - now.keys()
        ]

    def forgive(self) -> None:
        """Take what is there now for what was there before."""
        self.before = self.everything()

    def portrait(self) -> Portrait:
        """What the cluster is made of, in words that are the same for every run."""
        inventory = self.scene.inventory()
        ours = {kind: [each for each in inventory[kind] if each["id"] not in self.before] for kind in ovirt_scene.MADE}
        names = {each["id"]: str(each["name"]) for kind in ovirt_scene.MADE for each in inventory[kind]}
        return {
            "vms": sorted(
                (
                    vm["name"],
                    vm["description"],
                    "on" if vm["status"] in ("wait_for_launch", "powering_up", "up") else vm["status"],
                    sorted(names[tag] for tag in vm["tags"]),
                    vm["memory"],
                    vm["initialization"]["custom_script"][:200],
                    _held(inventory["disk_attachments"], "vm", vm["id"]),
                    _held(inventory["nics"], "vm", vm["id"]),
                )
                for vm in ours["vms"]
            ),
            "disks": sorted((disk["name"], disk["provisioned_size"], disk["status"]) for disk in ours["disks"]),
            "templates": sorted((each["name"], each["status"]) for each in ours["templates"]),
            "tags": sorted(each["name"] for each in ours["tags"]),
            "groups": sorted(
                (each["name"], sorted(names[vm] for vm in each["vms"])) for each in ours["affinity_groups"]
            ),
            "transfers": sorted(
                each["phase"] for each in inventory["image_transfers"] if not each["phase"].startswith("finished_")
            ),
        }


def _held(things: list[dict[str, Any]], by: str, identity: str) -> int:
    return sum((each.get(by) or {}).get("id") == identity for each in things)


@contextlib.contextmanager
def opened(folder: Path, ring: keys.Keyring) -> Iterator[Station]:
    """A station of one's own: a control plane of one, which makes every kind of call, and each of them soon."""
    with rack.running_lab(folder / "lab", SPEED) as lab, cradle.opened("tests.crash.ovirt.program") as program:
        scene = ovirt_scene.Scene(lab, folder / "scene", masters=1, workers=0)
        with store.opened(scene.assets) as directory:
            directory.commit(store.State(kept={"keyring": ring.to_state()}), {})
        # As `create cluster` makes them, so that no trial has to.
        produce.produce(scene.assets, (*produce.IGNITION_CONFIGS, "boot_configs"), keys.KeySource(0), scene.environ)
        template = folder / "template"
        shutil.copytree(scene.assets, template)
        yield Station(scene, program, template)
