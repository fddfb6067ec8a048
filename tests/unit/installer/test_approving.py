"""The door is kept while the installation is waited for: our workers come in, nobody else does, and nothing breaks."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import threading
from collections.abc import Callable
from typing import Any

import pytest

from moorage.assets import values
from moorage.engine import clock as clocks
from moorage.engine import errors
from moorage.installer import approving, diagnosis, kube
from moorage.platforms import contract, registry
from moorage.platforms.none import manifests as none
from tests.unit.installer import door as doors
from tests.unit.installer import memory_api

WORKERS = doors.WORKERS
api = memory_api.api


@pytest.fixture
def door(api: memory_api.MemoryApi) -> doors.Door:
    return doors.Door(api)


def test_a_worker_of_ours_comes_in_and_gets_both_certificates(door: doors.Door) -> None:
    door.knock("csr-1", WORKERS[0])
    door.keeper.look()
    door.register(WORKERS[0])
    door.serve("csr-2", WORKERS[0])
    door.keeper.look()

    assert door.api.conditions("csr-1") == door.api.conditions("csr-2") == ["Approved"]
    assert door.told == [
        f"{WORKERS[0]} was let in: its client certificate is approved (csr-1)",
        f"{WORKERS[0]} was let in: its serving certificate is approved (csr-2)",
    ]


def test_strangers_are_neither_let_in_nor_asked_about(door: doors.Door) -> None:
    door.knock("csr-1", "berth-master-0")
    door.knock("csr-2", "stranger")
    door.knock("csr-3", f"{WORKERS[0]}x")

    door.keeper.look()

    assert [door.api.conditions(f"csr-{number}") for number in (1, 2, 3)] == [[], [], []]
    assert (door.told, door.platform.asked) == ([], [])
    assert not [call for call in door.api.calls if call.startswith("PUT")]


def test_whoever_takes_a_workers_name_is_not_let_in(door: doors.Door) -> None:
    door.knock("csr-1", WORKERS[0], username="system:serviceaccount:default:default")

    door.keeper.look()
    door.keeper.look()

    assert door.api.conditions("csr-1") == []
    assert door.told == [
        f"{WORKERS[0]} is not let in: system:serviceaccount:default:default is not who new machines ask as"
    ]


def test_the_address_of_another_node_is_not_a_workers(door: doors.Door) -> None:
    # Given a worker whose guest says that it has a master's address.
    door.platform.instances[WORKERS[0]] = dataclasses.replace(doors.UP, addresses=("10.0.0.31", "10.0.0.11"))
    door.register("berth-master-0", "10.0.0.11")
    door.register(WORKERS[0], "10.0.0.31", "10.0.0.11")
    door.serve("csr-1", WORKERS[0], "10.0.0.11")
    door.serve("csr-2", WORKERS[0], "10.0.0.31")

    door.keeper.look()

    assert (door.api.conditions("csr-1"), door.api.conditions("csr-2")) == ([], ["Approved"])
    assert f"{WORKERS[0]} is not let in: 10.0.0.11 is an address of berth-master-0 too" in door.told


def test_a_request_that_others_may_read_as_a_strangers_is_not_approved(door: doors.Door) -> None:
    """The cluster's signer passes over a block that does not begin its line, and signs the next one."""
    own, strangers = (base64.b64decode(doors.request_of(name)) for name in (WORKERS[0], "berth-master-0"))
    door.knock("csr-1", WORKERS[0], request=base64.b64encode(b"x" + own + strangers).decode())

    door.keeper.look()

    assert door.api.conditions("csr-1") == []


@pytest.mark.parametrize(
    ("instance", "words"),
    [
        (None, "the platform has no machine of this name"),
        (dataclasses.replace(doors.UP, ready=False, state="image_locked"), "its machine is image_locked"),
    ],
    ids=["none", "half made"],
)
def test_only_who_has_a_finished_machine_is_let_in(
    door: doors.Door, instance: contract.Instance | None, words: str
) -> None:
    door.platform.instances[WORKERS[0]] = instance
    door.knock("csr-1", WORKERS[0])

    door.keeper.look()

    assert door.api.conditions("csr-1") == []
    assert words in door.told[0]


def test_an_address_that_comes_late_is_waited_for_without_asking_all_the_time(door: doors.Door) -> None:
    door.platform.instances[WORKERS[0]] = dataclasses.replace(doors.UP, addresses=())
    door.register(WORKERS[0])
    door.serve("csr-1", WORKERS[0])
    for _ in range(3):
        door.keeper.look()
    assert door.platform.asked == [WORKERS[0]]
    assert door.told == [f"{WORKERS[0]} is not let in: the platform does not tell the addresses of {WORKERS[0]} yet"]

    door.platform.instances[WORKERS[0]] = doors.UP
    door.clock.advance(approving.FRESH)
    door.keeper.look()

    assert door.api.conditions("csr-1") == ["Approved"]


def test_who_is_left_outside_is_told_with_what_helps(door: doors.Door) -> None:
    # Given a machine whose addresses the platform never tells, and somebody who merely took the other's name
    door.platform.instances[WORKERS[0]] = dataclasses.replace(doors.UP, addresses=())
    door.register(WORKERS[0])
    door.serve("csr-1", WORKERS[0])
    door.knock("csr-2", WORKERS[1], username="system:serviceaccount:default:default")

    door.keeper.look()

    # Then nobody is advised to approve what is not in order
    assert door.keeper.left_outside() == [
        f"{WORKERS[0]} still waits for a certificate (the platform does not tell the addresses of {WORKERS[0]} yet); "
        "if it is yours: oc adm certificate approve csr-1"
    ]
    door.platform.instances[WORKERS[0]] = doors.UP
    door.clock.advance(approving.FRESH)
    door.keeper.look()
    assert door.keeper.left_outside() == []


def test_another_nodes_address_is_refused(door: doors.Door) -> None:
    door.register(WORKERS[0])
    door.serve("csr-1", WORKERS[0], "10.0.0.5")

    door.keeper.look()

    assert door.api.conditions("csr-1") == []
    assert door.told == [f"{WORKERS[0]} is not let in: 10.0.0.5 is not an address of {WORKERS[0]}"]


def test_the_two_hours_are_the_clusters_own(door: doors.Door) -> None:
    # Given a first run, half an hour after the machines were made.
    door.knock("csr-1", WORKERS[0], after=1800 + 2 * 3600)
    door.knock("csr-2", WORKERS[1], after=1800 + 2 * 3600 + 1)

    door.keeper.look()

    assert (door.api.conditions("csr-1"), door.api.conditions("csr-2")) == (["Approved"], [])


def test_who_goes_on_the_next_day_still_lets_the_workers_in(door: doors.Door) -> None:
    door.clock.advance(24 * 3600)
    door.arrive()
    door.knock("csr-1", WORKERS[0], after=24 * 3600 + 1800)

    door.keeper.look()

    assert door.api.conditions("csr-1") == ["Approved"]


def test_a_flood_of_requests_shuts_the_door(door: doors.Door) -> None:
    for number in range(103):
        door.knock(f"flood-{number}", f"nobody-{number}")
    door.knock("csr-1", WORKERS[0])

    door.keeper.look()

    assert door.api.conditions("csr-1") == []
    assert "104 requests are pending" in door.told[0]


def test_one_workers_trouble_does_not_keep_the_other_out(door: doors.Door) -> None:
    door.platform.troubles[WORKERS[0]] = [errors.Transient("the engine restarts", words="503")]
    door.knock("csr-1", WORKERS[0])
    door.knock("csr-2", WORKERS[1])

    door.keeper.try_to_look()

    assert (door.api.conditions("csr-1"), door.api.conditions("csr-2")) == ([], ["Approved"])
    assert door.told[-1] == "workers cannot be let in at the moment: the engine restarts: 503"
    door.keeper.try_to_look()
    assert door.api.conditions("csr-1") == ["Approved"]


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (kube.ClientDistrusted("who are you"), "who are you"),
        (kube.Forbidden("not you"), "not you"),
        (KeyError("metadata"), "KeyError"),
    ],
    ids=["distrust", "refusal", "a mistake of ours"],
)
def test_trouble_is_told_once_and_passes(door: doors.Door, trouble: Exception, words: str) -> None:
    door.api.troubles[f"GET {diagnosis.REQUESTS}"] = [trouble, trouble]
    door.knock("csr-1", WORKERS[0])

    for _ in range(3):
        door.keeper.try_to_look()

    assert [line for line in door.told if words in line] == door.told[:1]
    assert door.api.conditions("csr-1") == ["Approved"]


@pytest.mark.parametrize(
    "trouble",
    [kube.Refused("nobody"), kube.Unanswered("silence"), kube.UnknownAuthority("whose"), kube.Troubled("503")],
)
def test_an_api_that_does_not_answer_is_for_the_wait_to_tell(door: doors.Door, trouble: kube.ApiProblem) -> None:
    door.api.troubles[f"GET {diagnosis.REQUESTS}"] = [trouble]
    door.knock("csr-1", WORKERS[0])

    door.keeper.try_to_look()
    assert door.told == []

    door.keeper.try_to_look()
    assert door.api.conditions("csr-1") == ["Approved"]


def test_only_the_last_of_a_workers_requests_is_answered(door: doors.Door) -> None:
    # Given a kubelet that asked three times before anybody stood at the door.
    for number, after in enumerate((900.0, 2700.0, 1800.0)):
        door.knock(f"csr-{number}", WORKERS[0], after=after)

    door.keeper.look()
    door.register(WORKERS[0])
    door.keeper.look()

    assert [door.api.conditions(f"csr-{number}") for number in range(3)] == [[], ["Approved"], []]
    assert door.told == [f"{WORKERS[0]} was let in: its client certificate is approved (csr-1)"]


def test_a_newer_request_that_is_not_in_order_does_not_keep_the_worker_out(door: doors.Door) -> None:
    door.knock("csr-1", WORKERS[0], after=900.0)
    door.knock("csr-2", WORKERS[0], after=1800.0, usages=["digital signature", "client auth", "cert sign"])

    door.keeper.look()

    assert (door.api.conditions("csr-1"), door.api.conditions("csr-2")) == (["Approved"], [])


def test_a_worker_that_asks_again_after_it_was_let_in_is_answered_again(door: doors.Door) -> None:
    door.knock("csr-1", WORKERS[0], after=900.0)
    door.keeper.look()
    door.knock("csr-2", WORKERS[0], after=1800.0)
    door.keeper.look()

    assert door.api.conditions("csr-2") == ["Approved"]


def test_somebody_who_decides_first_is_no_trouble(door: doors.Door) -> None:
    door.knock("csr-1", WORKERS[0])
    door.api.troubles[f"PUT {diagnosis.REQUESTS}/csr-1/approval"] = [kube.Conflicting("it has changed")]

    door.keeper.try_to_look()

    assert door.told == []


# --- beside the wait ---------------------------------------------------------------------------------------------


class Berths(none.NoPlatform):
    """A platform whose first workers `create cluster` makes."""

    def __init__(self, names: tuple[str, ...] = WORKERS) -> None:
        self._names = names

    def worker_machines(self, context: Any) -> Any:
        return [{"metadata": {"name": name}, "spec": {"providerSpec": {"value": {"of": name}}}} for name in self._names]


def cluster() -> contract.Cluster:
    class Config:
        class platform:  # noqa: N801 - as the install-config has it
            name = "berths"

    class Mark:
        infra_id = "berth"

    endpoints = values.Endpoints("", "", "", "", ("10.0.0.5",), ("10.0.0.6",), ())
    built: Any = (Config(), Mark(), None, endpoints, {"worker": b"{ignition}"})
    return contract.Cluster(*built)


@pytest.fixture
def quick(door: doors.Door, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`letting_in` on a fast clock."""
    around = contract.Surroundings({}, clocks.Clock(speed=1000), lambda _line: None)
    door.clock = around.clock  # type: ignore[assignment]
    monkeypatch.setattr(registry, "manifests", lambda _name: Berths())
    monkeypatch.setattr(registry, "machines", lambda _name: door.platform)
    made = around.clock.wall() - datetime.timedelta(minutes=30)
    return lambda: approving.letting_in(cluster(), memory_api.DIRECTORY, around, made, door.told.append)


def test_workers_are_the_platforms(quick: Any) -> None:
    (first, second) = approving.workers(cluster())

    assert (first.name, second.name) == WORKERS
    assert (first.role, first.infra_id, first.provider_spec) == ("worker", "berth", {"of": WORKERS[0]})
    assert first.user_data == b"{ignition}"
    assert first.not_addresses == ("10.0.0.5", "10.0.0.6")


def test_the_door_is_kept_as_long_as_the_stage_lasts(door: doors.Door, quick: Any) -> None:
    letting = threading.Event()
    door.api.close = letting.set  # type: ignore[method-assign]
    door.knock("csr-1", WORKERS[0])

    with quick():
        _eventually(lambda: door.api.conditions("csr-1") == ["Approved"])

    assert not [thread for thread in threading.enumerate() if thread.name == "doorkeeper"]
    assert letting.is_set()
    door.knock("csr-2", WORKERS[1])
    assert door.api.conditions("csr-2") == []


def test_the_end_of_a_wait_by_an_error_ends_the_door_too(door: doors.Door, quick: Any) -> None:
    with pytest.raises(ValueError, match="the wait failed"), quick():
        raise ValueError("the wait failed")

    assert not [thread for thread in threading.enumerate() if thread.name == "doorkeeper"]


def test_a_wish_to_stop_ends_the_door_in_silence(door: doors.Door, quick: Any) -> None:
    door.api.troubles[f"GET {diagnosis.REQUESTS}"] = [errors.Interrupted()]

    with quick():
        _eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "doorkeeper"])

    assert door.told == []


def test_trouble_at_the_door_does_not_end_the_wait(door: doors.Door, quick: Any) -> None:
    door.api.troubles[f"GET {diagnosis.REQUESTS}"] = [kube.Forbidden("not you")] * 10_000

    with quick():
        _eventually(lambda: len(door.told) > 0)

    assert door.told == ["workers cannot be let in at the moment: not you"]


def test_a_platform_without_workers_of_ours_has_no_doorkeeper(
    door: doors.Door, quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "manifests", lambda _name: Berths(()))

    with quick():
        assert not [thread for thread in threading.enumerate() if thread.name == "doorkeeper"]
    assert door.api.calls == []


def test_a_platform_that_knows_no_machines_has_no_doorkeeper(
    door: doors.Door, quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_name: str) -> Any:
        raise registry.NotOffered("no machines there")

    monkeypatch.setattr(registry, "machines", missing)

    with quick():
        assert not [thread for thread in threading.enumerate() if thread.name == "doorkeeper"]


def _eventually(is_so: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(1000):
        if is_so():
            return
        waited.wait(0.01)
    raise AssertionError("it never came to that")
