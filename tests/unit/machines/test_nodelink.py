"""Which node is whose: every rule, those who pretend, and what is written where."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.machines import nodelink, objects
from moorage.machines.runtime import errors, kinds, queue
from tests.unit.machines import followed, memory

SPACE = "openshift-machine-api"


def machine(
    name: str = "m-1", *addresses: str, provider: str | None = None, node: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A machine with an instance of its own; ``provider`` names another, or none."""
    spec: dict[str, Any] = {"providerSpec": {"value": {"size": 1}}}
    if provider != "":
        spec["providerID"] = provider or f"yard://{name}"
    listed = [{"type": "InternalIP", "address": each} for each in addresses]
    status: dict[str, Any] = {"addresses": listed} if listed else {}
    if node:
        status["nodeRef"] = node
    return {"metadata": {"name": name, "namespace": SPACE}, "spec": spec, "status": status}


def node(name: str, *addresses: str, provider: str = "", uid: str = "") -> dict[str, Any]:
    listed = [{"type": "InternalIP", "address": each} for each in addresses]
    metadata = {"name": name, **({"uid": uid} if uid else {})}
    return {
        "metadata": metadata,
        "spec": {"providerID": provider} if provider else {},
        "status": {"addresses": [*listed, {"type": "Hostname", "address": name}]},
    }


class Scene:
    def __init__(self) -> None:
        self.clock = clocks.ManualClock()
        self.api = memory.Memory(self.clock)
        self.nodes = followed.informer_of(self.api, kinds.NODE)
        self.machines = followed.informer_of(self.api, kinds.MACHINE)
        nodelink.index(self.machines)
        nodelink.index_nodes(self.nodes)
        self.told: list[str] = []
        self.keys = queue.Queue(self.clock)
        self.link = nodelink.NodeLink(self.api, self.nodes, self.machines, self.told.append)  # type: ignore[arg-type]
        self.link.feed(self.keys)

    def has(self, *things: dict[str, Any]) -> None:
        for thing in things:
            self.api.put(kinds.MACHINE if "namespace" in thing["metadata"] else kinds.NODE, thing)

    def settle(self) -> None:
        """Bring the caches up to date, and look at all that has changed, until nothing does."""
        for _ in range(10):
            self.nodes.step()
            self.machines.step()
            if not len(self.keys):
                return
            while (key := self.keys.get(patience=0)) is not None:
                self.link.reconcile(key)
                self.keys.done(key)
        raise AssertionError("it never comes to rest")

    def linked(self, name: str = "m-1") -> str:
        return objects.node_name(self.api.have(kinds.MACHINE, name, SPACE) or {})

    def owner(self, name: str) -> str:
        return str(objects.notes(self.api.have(kinds.NODE, name) or {}).get(objects.MACHINE_ANNOTATION, ""))


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param(machine("m-1", provider="yard://1"), node("n-1", provider="yard://1"), id="the same instance"),
        pytest.param(machine("m-1"), node("m-1"), id="the name it was let in with"),
        pytest.param(machine("m-1", "10.0.0.7"), node("n-1", "10.0.0.7"), id="the same address"),
        pytest.param(machine("m-1", "10.0.0.7", provider="yard://1"), node("n-1", "10.0.0.7"), id="no id on it yet"),
    ],
)
def test_a_node_is_linked_both_ways(scene: Scene, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    scene.has(ours, theirs)

    scene.settle()

    assert scene.linked() == theirs["metadata"]["name"]
    assert scene.owner(theirs["metadata"]["name"]) == f"{SPACE}/m-1"
    reference = (scene.api.have(kinds.MACHINE, "m-1", SPACE) or {})["status"]["nodeRef"]
    assert reference == {
        "kind": "Node",
        "name": theirs["metadata"]["name"],
        "uid": (scene.api.have(kinds.NODE, theirs["metadata"]["name"]) or {})["metadata"]["uid"],
    }


@pytest.mark.parametrize(
    "things",
    [
        pytest.param([machine("m-1", "10.0.0.7"), node("n-1", "10.0.0.8")], id="another address"),
        pytest.param(
            [machine("m-1", "10.0.0.7", provider="yard://1"), node("n-1", "10.0.0.7", provider="yard://2")],
            id="another instance at the same address",
        ),
        pytest.param(
            [machine("m-1", provider="yard://1"), node("m-1", provider="yard://2")],
            id="another instance of the same name",
        ),
        pytest.param(
            [machine("m-1", "10.0.0.7"), machine("m-2", "10.0.0.7"), node("n-1", "10.0.0.7")],
            id="two machines fit",
        ),
        pytest.param([machine("m-1", provider=""), node("m-1")], id="a machine that never was an instance"),
        pytest.param(
            [machine("m-1", provider=""), node("m-1", provider="yard://2")], id="an instance, and not the machine's"
        ),
    ],
)
def test_doubt_links_nothing(scene: Scene, things: list[dict[str, Any]]) -> None:
    scene.has(*things)

    scene.settle()

    assert scene.api.writes == []


@pytest.mark.parametrize("copy", ["m-0", "m-2"])
def test_an_instance_that_was_copied_is_the_older_machines_node(scene: Scene, copy: str) -> None:
    scene.has(machine("m-1", provider="yard://1"))
    scene.clock.advance(10)
    scene.has(machine(copy, provider="yard://1"), node("n-1", provider="yard://1"))

    scene.settle()

    assert (scene.linked("m-1"), scene.linked(copy)) == ("n-1", "")
    assert scene.owner("n-1") == f"{SPACE}/m-1"


def test_a_name_counts_for_more_than_an_address(scene: Scene) -> None:
    """A kubelet tells its addresses itself; its name is in the certificate that it was given."""
    scene.has(machine("m-1", "10.0.0.7"), machine("m-2", "10.0.0.8"), node("m-1", "10.0.0.8"))

    scene.settle()

    assert (scene.linked("m-1"), scene.linked("m-2")) == ("m-1", "")


def test_a_machine_does_not_change_its_node_for_another(scene: Scene) -> None:
    scene.has(machine("m-1", "10.0.0.7"), node("m-1", "10.0.0.7"))
    scene.settle()

    scene.has(node("thief", "10.0.0.7"))
    scene.settle()

    assert (scene.linked(), scene.owner("thief")) == ("m-1", "")
    assert any("thief looks like machine m-1" in sentence for sentence in scene.told)


def test_a_node_that_comes_back_as_another_object_is_taken(scene: Scene) -> None:
    scene.has(machine("m-1"), node("m-1", uid="first"))
    scene.settle()

    scene.has(node("m-1", uid="second"))
    scene.settle()

    assert (scene.api.have(kinds.MACHINE, "m-1", SPACE) or {})["status"]["nodeRef"]["uid"] == "second"


def test_a_node_that_is_gone_stays_written_down_for_the_health_check(scene: Scene) -> None:
    scene.has(machine("m-1"), node("m-1"))
    scene.settle()

    scene.api.delete(kinds.NODE, "m-1")
    scene.settle()

    assert scene.linked() == "m-1"


def test_an_address_that_is_learnt_later_links_the_node_that_waited(scene: Scene) -> None:
    scene.has(machine("m-1"), node("n-1", "10.0.0.7"))
    scene.settle()
    assert scene.linked() == ""

    def learn(found: dict[str, Any]) -> None:
        found["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.7"}]

    scene.api.change(kinds.MACHINE, "m-1", SPACE, learn)
    scene.settle()

    assert scene.linked() == "n-1"


def test_an_instance_that_is_learnt_later_links_the_node_that_waited(scene: Scene) -> None:
    """The answer to its creation was lost, and the node was faster than whoever looked for the instance."""
    scene.has(machine("m-1", provider=""), node("m-1"))
    scene.settle()
    assert scene.linked() == ""

    scene.api.change(kinds.MACHINE, "m-1", SPACE, lambda found: found["spec"].update(providerID="yard://1"))
    scene.settle()

    assert scene.linked() == "m-1"


def test_the_node_bears_what_the_machine_wants(scene: Scene) -> None:
    wanted = machine("m-1")
    wanted["spec"]["metadata"] = {"labels": {"pool": "blue"}, "annotations": {"berth": "7"}}
    wanted["spec"]["taints"] = [{"key": "gpu", "effect": "NoSchedule"}]
    found = node("m-1")
    found["spec"]["taints"] = [{"key": "other", "effect": "NoExecute"}]
    scene.has(wanted, found)

    scene.settle()

    marked = scene.api.have(kinds.NODE, "m-1") or {}
    assert marked["metadata"]["labels"] == {"pool": "blue"}
    assert marked["metadata"]["annotations"] == {"berth": "7", objects.MACHINE_ANNOTATION: f"{SPACE}/m-1"}
    assert [each["key"] for each in marked["spec"]["taints"]] == ["other", "gpu"]


def test_a_taint_of_the_machine_that_was_taken_away_comes_back(scene: Scene) -> None:
    """The API promises so; who wants it gone takes it out of the Machine."""
    wanted = machine("m-1")
    wanted["spec"]["taints"] = [{"key": "gpu", "effect": "NoSchedule"}]
    scene.has(wanted, node("m-1"))
    scene.settle()

    scene.api.change(kinds.NODE, "m-1", "", lambda found: found["spec"].pop("taints"))
    scene.settle()

    assert (scene.api.have(kinds.NODE, "m-1") or {})["spec"]["taints"] == wanted["spec"]["taints"]


def test_what_is_linked_is_not_written_again(scene: Scene) -> None:
    scene.has(machine("m-1"), node("m-1"))
    scene.settle()
    before = list(scene.api.writes)

    scene.link.reconcile("m-1")

    assert scene.api.writes == before


def test_a_write_over_what_somebody_changed_meanwhile_is_refused(scene: Scene) -> None:
    scene.has(machine("m-1"), node("m-1"))
    scene.nodes.step()
    scene.machines.step()
    scene.api.change(kinds.MACHINE, "m-1", SPACE, lambda found: found["spec"].update(paused=True))

    with pytest.raises(errors.Conflict):
        scene.link.reconcile("m-1")


def test_a_machine_that_goes_meanwhile_is_no_trouble(scene: Scene) -> None:
    scene.has(machine("m-1"), node("m-1"))
    scene.nodes.step()
    scene.machines.step()
    scene.api.delete(kinds.MACHINE, "m-1", SPACE)

    scene.link.reconcile("m-1")

    assert scene.owner("m-1") == ""
