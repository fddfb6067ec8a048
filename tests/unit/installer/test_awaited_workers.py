"""Why workers that the cluster makes itself are missing: a table of what is seen and what is said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from moorage.installer import awaited_workers, diagnosis
from tests.unit.installer.waiting_world import node, request

HERE = Path()
FACTS = diagnosis.Facts(masters=3, workers=2)
MASTERS = [node(f"master-{number}") for number in range(3)]
IMAGE = "registry.example.com/moorage:demo"
THEY = "the machine controllers (Deployment openshift-machine-api/moorage-machine-api) do not run"
NOBODY = "none of 2 workers is a Node yet, none has asked for a certificate"


def machine(name: str, phase: str = "", role: str = "worker", **status: Any) -> dict[str, Any]:
    labels = {"machine.openshift.io/cluster-api-machine-role": role}
    return {"metadata": {"name": name, "labels": labels}, "status": {**({"phase": phase} if phase else {}), **status}}


def machine_set(wanted: int = 2, there: int = 2) -> dict[str, Any]:
    return {"metadata": {"name": "pool"}, "spec": {"replicas": wanted}, "status": {"replicas": there}}


def deployment(available: int) -> dict[str, Any]:
    return {"metadata": {"name": "moorage-machine-api"}, "status": {"availableReplicas": available}}


def pod(**container: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"image": IMAGE, **container}]}}


def unpulled(reason: str = "ImagePullBackOff", message: str = "not found") -> dict[str, Any]:
    return pod(state={"waiting": {"reason": reason, "message": message}})


UNSCHEDULED = {
    "metadata": {"name": "p"},
    "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]},
}


def told(
    makers: awaited_workers.Sight, machines: Sequence[dict[str, Any]] = (), *, nodes: Any = MASTERS, **seen: Any
) -> list[str]:
    sight = diagnosis.Sight(nodes=nodes, machines=machines, makers=makers, **seen)
    return diagnosis.machines_missing(sight, FACTS).split("; ")


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([unpulled()], f"{THEY}: the image {IMAGE} cannot be pulled: not found"),
        (
            [pod(state={"running": {}}), unpulled("ErrImagePull")],
            f"{THEY}: the image {IMAGE} cannot be pulled: not found",
        ),
        ([unpulled("InvalidImageName", "")], f"{THEY}: the image {IMAGE} cannot be pulled: InvalidImageName"),
        (
            [
                pod(
                    state={"waiting": {"reason": "CrashLoopBackOff"}},
                    lastState={"terminated": {"exitCode": 3, "message": "starting\nerror: no Infrastructure\n"}},
                )
            ],
            f"{THEY}: they ended with 3, saying: error: no Infrastructure",
        ),
        ([UNSCHEDULED], f"{THEY}: no node takes them: 0/3 nodes are available"),
        ([pod(state={"waiting": {"reason": "ContainerCreating"}})], f"{THEY} yet"),
        ([], f"{THEY} yet"),
    ],
    ids=["unpulled", "one of two", "no message", "ends", "homeless", "starting", "no pods"],
)
def test_controllers_that_do_not_run(pods: list[dict[str, Any]], words: str) -> None:
    makers = awaited_workers.Sight([machine_set(there=0)], deployment(0), pods)

    assert told(makers) == [NOBODY, words, "the MachineSet pool has made 0 of 2 machines"]


@pytest.mark.parametrize("found", [deployment(1), {}], ids=["at work", "not in this cluster"])
def test_controllers_with_which_nothing_is_wrong_are_no_matter(found: dict[str, Any]) -> None:
    assert told(awaited_workers.Sight([machine_set()], found, [unpulled()])) == [NOBODY]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (machine("w"), "the machine w is new, and waits for a controller to look at it"),
        (
            machine("w", "Provisioning", lastOperation={"state": "Processing", "description": "its disk to be ready"}),
            "the machine w is Provisioning, and waits for its disk to be ready",
        ),
        (
            machine(
                "w",
                "Provisioning",
                conditions=[{"type": "InstanceExists", "status": "Unknown", "message": "the engine does not answer"}],
            ),
            "the machine w is Provisioning: the engine does not answer",
        ),
        (
            machine("w", "Provisioned"),
            "the machine w is Provisioned, and waits to become a node: it has not asked for a certificate yet",
        ),
    ],
    ids=["untouched", "last operation", "condition", "provisioned"],
)
def test_machines_say_what_they_wait_for(found: dict[str, Any], words: str) -> None:
    assert told(awaited_workers.Sight([machine_set()], deployment(2)), [found]) == [NOBODY, words]


def test_machines_that_wait_for_the_same_are_told_of_together() -> None:
    some = [machine("w-0", "Provisioned"), machine("w-1", "Provisioned"), machine("w-2", "Running")]

    assert told(awaited_workers.Sight([machine_set()], deployment(2)), some)[1:] == [
        "the machines w-0, w-1 are Provisioned, and wait to become a node: it has not asked for a certificate yet",
        "the machine w-2 is Running, and waits for its instance to be complete",
    ]


def test_a_failed_machine_is_told_once() -> None:
    failed = machine("w", "Failed", errorReason="InvalidConfiguration", errorMessage="there is no template t")

    assert told(awaited_workers.Sight(), [failed]) == [NOBODY, "the machine w has failed: there is no template t"]


def test_masters_and_those_that_are_nodes_are_not_named() -> None:
    machines = [machine("m", role="master"), machine("w-0", "Running", nodeRef={"name": "w-0"})]

    said = told(awaited_workers.Sight(), machines, nodes=[*MASTERS, node("w-0", "worker")])

    assert said == ["1 of 2 workers is a Node, the other one has not asked for a certificate"]


def test_one_that_knocks_is_named_with_its_request() -> None:
    said = told(awaited_workers.Sight(), [machine("w-0", "Provisioned")], requests=[request("csr-1", "w-0")])

    assert said[1] == "the machine w-0 is Provisioned, and waits to be let in: request csr-1 is pending"


@pytest.mark.parametrize("nodes", [MASTERS[:2], [*MASTERS, node("w-0", "worker"), node("w-1", "worker")]])
def test_nothing_is_said_of_them_before_the_masters_are_there_or_when_all_is_well(nodes: Any) -> None:
    makers = awaited_workers.Sight([machine_set(there=0)], deployment(0), [unpulled()])

    assert not [each for each in told(makers, [machine("w")], nodes=nodes) if "machine" in each]


def test_what_to_do_about_an_image_that_cannot_be_pulled() -> None:
    sight = diagnosis.Sight(makers=awaited_workers.Sight((), deployment(0), [unpulled()]))

    advice = diagnosis.advice(sight, HERE)

    assert f"push {IMAGE} to where the nodes can pull it" in advice
    assert "oc -n openshift-machine-api set image deployment/moorage-machine-api" in advice
    assert advice.endswith("moorage machine-api run")


def test_where_to_see_more_of_controllers_that_end_and_of_machines_that_wait() -> None:
    ended = awaited_workers.Sight((), deployment(0), [pod(lastState={"terminated": {"exitCode": 3}})])
    at_work = awaited_workers.Sight((), deployment(1))

    assert diagnosis.advice(diagnosis.Sight(makers=ended), HERE) == (
        "see all they said: oc -n openshift-machine-api logs deployment/moorage-machine-api --previous"
    )
    assert diagnosis.advice(diagnosis.Sight(makers=at_work, machines=[machine("w", "Provisioning")]), HERE) == (
        "see what each waits for: moorage machines --once"
    )
    assert diagnosis.advice(diagnosis.Sight(makers=at_work, machines=[machine("m", role="master")]), HERE) == ""


@pytest.mark.parametrize(
    ("available", "pods", "command"),
    [(0, [unpulled()], "moorage machine-api run"), (1, [], "moorage machines --once")],
)
def test_what_is_to_be_typed_is_for_this_cluster_wherever_its_folder_is(
    available: int, pods: list[Any], command: str
) -> None:
    """Without the folder it would end with an error, or find another cluster by KUBECONFIG."""
    makers = awaited_workers.Sight((), deployment(available), pods)
    sight = diagnosis.Sight(makers=makers, machines=[machine("w", "Provisioning")])

    assert diagnosis.advice(sight, Path("my clusters/harbour")).endswith(f": {command} --dir 'my clusters/harbour'")


@pytest.mark.parametrize(("replicas", "words"), [(1, ""), (3, "1 of 3 workers is a Node")])
def test_as_many_workers_are_missed_as_their_sets_are_to_have(replicas: int, words: str) -> None:
    scaled = machine_set()
    scaled["spec"]["replicas"] = replicas

    said = diagnosis.machines_missing(
        diagnosis.Sight(nodes=[*MASTERS, node("w-0", "worker")], makers=awaited_workers.Sight([scaled], deployment(2))),
        diagnosis.Facts(masters=3, workers=2),
    )

    assert said.partition(",")[0] == words


@pytest.mark.parametrize(
    "makers",
    [
        awaited_workers.Sight((), deployment(1), [unpulled()]),
        awaited_workers.Sight((), deployment(0), [UNSCHEDULED]),
        awaited_workers.Sight(),
    ],
)
def test_otherwise_there_is_no_advice(makers: awaited_workers.Sight) -> None:
    assert diagnosis.advice(diagnosis.Sight(makers=makers), HERE) == ""


class Reader:
    """An API that has these things, and remembers what it was asked for."""

    def __init__(self, **found: Any) -> None:
        self.found = found
        self.asked: list[str] = []

    def get(self, path: str) -> Any:
        self.asked.append(path)
        return self.found.get(path.partition("?")[0].rpartition("/")[2], {})


@pytest.mark.parametrize(("available", "looks"), [(0, 1), (1, 0)])
def test_pods_are_looked_at_only_when_nobody_is_at_work(available: int, looks: int) -> None:
    reader: Any = Reader(**{"moorage-machine-api": deployment(available), "pods": {"items": [unpulled()]}})

    makers = diagnosis.look(reader).makers

    assert reader.asked.count(awaited_workers.PODS) == looks
    assert len(makers.pods) == looks
    assert awaited_workers.SETS in reader.asked
