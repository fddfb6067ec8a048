"""What the agent in a guest tells of its network devices, as far as there is one that speaks.

It speaks some time after its machine runs; never, if the machine's first boot failed or the lab was told so. Beside the
device with the machine's own address it names others: the loopback, bridges and tunnels of the cluster's network, and
whatever virtual addresses the machine holds at the moment, in no order that anybody should count on.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from moorage.lab.nodes import instance, vrrp
from moorage.lab.ovirt import timing

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

Doc = dict[str, Any]

LATE, NEVER, VIP_FIRST = "late", "never", "vip-first"


def devices(engine: engines.Engine, vm: Doc, machine: instance.Instance | None, nics: list[Doc]) -> list[Doc]:
    """The devices that are reported now."""
    if machine is None or not speaks(engine, vm, machine):
        return []
    mac = nics[0]["mac"]["address"] if nics else ""
    virtual = held(machine)
    own = [machine.address, *virtual]
    if engine.shape.agent == VIP_FIRST:
        own = [*virtual, machine.address]
    kubelet = machine.provisioned is not None and "kubelet.service" in machine.provisioned.units
    # On a node of a cluster the address has moved to the bridge of the cluster's own network.
    bridged = kubelet and machine.role not in ("bootstrap", "")
    name = "br-ex" if bridged else "ens3"
    found = [_device(vm, name, mac, own)]
    if bridged:
        found = [_device(vm, "ens3", mac, []), *found]
        found.append(_device(vm, "ovn-k8s-mp0", "0a:58:0a:80:00:02", ["10.128.0.2"]))
        found.append(_device(vm, "br-int", "", []))
    for at, nic in enumerate(nics[1:], start=4):
        found.append(_device(vm, f"ens{at}", nic["mac"]["address"], [_elsewhere(nic["mac"]["address"])]))
    return sorted(found, key=lambda each: str(each["name"]))


def speaks(engine: engines.Engine, vm: Doc, machine: instance.Instance) -> bool:
    """Whether the agent of a machine answers yet."""
    if machine.state != instance.RUNNING or engine.shape.agent == NEVER:
        return False
    since = vm.get("_running_since")
    waits = timing.GUEST_AGENT_LATE if engine.shape.agent == LATE else timing.GUEST_AGENT
    return since is not None and engine.clock.now() - since >= timing.drawn(waits, "agent", vm["name"])


def held(machine: instance.Instance) -> list[str]:
    """The virtual addresses that a machine holds now."""
    return vrrp.link(machine.site).held_by(machine)


def _device(vm: Doc, name: str, mac: str, addresses: list[str]) -> Doc:
    ips = [{"address": each, "version": "v4"} for each in addresses]
    if mac:
        ips.append({"address": _link_local(mac), "version": "v6"})
    return {
        "id": str(uuid.uuid5(uuid.UUID(vm["id"]), name)),
        "name": name,
        "description": "guest reported data",
        "type": "network",
        **({"mac": {"address": mac}} if mac else {}),
        "ips": ips,
        "vm": {"id": vm["id"]},
    }


def _elsewhere(mac: str) -> str:
    """The address of an interface on another network: none that anybody here can reach."""
    return "10.99." + ".".join(str(int(each, 16)) for each in mac.split(":")[-2:])


def _link_local(mac: str) -> str:
    first, *rest = (int(each, 16) for each in mac.split(":"))
    parts = [first ^ 2, *rest[:2], 0xFF, 0xFE, *rest[2:]]
    groups = [f"{parts[at] << 8 | parts[at + 1]:x}" for at in range(0, 8, 2)]
    return f"fe80::{':'.join(groups)}"
