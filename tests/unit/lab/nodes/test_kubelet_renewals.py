"""A kubelet's certificates are renewed in time, and a renewal that nobody grants stops no heart."""

from __future__ import annotations

import pytest

from moorage.lab.nodes import kubelet_certificates as certificates
from tests.unit.lab.nodes import node_world
from tests.unit.lab.nodes.node_world import KUBELETS, World, story, until


def old(age: float) -> bytes:
    pair = node_world.signed(KUBELETS, "system:node:worker-0", "system:nodes", age=age)
    return f"{pair.certificate}{pair.key}".encode()


@pytest.mark.parametrize(
    ("age", "requester"),
    [(0.7, ""), (0.85, "system:node:worker-0"), (1.5, node_world.BOOTSTRAPPER)],
    ids=["young", "a fifth left", "over"],
)
def test_certificates_are_renewed_in_time(age: float, requester: str) -> None:
    async def tell(world: World) -> None:
        machine = world.machine("worker-0")
        machine.kept[certificates.CLIENT_PATH] = old(age)
        before = machine.kept[certificates.CLIENT_PATH]
        await world.joined(machine)

        if requester:
            await until(lambda: machine.kept[certificates.CLIENT_PATH] != before, "a new certificate")
        else:
            assert machine.kept[certificates.CLIENT_PATH] == before
        made = world.requests("worker-0")
        assert [request["spec"]["username"] for request in made] == ([requester] if requester else [])
        # The new identity works.
        renewed = world.lease("worker-0")["spec"]["renewTime"]
        await until(lambda: world.lease("worker-0")["spec"]["renewTime"] > renewed, "a beat")

    story(tell)


def test_a_renewal_that_nobody_grants_stops_no_heart() -> None:
    async def tell(world: World) -> None:
        machine = world.machine("worker-0")
        machine.kept[certificates.CLIENT_PATH] = old(0.9)
        await machine.power_on()

        await until(lambda: world.requests("worker-0"), "a renewal")
        await until(lambda: world.ready("worker-0"), "Ready")
        renewed = world.lease("worker-0")["spec"]["renewTime"]
        await until(lambda: world.lease("worker-0")["spec"]["renewTime"] > renewed, "a beat")
        assert not (world.requests("worker-0")[0].get("status") or {}).get("certificate")

    story(tell, signer=False)
