"""The runtime against a server: what the client says is understood, caches are right, and one process leads."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import connection, election, errors, informer, kinds
from tests.kube import calls, objects
from tests.kube import cluster as clusters
from tests.machines import cutting

PATIENCE = calls.PATIENCE
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
    client: clients.Client,
    cluster: clusters.Cluster,
    namespace: str,
    follow: Callable[..., informer.Informer],
    cut_wire: Callable[[], cutting.Wire],
    through: Callable[[str], Path],
) -> None:
    for name in ("stays", "goes", "again"):
        client.create(kinds.MACHINE, machine(name, namespace))
    wire = cut_wire()
    found = follow(clients.Client(connection.from_kubeconfig(through(wire.url)), clocks.Clock()), namespace)
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
    client: clients.Client,
    cluster: clusters.Cluster,
    namespace: str,
    follow: Callable[..., informer.Informer],
    cut_wire: Callable[[], cutting.Wire],
    through: Callable[[str], Path],
) -> None:
    seed = random.randrange(1_000_000)
    print("seed", seed)
    chance = random.Random(seed)
    wire = cut_wire()
    found = follow(clients.Client(connection.from_kubeconfig(through(wire.url)), clocks.Clock(20)), namespace)
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
    calls.eventually(lambda: found.silent_for == 0, "it watches")
    began = time.monotonic()

    found.stop()

    assert not found.alive
    assert time.monotonic() - began < 3


# The election.


class Term:
    """When somebody who leads found that they do, in one stretch of leading."""

    def __init__(self) -> None:
        self.moments: list[float] = []


def test_no_two_lead_whatever_their_wires_do(
    client: clients.Client,
    namespace: str,
    unique: Unique,
    cut_wire: Callable[[], cutting.Wire],
    through: Callable[[str], Path],
) -> None:
    seed = random.randrange(1_000_000)
    print("seed", seed)
    chance = random.Random(seed)
    terms: list[Term] = []
    stop, name = threading.Event(), unique("lock")
    clock = clocks.Clock(speed=60)

    def lead(leading: election.Leading) -> None:
        term = Term()
        terms.append(term)
        while not stop.is_set():
            # The moment before the check is what that vouches for.
            moment = time.monotonic()
            leading.check()
            term.moments.append(moment)
            time.sleep(0.005)

    def stand(identity: str, wire: cutting.Wire) -> None:
        its = clients.Client(connection.from_kubeconfig(through(wire.url)), clock)
        while not stop.is_set():
            try:
                election.Election(its, name, namespace, identity, clock, shortest=0.0).run(lead, stop)
            except errors.NotLeader:
                continue

    wires = [cut_wire() for _ in range(3)]
    threads = [
        threading.Thread(target=stand, args=(f"candidate-{number}", wire), daemon=True)
        for number, wire in enumerate(wires)
    ]
    for thread in threads:
        thread.start()
    calls.eventually(lambda: terms, "somebody leads")
    until = time.monotonic() + 8
    while time.monotonic() < until:
        wire = chance.choice(wires)
        fault = chance.choice(["cut", "down", "mute", "lose"])
        if fault == "cut":
            wire.cut()
        elif fault == "down":
            wire.down = True
            wire.cut()
        elif fault == "mute":
            wire.muted.set()
        else:
            wire.losing = 0.3
        time.sleep(chance.uniform(0.1, 1.2))
        if chance.random() < 0.7:
            wire.down, wire.losing = False, 0.0
            wire.muted.clear()
    for wire in wires:
        wire.down, wire.losing = False, 0.0
        wire.muted.clear()
        wire.cut()
    before = time.monotonic()
    calls.eventually(lambda: any(term.moments and term.moments[-1] > before for term in terms), f"one leads ({seed})")
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)

    spans = sorted((term.moments[0], term.moments[-1]) for term in terms if term.moments)
    for (_, end), (begin, _) in itertools.pairwise(spans):
        assert end <= begin, f"two led at the same time (seed {seed})"


@pytest.fixture
def candidates(
    client: clients.Client, cluster: clusters.Cluster, namespace: str, unique: Unique
) -> Iterator[Callable[[str], Process]]:
    made: list[Process] = []
    name = unique("lock")

    def start(identity: str) -> Process:
        made.append(Process(str(cluster.kubeconfig()), namespace, name, identity))
        return made[-1]

    yield start
    for process in made:
        process.kill()


class Process:
    """A candidate in a process of its own, and what it said."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "tests.machines.candidate", *words]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
        self.lines: list[tuple[float, str]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            moment, _, what = line.strip().partition(" ")
            self.lines.append((float(moment), what))

    def said(self, what: str) -> bool:
        return any(words == what for _, words in self.lines)

    def moments(self, what: str) -> list[float]:
        return [moment for moment, words in self.lines if words == what]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        code = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def test_a_leader_that_was_stopped_past_its_lease_does_not_act_when_it_goes_on(
    candidates: Callable[[str], Process],
) -> None:
    first = candidates("first")
    calls.eventually(lambda: first.said("acts"), "the first leads")
    second = candidates("second")
    calls.eventually(lambda: second.said("stands"), "the second waits")
    assert not second.said("acts")

    first.signal(signal.SIGSTOP)
    calls.eventually(lambda: second.said("acts"), "the second leads")
    continued = time.monotonic()
    first.signal(signal.SIGCONT)
    assert first.wait() == 0

    assert first.lines[-2][1] == "does not lead"
    assert first.lines[-1][1] == "ended"
    acts = [moment for moment in first.moments("acts") if moment > continued]
    assert acts == [], "it acted after it had lost the lease"
    assert max(first.moments("acts")) < min(second.moments("acts"))
    last = second.moments("acts")[-1]
    calls.eventually(lambda: second.moments("acts")[-1] > last + 0.2, "the second goes on")
