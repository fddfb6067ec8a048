"""A node that came while nobody was there to link it: it goes with the machine whose name it bears."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.machines.runtime import kinds
from tests.unit.machines import machine_world


@pytest.mark.parametrize(
    ("spec", "note", "stays"),
    [
        pytest.param({}, "", False, id="it says nothing of itself"),
        pytest.param({"providerID": "yard://i-1"}, "", False, id="it is the machine's instance"),
        pytest.param({"providerID": "yard://i-9"}, "", True, id="it is another instance"),
        pytest.param({}, f"{machine_world.NAMESPACE}/another", True, id="it is another machine's"),
    ],
)
def test_an_unlinked_node_of_the_machines_name_goes_with_it(spec: dict[str, Any], note: str, stays: bool) -> None:
    world = machine_world.World()
    world.put()
    world.run(lambda: world.phase == "Provisioned")
    node = {**machine_world.node(), "spec": spec}
    if note:
        node["metadata"]["annotations"] = {"machine.openshift.io/machine": note}
    world.api.put(kinds.NODE, node)

    world.delete()
    world.run(lambda: world.is_gone)

    assert (world.api.have(kinds.NODE, machine_world.NAME) is not None) == stays
