"""What the approver spares others: kubelets are not dialled for nothing, and requests are not read over and over."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from cryptography import x509

from moorage.machines import approval, approver
from moorage.machines.runtime import errors, kinds
from tests.unit.machines import test_approval as rules
from tests.unit.machines.kubelet_side import NEW, OWN, Authority, node, signed
from tests.unit.machines.test_approver import NODE, OTHER, Scene, machine, named


@pytest.fixture
def scene() -> Scene:
    return Scene()


def unreadable() -> dict[str, Any]:
    request = rules.serving()
    request["spec"]["request"] = "AAAA"
    return request


# --- kubelets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(rules.serving(usages=["any"]), id="its usages"),
        pytest.param(rules.serving(groups=["system:nodes"]), id="its groups"),
        pytest.param(rules.serving(rules.csr()), id="no names"),
        pytest.param(rules.serving(rules.csr(names=[*OWN, x509.RFC822Name("a@example.org")])), id="a mail address"),
        pytest.param(rules.serving(rules.csr(rules.subject(organizations=()), OWN)), id="its organization"),
        pytest.param(rules.serving(username=f"system:node:{OTHER}"), id="another's name"),
        pytest.param(unreadable(), id="nothing to read"),
    ],
)
def test_no_kubelet_is_asked_about_a_request_that_no_certificate_can_mend(
    scene: Scene, request_: dict[str, Any]
) -> None:
    scene.has(node(), request_)

    assert scene.reconcile() is None

    assert scene.looks == []
    assert not scene.approved()


def test_no_kubelet_is_asked_in_a_flood(scene: Scene) -> None:
    scene.has(node(), rules.serving())
    scene.has(*(named(rules.serving(), f"flood-{number}") for number in range(101)))

    assert scene.reconcile() == approver.AGAIN

    assert scene.looks == []


@pytest.mark.parametrize("answers", [True, False], ids=["with a certificate", "with nothing"])
def test_a_kubelet_is_asked_once_for_many_requests(scene: Scene, answers: bool) -> None:
    scene.shown = signed(Authority(), NODE, OWN) if answers else None
    scene.has(machine(), node(), *(named(rules.serving(rules.csr(names=NEW)), f"csr-{each}") for each in (1, 2, 3)))

    again = [scene.reconcile(f"csr-{each}") for each in (1, 2, 3)]

    assert scene.looks == [NODE]
    assert again == [None if answers else approver.AGAIN] * 3
    assert len(scene.told) == 3
    assert all(answers or "nobody answers" in sentence for sentence in scene.told)


def test_a_kubelet_is_asked_again_when_its_answer_is_old(scene: Scene) -> None:
    scene.has(node(), rules.serving())
    again = scene.reconcile() or 0.0
    scene.clock.advance(again - 1)
    scene.reconcile()
    assert scene.looks == [NODE]

    # When it has come to life meanwhile.
    scene.shown = signed(Authority(), NODE, OWN)
    scene.clock.advance(1)
    scene.reconcile()

    assert scene.looks == [NODE, NODE]
    assert scene.approved()


def test_another_node_of_the_same_name_has_not_answered_yet(scene: Scene) -> None:
    scene.has(node(), rules.serving())
    scene.reconcile()

    reborn = node()
    reborn["metadata"]["uid"] = "another"
    scene.has(reborn)
    scene.shown = signed(Authority(), NODE, OWN)
    scene.reconcile()

    assert scene.approved()


def test_nobody_waits_for_a_kubelet_that_somebody_else_is_asking(scene: Scene) -> None:
    """An answer may take ten seconds, and there are few who ask."""
    scene.has(node(), rules.serving(), named(rules.serving(), "csr-8"))
    meanwhile: list[float | None] = []

    def slow(found: Any) -> x509.Certificate:
        if not meanwhile:
            meanwhile.append(0.0)
            meanwhile.append(scene.door.reconcile("csr-8").requeue_after)
        return Scene.look(scene, found)

    scene.look = slow  # type: ignore[method-assign]
    scene.reconcile()

    assert meanwhile == [0.0, approver.AGAIN]
    assert scene.looks == [NODE]


def test_an_api_that_does_not_say_who_signs_kubelets_is_not_asked_for_each_request(scene: Scene) -> None:
    scene.trouble = errors.Unavailable("nobody answers")
    scene.has(node(), rules.serving(), named(rules.serving(), "csr-8"))

    assert [scene.reconcile(), scene.reconcile("csr-8")] == [approver.AGAIN] * 2

    assert scene.looks == [NODE]


# --- counting ----------------------------------------------------------------------------------------------------


def count() -> float:
    return float(approver.PENDING._value.get())


def test_a_request_is_read_once_to_be_counted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    given = approval.pending_since

    def reading(request: Any) -> datetime.datetime | None:
        read.append(request["metadata"]["name"])
        return given(request)

    monkeypatch.setattr(approval, "pending_since", reading)
    names = [f"csr-{number}" for number in range(20)]
    scene.has(*(named(rules.client(), name) for name in names))

    for name in names:
        scene.reconcile(name)

    assert sorted(read) == sorted(names)
    assert count() == 20


def test_what_is_decided_or_gone_is_pending_no_more(scene: Scene) -> None:
    scene.has(machine(), rules.client(), named(rules.client(at=rules.ASKED), "csr-8"))
    scene.reconcile()
    assert count() == 2
    assert scene.approved()

    scene.reconcile()
    assert count() == 1

    scene.api.delete(kinds.CSR, "csr-8")
    scene.reconcile("csr-8")
    assert count() == 0


def test_what_is_an_hour_old_is_pending_no_more(scene: Scene) -> None:
    scene.has(rules.client())
    scene.reconcile()
    scene.clock.advance(3600)
    scene.reconcile()
    assert count() == 1

    scene.clock.advance(1)
    scene.reconcile()

    assert count() == 0
