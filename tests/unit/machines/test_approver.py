"""Letting nodes in: who is, who is not, who may come later, and that nothing else is ever approved."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.engine import clock as clocks
from moorage.machines import approval, approver, kubelets
from moorage.machines.runtime import errors, kinds, queue
from tests.unit.machines import followed, memory, two_readers
from tests.unit.machines import test_approval as rules
from tests.unit.machines.kubelet_side import NEW, OWN, Authority, node, signed

NODE, OTHER, SPACE = rules.NODE, rules.OTHER, "openshift-machine-api"


def machine(name: str = NODE, *, made: datetime.datetime = rules.MADE, **status: Any) -> dict[str, Any]:
    addresses = [
        {"type": "InternalIP", "address": "10.0.0.31"},
        {"type": "InternalDNS", "address": name},
        {"type": "Hostname", "address": name},
    ]
    return {
        "metadata": {"name": name, "namespace": SPACE, "creationTimestamp": memory.stamp(made)},
        "spec": {"providerID": "yard://1"},
        "status": {"addresses": addresses, **status},
    }


def named(request: dict[str, Any], name: str = "csr-7") -> dict[str, Any]:
    return {**request, "metadata": {**request["metadata"], "name": name}}


class Scene:
    """A cluster a while after the machine was made. ``shown`` is what its kubelet shows."""

    def __init__(self) -> None:
        self.clock = clocks.ManualClock(wall=rules.ASKED)
        self.api = memory.Memory(self.clock)
        kinds_ = (kinds.CSR, kinds.MACHINE, kinds.NODE)
        self.requests, self.machines, self.nodes = (followed.informer_of(self.api, each) for each in kinds_)
        self.told: list[str] = []
        self.shown: x509.Certificate | None = None
        self.trouble: Exception | None = None
        self.looks: list[str] = []
        self.keys = queue.Queue(self.clock)
        self.door = approver.Approver(
            self.api,  # type: ignore[arg-type]
            self.requests,
            self.machines,
            self.nodes,
            clock=self.clock,
            tell=self.told.append,
            shown=lambda found: self.look(found),
        )
        self.door.feed(self.keys)

    def look(self, found: Any) -> x509.Certificate:
        self.looks.append(found["metadata"]["name"])
        if self.trouble is not None:
            raise self.trouble
        if self.shown is None:
            raise kubelets.NotShown("nobody answers")
        return self.shown

    def has(self, *things: dict[str, Any]) -> None:
        for thing in things:
            is_machine, is_request = "namespace" in thing["metadata"], "signerName" in thing.get("spec", {})
            self.api.put(kinds.MACHINE if is_machine else kinds.CSR if is_request else kinds.NODE, thing)

    def refresh(self) -> None:
        for cache in (self.requests, self.machines, self.nodes):
            cache.step()

    def reconcile(self, key: str = "csr-7") -> float | None:
        self.refresh()
        return self.door.reconcile(key).requeue_after

    def approved(self, key: str = "csr-7") -> bool:
        found = (self.api.have(kinds.CSR, key) or {}).get("status", {}).get("conditions") or []
        return [(each["type"], each["status"]) for each in found] == [("Approved", "True")]

    def waiting(self) -> list[str]:
        found = []
        while (key := self.keys.get(patience=0)) is not None:
            found.append(key)
            self.keys.done(key)
        return found


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- new machines ------------------------------------------------------------------------------------------------


def test_a_new_machine_is_let_in(scene: Scene) -> None:
    scene.has(machine(), rules.client())

    again = scene.reconcile()

    assert scene.approved()
    assert again is None
    assert scene.told == [f"{NODE} was let in: its client certificate is approved (csr-7)"]


def without_instance() -> dict[str, Any]:
    found = machine()
    return {**found, "spec": {}, "status": {}}


def deleted() -> dict[str, Any]:
    found = machine()
    found["metadata"] |= {"deletionTimestamp": memory.stamp(rules.ASKED), "finalizers": ["x"]}
    return found


@pytest.mark.parametrize(
    ("things", "why"),
    [
        pytest.param([], "no machine was made", id="no machine"),
        pytest.param([machine(OTHER)], "no machine was made", id="another machine"),
        pytest.param([without_instance()], "has no instance yet", id="a machine without an instance"),
        pytest.param([deleted()], "is being deleted", id="a machine that goes"),
        pytest.param([machine(nodeRef={"name": NODE, "uid": "1"})], "is the node", id="a machine that is a node"),
        pytest.param([machine(), node()], "there is a node", id="a node of that name"),
        pytest.param(
            [machine(made=rules.ASKED - datetime.timedelta(hours=2, seconds=1))], "not when", id="an old machine"
        ),
        pytest.param([machine(made=rules.ASKED + datetime.timedelta(seconds=11))], "not when", id="a later machine"),
    ],
)
def test_who_is_not_let_in(scene: Scene, things: list[dict[str, Any]], why: str) -> None:
    scene.has(*things, rules.client())

    scene.reconcile()

    assert scene.api.writes == []
    assert why in scene.told[0]


def test_a_machine_that_goes_while_the_cache_is_behind_is_not_let_in(scene: Scene) -> None:
    scene.has(machine(), rules.client())
    scene.refresh()
    scene.has(deleted())

    scene.door.reconcile("csr-7")

    assert not scene.approved()


def test_a_node_that_the_cache_does_not_know_yet_keeps_the_door_shut(scene: Scene) -> None:
    scene.has(machine(), rules.client())
    scene.refresh()
    scene.has(node())

    again = scene.door.reconcile("csr-7").requeue_after

    assert not scene.approved()
    assert again == approver.AGAIN


def test_a_machine_that_has_become_a_node_behind_the_cache_is_not_let_in_twice(scene: Scene) -> None:
    scene.has(machine(), rules.client())
    scene.refresh()
    scene.has(machine(nodeRef={"name": "elsewhere", "uid": "1"}))

    scene.door.reconcile("csr-7")

    assert not scene.approved()


def test_a_name_that_is_only_external_lets_nobody_in(scene: Scene) -> None:
    found = machine(OTHER)
    found["status"]["addresses"] = [{"type": "ExternalDNS", "address": NODE}]
    scene.has(found, rules.client())

    scene.reconcile()

    assert not scene.approved()


# --- serving certificates ----------------------------------------------------------------------------------------


def test_a_node_gets_a_certificate_for_its_machines_addresses(scene: Scene) -> None:
    scene.has(machine(nodeRef={"name": NODE, "uid": "1"}), node(), rules.serving())

    scene.reconcile()

    assert scene.approved()
    assert scene.looks == []


def test_a_stranger_address_is_asked_of_the_kubelet_and_refused(scene: Scene) -> None:
    scene.has(machine(), node(), rules.serving(rules.csr(names=NEW)))
    scene.shown = signed(Authority(), NODE, OWN)

    scene.reconcile()

    assert scene.looks == [NODE]
    assert not scene.approved()


def test_what_the_kubelet_has_already_it_may_have_again(scene: Scene) -> None:
    scene.has(machine(), node(), rules.serving(rules.csr(names=NEW)))
    scene.shown = signed(Authority(), NODE, NEW)

    scene.reconcile()

    assert scene.approved()


def test_a_renewal_needs_no_machine(scene: Scene) -> None:
    scene.has(node(), rules.serving())
    scene.shown = signed(Authority(), NODE, OWN)

    scene.reconcile()

    assert scene.approved()


def test_the_certificate_of_another_node_renews_nothing(scene: Scene) -> None:
    scene.has(node(), rules.serving())
    scene.shown = signed(Authority(), OTHER, OWN)

    scene.reconcile()

    assert not scene.approved()


def test_an_expired_certificate_renews_nothing(scene: Scene) -> None:
    scene.has(node(), rules.serving())
    scene.shown = signed(Authority(), NODE, OWN, hours=-1)

    scene.reconcile()

    assert not scene.approved()


def test_a_kubelet_that_does_not_answer_is_asked_again_later(scene: Scene) -> None:
    scene.has(node(), rules.serving())

    assert scene.reconcile() == approver.AGAIN

    assert not scene.approved()
    assert "nobody answers" in scene.told[0]


def test_no_kubelet_is_asked_because_somebody_else_asks_in_its_name(scene: Scene) -> None:
    scene.has(node(), rules.serving(username=f"system:node:{OTHER}"))

    scene.reconcile()

    assert scene.looks == []


# --- limits and manners ------------------------------------------------------------------------------------------


def test_too_many_requests_stop_everything_and_are_counted(scene: Scene) -> None:
    scene.has(machine(), rules.client())
    scene.has(*(named(rules.client(), f"flood-{number}") for number in range(101)))

    again = scene.reconcile()

    assert not scene.approved()
    assert again == approver.AGAIN
    assert (approver.PENDING._value.get(), approver.MOST_PENDING._value.get()) == (102, 101)


def test_as_many_as_are_allowed_are_no_flood(scene: Scene) -> None:
    scene.has(machine(), rules.client())
    scene.has(*(named(rules.client(), f"other-{number}") for number in range(100)))

    scene.reconcile()

    assert scene.approved()


@pytest.mark.parametrize("decision", ["Approved", "Denied", "Failed"])
def test_what_is_decided_is_left_alone(scene: Scene, decision: str) -> None:
    request = rules.client()
    request["status"] = {"conditions": [{"type": decision, "status": "True"}]}
    scene.has(machine(), request)

    scene.reconcile()

    assert scene.api.writes == []


def test_a_request_that_changed_meanwhile_is_judged_anew(scene: Scene) -> None:
    scene.has(machine(), rules.client())
    scene.refresh()
    scene.api.change(kinds.CSR, "csr-7", "", lambda found: found["metadata"].update(labels={"new": "yes"}))

    with pytest.raises(errors.Conflict):
        scene.door.reconcile("csr-7")

    assert not scene.approved()
    scene.reconcile()
    assert scene.approved()


def test_what_is_left_pending_is_told_once(scene: Scene) -> None:
    scene.has(rules.client())

    scene.reconcile()
    scene.reconcile()

    assert len(scene.told) == 1


def test_a_request_is_looked_at_again_when_its_machine_comes(scene: Scene) -> None:
    scene.has(rules.client())
    scene.refresh()
    assert scene.waiting() == ["csr-7"]

    scene.has(machine(OTHER))
    scene.refresh()
    assert scene.waiting() == []

    scene.has(machine())
    scene.refresh()
    assert scene.waiting() == ["csr-7"]

    scene.has(node())
    scene.refresh()
    assert scene.waiting() == ["csr-7"]


SIGNERS = [approval.CLIENT, approval.SERVING, "kubernetes.io/kube-apiserver-client", "example.com/anything", ""]
USERS = [approval.BOOTSTRAPPER, f"system:node:{NODE}", f"system:node:{OTHER}", "system:admin", ""]
GROUPS = [rules.NEW_MACHINE["groups"], rules.ITSELF["groups"], ["system:masters"], []]
USAGES = [["digital signature", "client auth"], ["digital signature", "server auth"], ["any"], []]
BODIES = [
    rules.csr(),
    rules.csr(names=OWN),
    rules.csr(names=NEW),
    rules.csr(rules.subject("system:admin", ("system:masters",))),
    rules.csr(rules.subject(f"system:node:{OTHER}")),
    b"nonsense",
    *two_readers.blocks(two_readers.GOOD_CLIENT, two_readers.EVIL_CLIENT).values(),
    *two_readers.blocks(two_readers.GOOD_SERVING, two_readers.EVIL_SERVING).values(),
    *two_readers.ATTRIBUTES.values(),
]


CHOICES = (SIGNERS, USERS, GROUPS, USAGES, BODIES)
RIGHT = (
    (approval.CLIENT, approval.BOOTSTRAPPER, GROUPS[0], USAGES[0], BODIES[0]),
    (approval.SERVING, f"system:node:{NODE}", GROUPS[1], USAGES[1], BODIES[1]),
)


@st.composite
def asked(draw: st.DrawFn) -> tuple[Any, ...]:
    """A request that is right, or wrong in one or two points: the near misses are what matters."""
    found = list(draw(st.sampled_from(RIGHT)))
    for point in draw(st.lists(st.integers(0, len(CHOICES) - 1), max_size=2)):
        found[point] = draw(st.sampled_from(CHOICES[point]))
    return tuple(found)


@given(asked(), st.booleans(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_nothing_is_approved_but_the_two_things_a_machine_may_have(
    words: tuple[Any, ...], is_machine: bool, is_node: bool
) -> None:
    signer, user, groups, usages, body = words
    scene = Scene()
    scene.has(rules.asking(body, {"signerName": signer, "username": user, "groups": groups, "usages": usages}))
    scene.has(*([machine()] if is_machine else []), *([node()] if is_node else []))

    scene.reconcile()

    client, serving = RIGHT
    may = (words == client and is_machine and not is_node) or (words == serving and is_machine and is_node)
    assert scene.approved() == may
