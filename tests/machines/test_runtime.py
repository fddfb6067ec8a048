"""The runtime against a server: what the client says is understood, and caches are right whatever the wire does."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import connection, errors, informer, kinds
from tests.kube import calls, objects
from tests.kube import cluster as clusters
from tests.machines import cutting

PATIENCE = calls.PATIENCE
# A cache that is filled over a wire which can be cut, at a speed of the clock.
ByWire = Callable[[float], tuple[cutting.Wire, informer.Informer]]
Unique = Callable[[str], str]


def machine(name: str, namespace: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {}}


def names(found: list[dict[str, Any]]) -> set[str]:
    return {each["metadata"]["name"] for each in found}


@pytest.fixture
def follow(request: pytest.FixtureRequest) -> Callable[..., informer.Informer]:
    def start(client: clients.Client, namespace: str, **options: Any) -> informer.Informer:
        found = informer.Informer(client, kinds.MACHINE, namespace=namespace, **options)
        request.addfinalizer(found.stop)
        found.start()
        assert found.wait_synced(PATIENCE)
        return found

    return start


@pytest.fixture
def follow_by_wire(
    namespace: str,
    follow: Callable[..., informer.Informer],
    cut_wire: Callable[[], cutting.Wire],
    through: Callable[[str], Path],
) -> ByWire:
    def start(speed: float) -> tuple[cutting.Wire, informer.Informer]:
        wire = cut_wire()
        api = connection.from_kubeconfig(through(wire.url))
        return wire, follow(clients.Client(api, clocks.Clock(speed)), namespace)

    return start


# The client.


def test_an_object_is_made_read_changed_and_gone(client: clients.Client, namespace: str) -> None:
    made = client.create(kinds.MACHINE, machine("a", namespace))
    with pytest.raises(errors.AlreadyExists):
        client.create(kinds.MACHINE, machine("a", namespace))

    client.patch(kinds.MACHINE, "a", namespace, {"status": {"phase": "Running"}}, subresource="status")
    client.patch(kinds.MACHINE, "a", namespace, {"spec": {"providerID": "x://1"}})
    found = client.get(kinds.MACHINE, "a", namespace)
    assert (found["status"]["phase"], found["spec"]["providerID"]) == ("Running", "x://1")

    with pytest.raises(errors.Conflict):
        client.replace(kinds.MACHINE, made)
    found["metadata"]["labels"] = {"a": "b"}
    assert client.replace(kinds.MACHINE, found)["metadata"]["labels"] == {"a": "b"}

    with pytest.raises(errors.Conflict):
        client.delete(kinds.MACHINE, "a", namespace, uid="another")
    client.delete(kinds.MACHINE, "a", namespace, uid=made["metadata"]["uid"])
    with pytest.raises(errors.NotFound):
        client.get(kinds.MACHINE, "a", namespace)


def test_a_part_is_applied_in_an_owners_name(client: clients.Client, namespace: str) -> None:
    client.create(kinds.MACHINE, machine("a", namespace, colour="red"))

    body = {"metadata": {"labels": {"colour": "blue"}}}
    found = client.patch(kinds.MACHINE, "a", namespace, body, type="apply", owner="painter")

    assert found["metadata"]["labels"] == {"colour": "blue"}
    assert "painter" in {each["manager"] for each in found["metadata"]["managedFields"]}


def test_what_makes_no_sense_and_what_is_forbidden_are_told_apart(
    client: clients.Client, cluster: clusters.Cluster, namespace: str
) -> None:
    with pytest.raises(errors.Invalid):
        client.create(kinds.MACHINE, {**machine("a", namespace), "spec": {"providerID": 7}})

    token = next(iter(clusters.TOKENS))
    stranger = connection.from_kubeconfig(cluster.token_kubeconfig(token, "stranger"))
    with pytest.raises(errors.Forbidden):
        clients.Client(stranger, clocks.Clock()).list(kinds.MACHINE, namespace)
    nobody = connection.from_kubeconfig(cluster.token_kubeconfig("no-such-token", "nobody"))
    with pytest.raises(errors.Unauthorized):
        clients.Client(nobody, clocks.Clock()).list(kinds.MACHINE, namespace)


def test_pages_are_one_moment_even_if_that_is_forgotten_in_between(
    client: clients.Client, cluster: clusters.Cluster, namespace: str
) -> None:
    for number in range(7):
        client.create(kinds.MACHINE, machine(f"m-{number}", namespace))
    pages: list[str] = []

    def forget(obj: dict[str, Any]) -> dict[str, Any]:
        pages.append(obj["metadata"]["name"])
        if len(pages) == 3:
            client.delete(kinds.MACHINE, "m-0", namespace)
            cluster.compact()
        return obj

    found, _ = client.list(kinds.MACHINE, namespace, limit=3, each=forget)

    assert names(found) == {f"m-{number}" for number in range(1, 7)}


def test_an_eviction_that_a_budget_forbids_says_so(
    client: clients.Client, admin: calls.Caller, namespace: str, unique: Unique
) -> None:
    node = unique("node")
    admin.post("/api/v1/nodes", objects.node(node)).got(201)
    client.create(kinds.POD, objects.pod("p", node, namespace=namespace, labels={"app": "a"}))
    budget = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "a"}}}
    client.create(kinds.PDB, {"metadata": {"name": "b", "namespace": namespace}, "spec": budget})
    ready = {"phase": "Running", "conditions": [objects.condition("Ready", "True")]}
    client.patch(kinds.POD, "p", namespace, {"status": ready}, subresource="status")
    calls.eventually(
        lambda: client.get(kinds.PDB, "b", namespace).get("status", {}).get("currentHealthy") == 1, "the budget counts"
    )

    with pytest.raises(errors.TooManyRequests) as refusal:
        client.evict(namespace, "p", grace=0)

    assert refusal.value.because("DisruptionBudget")
    client.delete(kinds.PDB, "b", namespace)
    calls.eventually(lambda: _evicted(client, namespace), "the pod may leave")
    admin.delete(f"/api/v1/nodes/{node}")


def _evicted(client: clients.Client, namespace: str) -> bool:
    try:
        client.evict(namespace, "p", grace=0)
    except errors.NotFound:
        return True
    except errors.TooManyRequests:
        return False
    return True


# The informer.


def test_a_cache_follows_what_happens(
    client: clients.Client, namespace: str, follow: Callable[..., informer.Informer]
) -> None:
    client.create(kinds.MACHINE, machine("old", namespace, role="worker"))
    found = follow(client, namespace)
    found.add_index("role", lambda obj: [obj["metadata"].get("labels", {}).get("role", "")])
    changes: list[str] = []
    found.on(lambda change: changes.append(f"{change.key} {change.old is not None} {change.new is not None}"))

    client.create(kinds.MACHINE, machine("new", namespace, role="worker"))
    client.patch(kinds.MACHINE, "old", namespace, {"metadata": {"labels": {"role": "master"}}})
    client.delete(kinds.MACHINE, "new", namespace)
    calls.eventually(lambda: len(changes) == 4, "all is told")

    assert changes == [
        f"{namespace}/old False True",
        f"{namespace}/new False True",
        f"{namespace}/old True True",
        f"{namespace}/new True False",
    ]
    assert names(found.by_index("role", "master")) == {"old"}
    assert found.by_index("role", "worker") == []


def test_a_cache_by_labels_loses_what_loses_its_label(
    client: clients.Client, namespace: str, follow: Callable[..., informer.Informer]
) -> None:
    client.create(kinds.MACHINE, machine("a", namespace, role="worker"))
    found = follow(client, namespace, labels="role=worker")
    assert names(found.list()) == {"a"}

    client.patch(kinds.MACHINE, "a", namespace, {"metadata": {"labels": {"role": "master"}}})

    calls.eventually(lambda: not found.list(), "it is gone from the cache")


def test_what_was_deleted_while_the_wire_was_cut_and_the_history_forgotten_is_noticed(
    client: clients.Client, cluster: clusters.Cluster, namespace: str, follow_by_wire: ByWire
) -> None:
    for name in ("stays", "goes", "again"):
        client.create(kinds.MACHINE, machine(name, namespace))
    wire, found = follow_by_wire(1)
    gone: list[str] = []
    found.on(lambda change: gone.append(change.object["metadata"]["name"]) if change.new is None else None)

    wire.down = True
    wire.cut()
    client.delete(kinds.MACHINE, "goes", namespace)
    client.delete(kinds.MACHINE, "again", namespace)
    client.create(kinds.MACHINE, machine("again", namespace))
    client.create(kinds.MACHINE, machine("comes", namespace))
    cluster.compact()
    wire.down = False

    calls.eventually(lambda: names(found.list()) == {"stays", "again", "comes"}, "the cache is right again")
    calls.eventually(lambda: sorted(gone) == ["again", "goes"], "both ends are told")


def test_a_cache_ends_right_whatever_its_wire_does(
    client: clients.Client, cluster: clusters.Cluster, namespace: str, follow_by_wire: ByWire
) -> None:
    seed = random.randrange(1_000_000)
    print("seed", seed)
    chance = random.Random(seed)
    wire, found = follow_by_wire(20)
    alive: set[str] = set()

    for _ in range(60):
        name = f"m-{chance.randrange(8)}"
        if name in alive:
            if chance.random() < 0.5:
                client.delete(kinds.MACHINE, name, namespace)
                alive.discard(name)
            else:
                client.patch(kinds.MACHINE, name, namespace, {"spec": {"providerID": f"x://{chance.random()}"}})
        else:
            client.create(kinds.MACHINE, machine(name, namespace))
            alive.add(name)
        wire.losing = chance.choice([0.0, 0.0, 0.3])
        if chance.random() < 0.2:
            wire.cut()
        if chance.random() < 0.1:
            cluster.compact()
        time.sleep(chance.choice([0.0, 0.0, 0.05]))
    wire.losing = 0.0

    def same() -> bool:
        there = {each["metadata"]["name"]: each for each in client.list(kinds.MACHINE, namespace)[0]}
        for each in there.values():
            each["metadata"].pop("managedFields", None)
        return {each["metadata"]["name"]: each for each in found.list()} == there

    calls.eventually(same, f"the cache is what the server has (seed {seed})")


def test_stopping_a_cache_does_not_wait_for_the_next_event(
    client: clients.Client, namespace: str, follow: Callable[..., informer.Informer]
) -> None:
    found = follow(client, namespace)
    calls.eventually(lambda: found._watch is not None and found._watch.opened, "it watches")
    began = time.monotonic()

    found.stop()

    assert not found.alive
    assert time.monotonic() - began < 3
