"""Nodes completed by what their machines know; and removed only when the instance is surely gone."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.engine import errors as platform_errors
from moorage.machines import nodelink, nodes, objects
from moorage.machines.runtime import errors, kinds, queue
from moorage.platforms import contract
from tests.unit.machines import followed, memory, yard

SPACE, INFRA = "openshift-machine-api", "berth-x7k2p"
WAITS = {"key": nodes.UNINITIALIZED, "value": "true", "effect": "NoSchedule"}


def machine(name: str = "m-1", *, provider: str = "yard://i-1", linked: str = "uid-n") -> dict[str, Any]:
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalDNS", "address": name}]
    status: dict[str, Any] = {"addresses": addresses}
    if linked:
        status["nodeRef"] = {"kind": "Node", "name": name, "uid": linked}
    labels = {objects.ZONE_LABEL: "quay-1", objects.REGION_LABEL: "north", objects.TYPE_LABEL: "large"}
    metadata = {"name": name, "namespace": SPACE, "labels": labels}
    return {"metadata": metadata, "spec": {"providerID": provider} if provider else {}, "status": status}


def node(
    name: str = "m-1", *, ready: str = "True", provider: str = "", taints: list[Any] | None = None, of: str = ""
) -> dict[str, Any]:
    spec: dict[str, Any] = {"providerID": provider} if provider else {}
    if taints:
        spec["taints"] = taints
    annotations = {objects.MACHINE_ANNOTATION: of} if of else {}
    conditions = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": name, "uid": "uid-n", "annotations": annotations},
        "spec": spec,
        "status": {"conditions": conditions, "addresses": [{"type": "Hostname", "address": name}]},
    }


class Scene:
    def __init__(self) -> None:
        self.clock = clocks.ManualClock()
        self.api = memory.Memory(self.clock)
        self.yard = yard.Yard(self.clock, building=0)
        self.actuator: contract.Actuator = self.yard
        self.nodes = followed.informer_of(self.api, kinds.NODE)
        self.machines = followed.informer_of(self.api, kinds.MACHINE)
        nodelink.index(self.machines)
        nodelink.index_nodes(self.nodes)
        self.told: list[str] = []
        self.leads = True
        self.keys = queue.Queue(self.clock)
        self.kept = nodes.Nodes(
            self.api,  # type: ignore[arg-type]
            self.nodes,
            self.machines,
            lambda: self.actuator,
            nodes.Place(INFRA, ("10.0.0.5",), SPACE),
            clock=self.clock,
            tell=self.told.append,
            check=self.check,
        )
        self.kept.feed(self.keys)

    def check(self) -> None:
        if not self.leads:
            raise errors.NotLeader("this process leads no longer")

    def has(self, *things: dict[str, Any]) -> None:
        for thing in things:
            self.api.put(kinds.MACHINE if "namespace" in thing["metadata"] else kinds.NODE, thing)

    def afloat(self, name: str = "m-1") -> None:
        """Its instance is there."""
        self.yard.create(contract.Machine(name, INFRA, "worker", {}, b""))

    def reconcile(self, name: str = "m-1") -> float | None:
        self.nodes.step()
        self.machines.step()
        return self.kept.reconcile(name).requeue_after

    def node(self, name: str = "m-1") -> dict[str, Any] | None:
        return self.api.have(kinds.NODE, name)

    def twice(self) -> None:
        """Look, and look again when it asked to."""
        again = self.reconcile()
        self.clock.advance(again or 0.0)
        self.reconcile()


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- completing --------------------------------------------------------------------------------------------------


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


# --- removing ----------------------------------------------------------------------------------------------------

GONE = node(ready="Unknown", provider="yard://i-1", of=f"{SPACE}/m-1")


def test_a_node_goes_when_the_platform_said_twice_that_its_instance_is_gone(scene: Scene) -> None:
    scene.has(machine(), GONE)

    again = scene.reconcile()
    assert again == nodes.APART
    assert scene.node() is not None

    scene.clock.advance(again)
    scene.reconcile()

    assert scene.node() is None
    assert scene.yard.verbs() == ["exists", "exists"]
    assert "node m-1 is removed" in scene.told[-1]


def test_two_answers_at_the_same_time_are_one(scene: Scene) -> None:
    scene.has(machine(), GONE)

    scene.reconcile()
    scene.clock.advance(nodes.APART - 1)
    again = scene.reconcile()

    assert again == 1
    assert scene.node() is not None


def test_a_node_whose_machine_is_gone_goes_too(scene: Scene) -> None:
    scene.has(GONE)

    scene.twice()

    assert scene.node() is None


@pytest.mark.parametrize(
    "things",
    [
        pytest.param([node(ready="Unknown")], id="of nobody"),
        pytest.param([node(ready="Unknown", provider="yard://i-1")], id="that no machine was linked to"),
        pytest.param([node(ready="Unknown", of=f"{SPACE}/m-1")], id="of which no instance is known"),
        pytest.param(
            [node(ready="Unknown", provider="yard://i-1", of="elsewhere/m-1")], id="of a machine that is not ours"
        ),
        pytest.param(
            [machine(linked=""), node(ready="Unknown", provider="yard://i-1")], id="of a machine that is not linked"
        ),
        pytest.param([machine(linked="another-uid"), GONE], id="of a machine that is linked to another"),
        pytest.param(
            [machine(provider="yard://i-2", linked=""), GONE], id="of a machine that is another instance by now"
        ),
    ],
)
def test_a_node_that_is_not_surely_ours_stays(scene: Scene, things: list[dict[str, Any]]) -> None:
    scene.has(*things)

    scene.twice()
    scene.clock.advance(10 * nodes.APART)
    scene.reconcile()

    assert scene.node() is not None
    assert scene.yard.calls == []


@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_node_that_reports_stays_and_nobody_is_asked(scene: Scene, ready: str) -> None:
    scene.has(machine(), node(ready=ready, provider="yard://i-1", of=f"{SPACE}/m-1"))

    assert scene.reconcile() is None

    assert scene.node() is not None
    assert scene.yard.calls == []


def test_a_node_whose_instance_is_there_stays_and_is_looked_at_again(scene: Scene) -> None:
    scene.afloat()
    scene.has(machine(), GONE)

    assert scene.reconcile() == nodes.AWAY

    scene.clock.advance(nodes.AWAY)
    scene.reconcile()
    assert scene.node() is not None


def test_a_silent_node_that_changes_often_does_not_make_the_platform_be_asked_often(scene: Scene) -> None:
    scene.afloat()
    scene.has(machine(), GONE)
    scene.reconcile()
    scene.clock.advance(nodes.AWAY / 2)

    assert scene.reconcile() == nodes.AWAY / 2

    assert scene.yard.verbs() == ["create", "exists"]


def test_an_instance_that_shows_again_makes_the_count_begin_anew(scene: Scene) -> None:
    scene.afloat()
    scene.yard.hide("m-1", 10)
    scene.has(machine(), GONE)
    scene.reconcile()
    scene.clock.advance(30)
    scene.reconcile()  # it is seen
    scene.yard.sink("m-1")
    scene.clock.advance(nodes.AWAY)

    again = scene.reconcile()

    assert again == nodes.APART
    assert scene.node() is not None


def test_an_error_is_no_answer_and_makes_the_count_begin_anew(scene: Scene) -> None:
    scene.has(machine(), GONE)
    scene.reconcile()
    scene.clock.advance(nodes.APART)
    scene.yard.fail("exists", platform_errors.Unauthorized("not you"))

    with pytest.raises(platform_errors.Unauthorized):
        scene.reconcile()
    assert scene.reconcile() == nodes.APART

    assert scene.node() is not None


def test_other_credentials_make_the_count_begin_anew(scene: Scene) -> None:
    """They may be for another platform, where none of our instances is."""
    scene.has(machine(), GONE)
    scene.reconcile()
    scene.clock.advance(nodes.APART)
    scene.actuator = yard.Yard(scene.clock)

    assert scene.reconcile() == nodes.APART

    assert scene.node() is not None


def test_a_node_that_recovers_at_the_last_moment_stays(scene: Scene) -> None:
    scene.has(machine(), GONE)
    scene.clock.advance(scene.reconcile() or 0.0)
    scene.nodes.step()
    scene.has(node(provider="yard://i-1"))

    scene.kept.reconcile("m-1")

    assert scene.node() is not None


def test_another_node_of_the_same_name_stays(scene: Scene) -> None:
    scene.has(machine(), GONE)
    scene.clock.advance(scene.reconcile() or 0.0)
    scene.nodes.step()
    scene.has({**GONE, "metadata": {**GONE["metadata"], "uid": "uid-2"}})

    scene.kept.reconcile("m-1")

    assert scene.node() is not None


def test_who_does_not_lead_any_more_removes_nothing(scene: Scene) -> None:
    scene.has(machine(), GONE)
    scene.clock.advance(scene.reconcile() or 0.0)
    scene.leads = False

    with pytest.raises(errors.NotLeader):
        scene.reconcile()

    assert scene.node() is not None


def test_the_platform_is_asked_by_the_clusters_mark_and_with_nothing_to_make_one_of(scene: Scene) -> None:
    asked: list[contract.Machine] = []

    class Listening(yard.Yard):
        def exists(self, machine: contract.Machine) -> contract.Instance | None:
            asked.append(machine)
            return super().exists(machine)

    scene.actuator = Listening(scene.clock)
    scene.has(machine(), GONE)
    scene.reconcile()

    assert asked == [contract.Machine("m-1", INFRA, "worker", {}, b"", "yard://i-1", ("10.0.0.5",))]


def test_a_machine_that_changes_brings_its_node(scene: Scene) -> None:
    scene.has(machine(), node())
    scene.nodes.step()
    scene.machines.step()
    while (key := scene.keys.get(patience=0)) is not None:
        scene.keys.done(key)

    scene.api.change(kinds.MACHINE, "m-1", SPACE, lambda found: found["spec"].update(providerID="yard://i-1b"))
    scene.machines.step()

    assert scene.keys.get(patience=0) == "m-1"
