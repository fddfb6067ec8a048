"""What is missing, in a sentence: a table of sights and words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage.installer import diagnosis
from tests.unit.installer.waiting_world import conditions, node, operator, request

FACTS = diagnosis.Facts(masters=3, workers=2)
SERVING = "kubelet-serving"


def masters(count: int) -> list[dict[str, Any]]:
    return [node(f"master-{number}") for number in range(count)]


@pytest.mark.parametrize(
    ("nodes", "requests", "words"),
    [
        ([], [], "none of 3 masters is a Node yet, none has asked for a certificate"),
        (masters(1), [], "1 of 3 masters is a Node, none of the others has asked for a certificate"),
        (masters(2), [], "2 of 3 masters are Nodes, the other one has not asked for a certificate"),
        (
            masters(1),
            [request("csr-1", "master-1")],
            "1 of 3 masters is a Node, master-1 waits for its certificate request csr-1 to be approved, "
            "1 more has not asked for a certificate",
        ),
        (
            masters(2),
            [request("csr-1", "master-2", Denied="True")],
            "2 of 3 masters are Nodes, the certificate request csr-1 of master-2 was denied",
        ),
        (
            masters(2),
            [request("csr-0", "master-0"), request("csr-2", "master-2", Approved="True")],
            "2 of 3 masters are Nodes, master-2 has been let in, but is no Node yet",
        ),
        (masters(3), [], "none of 2 workers is a Node yet, none has asked for a certificate"),
        (
            [*masters(3), node("w-0", "worker"), node("w-1", "worker", ("False", "no network plugin"))],
            [],
            "w-1 is not Ready: no network plugin",
        ),
        (
            [*masters(3), node("w-0", "worker"), node("w-1", "worker")],
            [request("csr-9", "w-1", SERVING)],
            "w-1 waits for its serving certificate to be approved",
        ),
        ([*masters(3), node("w-0", "worker"), node("w-1", "worker")], [], ""),
        (
            masters(1),
            [request("csr-1", "master-1"), request("csr-2", "master-2")],
            "1 of 3 masters is a Node, master-1, master-2 wait for their certificate requests csr-1, csr-2 to be "
            "approved",
        ),
        (
            [],
            [request(f"csr-{number}", f"master-{number}", Approved="True") for number in range(3)],
            "none of 3 masters is a Node yet, master-0, master-1, master-2 have been let in, but are no Nodes yet",
        ),
        (
            masters(1),
            [request("csr-1", "master-1", Denied="True"), request("csr-2", "master-2", Denied="True")],
            "1 of 3 masters is a Node, the certificate requests csr-1, csr-2 of master-1, master-2 were denied",
        ),
        (
            [node(f"master-{number}", ready=("False", "no plugin")) for number in range(3)],
            [],
            "none of 2 workers is a Node yet, none has asked for a certificate; 3 masters are not Ready: no plugin",
        ),
        (
            [
                *masters(2),
                node("master-2", ready=("False", "no plugin")),
                node("w-0", "worker", ("False", "no plugin")),
            ],
            [],
            "1 of 2 workers is a Node, the other one has not asked for a certificate; "
            "master-2 is not Ready: no plugin; w-0 is not Ready: no plugin",
        ),
        (
            [
                *(node(f"m-{number}", ready=("False", "no plugin")) for number in range(2)),
                node("m-2", ready=("Unknown", "silent")),
                *(node(f"w-{number}", "worker", ("Unknown", "silent")) for number in range(2)),
            ],
            [],
            "m-0, m-1 are not Ready: no plugin; m-2 is not Ready: silent; 2 workers are not Ready: silent",
        ),
    ],
)
def test_machines(nodes: list[dict[str, Any]], requests: list[dict[str, Any]], words: str) -> None:
    assert diagnosis.machines_missing(diagnosis.Sight(nodes=nodes, requests=requests), FACTS) == words


def test_a_single_node() -> None:
    told = diagnosis.machines_missing(diagnosis.Sight(), diagnosis.Facts(masters=1, workers=0))

    assert told == "the master is not a Node yet, it has not asked for a certificate"


def test_the_latest_request_of_a_machine_counts() -> None:
    old, new = request("csr-old", "master-2", Denied="True"), request("csr-new", "master-2")
    old["metadata"]["creationTimestamp"], new["metadata"]["creationTimestamp"] = "2026-01-01", "2026-01-02"

    told = diagnosis.machines_missing(diagnosis.Sight(nodes=masters(2), requests=[new, old]), FACTS)

    assert "csr-new" in told
    assert "csr-old" not in told


def test_without_facts_nothing_is_made_up() -> None:
    assert diagnosis.machines_missing(diagnosis.Sight(nodes=masters(1)), diagnosis.Facts()) == ""


@pytest.mark.parametrize(
    ("nodes", "requests", "facts", "role"),
    [
        ([], [], FACTS, "master"),
        (masters(2), [], FACTS, "master"),
        (masters(2), [request("csr-1", "master-2")], FACTS, "worker"),
        (masters(2), [request("csr-1", "master-2", Denied="True")], FACTS, "worker"),
        (masters(2), [request("csr-1", "master-2", SERVING)], FACTS, "master"),
        (masters(3), [], FACTS, "worker"),
        (masters(3), [request("csr-1", "w-0"), request("csr-2", "w-1")], FACTS, ""),
        ([*masters(3), node("w-0", "worker")], [request("csr-2", "w-1")], FACTS, ""),
        ([*masters(3), node("w-0", "worker"), node("w-1", "worker")], [], FACTS, ""),
        (masters(2), [], diagnosis.Facts(masters=3), "master"),
        (masters(3), [], diagnosis.Facts(masters=3), ""),
        ([], [], diagnosis.Facts(), ""),
    ],
)
def test_whose_machines_keep_silent(
    nodes: list[dict[str, Any]], requests: list[dict[str, Any]], facts: diagnosis.Facts, role: str
) -> None:
    assert diagnosis.silent(diagnosis.Sight(nodes=nodes, requests=requests), facts) == role


def test_a_machine_that_failed_says_why() -> None:
    machine = {"metadata": {"name": "m-0"}, "status": {"phase": "Failed", "errorMessage": "quota\n exceeded"}}

    told = diagnosis.machines_missing(diagnosis.Sight(nodes=masters(3), machines=[machine]), diagnosis.Facts(masters=3))

    assert told == "the machine m-0 has failed: quota exceeded"


def test_degraded_operators_come_first_and_long_lists_end() -> None:
    busy = [operator(f"a{number}", Progressing=("True", f"{number}" + "x" * 500)) for number in range(8)]
    ill = operator("zz", Degraded=("True", "ill"))
    away = operator("yy", Available=("False", "away"))

    told = diagnosis.operators_missing([*busy, away, ill]).split("; ")

    assert told[:2] == ["zz is degraded: ill", "yy is not available: away"]
    assert told[-1] == "and 4 more reasons"
    assert max(map(len, told)) < 300


def test_operators_with_the_same_trouble_are_told_of_together() -> None:
    rolling = [operator(f"a{number}", Available=("False", "rolled out")) for number in range(8)]
    waits = [
        operator(name, Available=("False", "no router"), Progressing=("True", "later")) for name in ("dns", "auth")
    ]
    alone = operator("etcd", Progressing=("True", "rolled out"))

    assert diagnosis.operators_missing([alone, *waits, *rolling]).split("; ") == [
        "a0, a1, a2, a3, a4, a5, and 2 more operators are not available: rolled out",
        "auth, dns are not available: no router",
        "etcd is progressing: rolled out",
    ]


def test_requests_of_others_are_left_alone() -> None:
    other = {"metadata": {"name": "csr-x"}, "spec": {"username": "system:admin", "request": "bm8="}, "status": {}}

    assert diagnosis.advice(diagnosis.Sight(requests=[other]), Path()) == ""


@pytest.mark.parametrize("shape", [{}, {"status": None}, {"status": {"conditions": None}}, {"status": conditions()}])
def test_objects_without_a_status_are_no_surprise(shape: dict[str, Any]) -> None:
    assert diagnosis.condition(shape, "Ready") == {}
