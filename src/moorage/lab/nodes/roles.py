"""What a machine becomes once its disk is written: its units decide, and the static pods that its kubelet runs."""

from __future__ import annotations

import asyncio

from moorage.lab.nodes import instance


async def run(machine: instance.Instance) -> None:
    """Be what the machine's disk says, until it is switched off."""
    from moorage.lab.nodes import vip

    if not vip.wanted(machine):
        await _be(machine)
        return
    async with asyncio.TaskGroup() as group:
        group.create_task(vip.follow(machine))
        await _be(machine)


async def _be(machine: instance.Instance) -> None:
    from moorage.lab.nodes import bootstrap, kubelet

    disk = machine.provisioned
    if disk is None:
        return
    if "bootkube.service" in disk.units:
        await bootstrap.run(machine)
    elif "kubelet.service" in disk.units:
        await kubelet.run(machine)
    else:
        machine.say("login:")
