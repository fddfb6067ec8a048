"""Nodes completed by what their machines know: instance, addresses, labels, and the taint of who waits for that."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.machines.runtime import errors, kinds
from tests.unit.machines.nodes_world import SPACE, WAITS, Scene, machine, node


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_node_is_told_its_instance_and_its_place(scene: Scene) -> None:
    scene.has(machine(), node())

    scene.reconcile()

    found = scene.node() or {}
    assert found["spec"]["providerID"] == "yard://i-1"
    assert found["metadata"]["labels"] == {
        "topology.kubernetes.io/zone": "quay-1",
        "topology.kubernetes.io/region": "north",
        "node.kubernetes.io/instance-type": "large",
    }


def test_a_kubelet_that_tells_its_own_addresses_is_not_contradicted(scene: Scene) -> None:
    scene.has(machine(), node())

    scene.reconcile()

    assert (scene.node() or {})["status"]["addresses"] == [{"type": "Hostname", "address": "m-1"}]


def test_a_node_that_waits_for_a_cloud_is_told_its_addresses_and_let_go(scene: Scene) -> None:
    other = {"key": "gpu", "effect": "NoSchedule"}
    scene.has(machine(), node(taints=[WAITS, other]))

    scene.reconcile()

    found = scene.node() or {}
    assert found["spec"]["taints"] == [other]
    assert {"type": "InternalIP", "address": "10.0.0.1"} in found["status"]["addresses"]
    assert {"type": "Hostname", "address": "m-1"} in found["status"]["addresses"]


def test_the_last_taint_leaves_no_list_behind(scene: Scene) -> None:
    scene.has(machine(), node(taints=[WAITS]))

    scene.reconcile()

    assert "taints" not in (scene.node() or {})["spec"]


@pytest.mark.parametrize(
    "things",
    [
        pytest.param([machine(provider="", linked="")], id="no instance is known yet"),
        pytest.param([], id="no machine"),
    ],
)
def test_a_node_that_waits_is_not_let_go_before_its_instance_is_known(
    scene: Scene, things: list[dict[str, Any]]
) -> None:
    scene.has(*things, node(taints=[WAITS]))

    scene.reconcile()

    assert (scene.node() or {})["spec"]["taints"] == [WAITS]


def nameless(found: dict[str, Any]) -> dict[str, Any]:
    """The same, with a name and without an address that others could reach."""
    found["status"]["addresses"] = [{"type": "InternalDNS", "address": "m-1"}]
    return found


def test_a_node_that_waits_is_not_let_go_before_it_can_have_an_address(scene: Scene) -> None:
    # Given a machine whose guest does not tell its addresses yet.
    scene.has(nameless(machine()), node(taints=[WAITS]))

    scene.reconcile()

    found = scene.node() or {}
    assert found["spec"]["taints"] == [WAITS]
    assert found["spec"]["providerID"] == "yard://i-1"

    # When it does.
    scene.has(machine())
    scene.reconcile()

    found = scene.node() or {}
    assert "taints" not in found["spec"]
    assert {"type": "InternalIP", "address": "10.0.0.1"} in found["status"]["addresses"]


def test_a_node_that_waits_with_an_address_of_its_own_is_let_go(scene: Scene) -> None:
    found = node(taints=[WAITS])
    found["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.1"}]
    scene.has(nameless(machine()), found)

    scene.reconcile()

    assert "taints" not in (scene.node() or {})["spec"]


def test_a_node_that_is_not_let_go_yet_is_not_told_as_complete(scene: Scene) -> None:
    scene.has(nameless(machine()), node(taints=[WAITS]))

    scene.reconcile()

    assert [sentence for sentence in scene.told if "complete" in sentence] == []


def test_another_instances_node_is_not_touched(scene: Scene) -> None:
    scene.has(machine(), node(provider="yard://i-9", taints=[WAITS]))

    scene.reconcile()

    assert scene.api.writes == []


def test_a_zone_that_is_set_stays(scene: Scene) -> None:
    found = node(provider="yard://i-1")
    found["metadata"]["labels"] = {"topology.kubernetes.io/zone": "mine"}
    scene.has(machine(), found)

    scene.reconcile()

    assert (scene.node() or {})["metadata"]["labels"]["topology.kubernetes.io/zone"] == "mine"


def test_a_complete_node_is_not_written_again(scene: Scene) -> None:
    scene.has(machine(), node(taints=[WAITS]))
    scene.reconcile()
    before = list(scene.api.writes)

    scene.reconcile()

    assert scene.api.writes == before


def test_taints_that_changed_meanwhile_are_not_overwritten(scene: Scene) -> None:
    scene.has(machine(), node(taints=[WAITS]))
    scene.nodes.step()
    scene.machines.step()
    scene.api.change(kinds.NODE, "m-1", "", lambda found: found["spec"]["taints"].append({"key": "new"}))

    with pytest.raises(errors.Conflict):
        scene.kept.reconcile("m-1")

    assert {"key": "new"} in (scene.node() or {})["spec"]["taints"]


def test_a_machine_that_changes_brings_its_node(scene: Scene) -> None:
    scene.has(machine(), node())
    scene.nodes.step()
    scene.machines.step()
    while (key := scene.keys.get(patience=0)) is not None:
        scene.keys.done(key)

    scene.api.change(kinds.MACHINE, "m-1", SPACE, lambda found: found["spec"].update(providerID="yard://i-1b"))
    scene.machines.step()

    assert scene.keys.get(patience=0) == "m-1"
