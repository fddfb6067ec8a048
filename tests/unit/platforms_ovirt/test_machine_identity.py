"""The VM of a machine is known from all others, removed for good, and made once however the engine answers."""

from __future__ import annotations

import dataclasses
from concurrent import futures

import pytest

from moorage.engine import errors, steps
from moorage.lab.ovirt import shape
from moorage.platforms import contract
from moorage.platforms.ovirt import infra, machine, names, vms
from tests.unit.platforms_ovirt import engine_place
from tests.unit.platforms_ovirt.engine_place import GROUP, INFRA, NO_INPUTS


@pytest.fixture
def place(place: engine_place.Place) -> engine_place.Place:
    place.tagged()
    place.group()
    return place


def node(place: engine_place.Place, wanted: contract.Machine) -> infra.Node:
    return infra.Node(name="master-0", machine=wanted, actuator=place.actuator, expected=60, timeout=3600)


def remove(place: engine_place.Place, wanted: contract.Machine, seconds: float = 6000.0) -> None:
    """Come again until it is surely gone."""

    def gone() -> bool | None:
        try:
            place.actuator.delete(wanted)
        except errors.NotFound:
            return True
        return None

    place.ctx(seconds=seconds).poll(gone, what="it to go", every=5.0)


# -- whose it is -------------------------------------------------------------------------------------------------------


def test_somebody_elses_vm_of_our_name_is_never_touched(place: engine_place.Place) -> None:
    wanted = place.machine()
    foreign = place.foreign_vm(wanted.name)
    known = dataclasses.replace(wanted, provider_id=names.provider_id(foreign))
    before = place.doc("vms", wanted.name)
    writes = len(place.traced)

    acts = [(act, each) for act in (place.actuator.exists, place.actuator.update) for each in (wanted, known)]
    for act, machine_ in [*acts, (place.actuator.delete, known)]:
        with pytest.raises(errors.Conflict, match="does not belong to the cluster") as conflict:
            act(machine_)
        assert "rename or remove" in conflict.value.remedy
    with pytest.raises(errors.NotFound):
        place.actuator.delete(wanted)
    with pytest.raises(errors.Conflict):
        place.actuator.create(wanted)

    assert place.doc("vms", wanted.name) == before
    assert place.writes(writes) == ["POST /vms"]


def test_an_engine_that_fails_to_search_is_no_word_of_its_being_gone(place: engine_place.Place) -> None:
    fault = "<fault><detail>[Internal Engine Error]</detail><reason>Operation Failed</reason></fault>"
    place.fault(
        "fail", "GET", "/ovirt-engine/api/vms", status=400, body=fault, headers={"Content-Type": "application/xml"}
    )

    with pytest.raises(errors.Conflict, match="look for"):
        place.actuator.delete(place.machine())


@pytest.mark.parametrize("neighbour", [f"{INFRA}-master-00", f"x-{INFRA}-master-0", f"{INFRA}-MASTER-0"])
def test_names_are_exact(neighbour: str, place: engine_place.Place) -> None:
    place.foreign_vm(neighbour, f"moorage: {INFRA}")

    assert place.actuator.exists(place.machine()) is None
    with pytest.raises(errors.NotFound):
        place.actuator.delete(place.machine())


def test_a_tag_of_ours_is_a_mark_as_good_as_the_description(place: engine_place.Place) -> None:
    wanted = place.machine()
    place.actuator.create(wanted)
    place.until_ready(wanted)
    place.change("vms", wanted.name, description="edited by an administrator")

    assert machine.Actuator(place.client).exists(wanted) is not None


def test_a_name_that_is_not_found_does_not_make_a_known_vm_gone(
    place: engine_place.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = place.machine()
    made = place.actuator.create(wanted)
    place.until_ready(wanted)
    monkeypatch.setattr(place.client, "named", lambda *_args, **_more: [])
    known = dataclasses.replace(wanted, provider_id=made.provider_id)

    assert machine.Actuator(place.client).exists(known) is not None
    machine.Actuator(place.client).delete(wanted)  # found by its tag: not a word of its being gone

    assert place.doc("vms", wanted.name)["status"] != "up"  # type: ignore[index]


def test_a_removal_says_when_it_is_ordered(place: engine_place.Place) -> None:
    """A VM that is being switched off is not one that goes by itself."""
    wanted = place.machine()
    place.actuator.create(wanted)
    place.until_ready(wanted)
    said = [place.actuator.delete(wanted)]
    place.until(lambda: place.doc("vms", wanted.name)["status"] == "down")  # type: ignore[index]

    said.append(place.actuator.delete(wanted))

    assert said == [False, True]
    place.until(lambda: place.doc("vms", wanted.name) is None)


def test_a_new_vm_of_the_same_name_is_not_taken_for_one_whose_id_is_known(place: engine_place.Place) -> None:
    wanted = place.machine()
    former = place.actuator.create(wanted)
    place.until_ready(wanted)
    known = dataclasses.replace(wanted, provider_id=former.provider_id)
    remove(place, known)
    anew = machine.Actuator(place.client)
    anew.create(wanted)
    place.until(lambda: str(place.doc("vms", wanted.name)["status"]) == "down")  # type: ignore[index]
    before = len(place.traced)

    for act in (place.actuator.update, place.actuator.delete, anew.update, anew.delete):
        with pytest.raises(errors.NotFound):
            act(known)

    assert place.writes(before) == []
    assert place.doc("vms", wanted.name) is not None


# -- removing ----------------------------------------------------------------------------------------------------------


def test_removal_stops_it_and_ends_only_when_it_and_its_disk_are_gone(place: engine_place.Place) -> None:
    wanted = place.machine()
    disks = len(place.all("disks"))
    made = place.actuator.create(wanted)
    place.until_ready(wanted)
    before = len(place.traced)

    remove(place, wanted)

    assert place.doc("vms", wanted.name) is None
    assert len(place.all("disks")) == disks
    assert place.writes(before) == [f"POST /vms/{made.id}/stop", f"DELETE /vms/{made.id}"]


def test_a_locked_vm_is_removed_later(place: engine_place.Place) -> None:
    wanted = place.machine()
    place.actuator.create(wanted)

    with pytest.raises(errors.Transient, match="is locked"):
        place.actuator.delete(wanted)
    remove(place, wanted)

    assert place.doc("vms", wanted.name) is None


# -- as a resource of the flow -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["apply-then-drop", "drop"])
@pytest.mark.parametrize("path", ["/ovirt-engine/api/vms", "/**/diskattachments/*", "/**/tags", "/**/start"])
def test_a_lost_reply_makes_no_second_vm_and_loses_nothing(action: str, path: str, place: engine_place.Place) -> None:
    wanted = place.machine(affinity_groups_names=[GROUP])
    for method in ("POST", "PUT"):
        place.fault(action, method, path)

    record = steps.bring_up(node(place, wanted), NO_INPUTS, place.ctx())

    ours = [each for each in place.all("vms") if each["name"] == wanted.name]
    assert [each["id"] for each in ours] == [record["id"]]
    assert place.id("tags", INFRA) in ours[0]["_tags"]
    assert ours[0]["status"] in ("powering_up", "up")


def test_an_engine_that_restarts_meanwhile_is_waited_for(place: engine_place.Place) -> None:
    wanted = place.machine()
    place.actuator.create(wanted)
    place.running.tell(lambda: place.running.engine.restart(60))

    record = steps.bring_up(node(place, wanted), NO_INPUTS, place.ctx())

    assert record["name"] == wanted.name


def test_a_node_is_rolled_back_to_nothing(place: engine_place.Place) -> None:
    thing = node(place, place.machine())
    steps.bring_up(thing, NO_INPUTS, place.ctx())

    assert steps.take_down(thing, NO_INPUTS, place.ctx())

    assert place.doc("vms", thing.machine.name) is None
    assert vms.find(place.client, thing.machine.name, INFRA) is None


def test_machines_that_are_made_together_look_their_template_up_once(place: engine_place.Place) -> None:
    wanted = [place.machine(f"master-{number}") for number in range(3)]

    with futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(place.actuator.create, wanted))

    assert place.calls().count("GET /templates") == 1


@pytest.mark.parametrize("dropped", [False, True])
def test_a_template_that_was_made_anew_is_found_by_its_name(
    dropped: bool, place: engine_place.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either the former one is still there under another name, or it is gone and the engine says so."""
    monkeypatch.setattr(machine, "TEMPLATE_FOR", 1e9 if dropped else 0.0)
    first, second = place.machine("worker-1"), place.machine("worker-2")
    place.actuator.create(first)
    engine, former = place.running.engine, place.id("templates", "somebodys-rhcos")
    if dropped:
        place.running.tell(lambda: engine.inventory.remove("templates", former))
    else:
        place.running.tell(lambda: engine.inventory.get("templates", former).update(name="former"))
    place.running.tell(lambda: shape.add_template(engine, "somebodys-rhcos", "newer", "rhcos_x64"))
    if dropped:
        with pytest.raises(errors.NotFound, match="make VM"):
            place.actuator.create(second)

    place.actuator.create(second)

    assert place.doc("vms", second.name)["template"]["id"] == place.id("templates", "somebodys-rhcos")  # type: ignore[index]


def test_no_machine_is_given_up_while_its_template_is_made_anew(
    place: engine_place.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "TEMPLATE_FOR", 0.0)
    place.actuator.create(place.machine("worker-1"))
    engine, former = place.running.engine, place.id("templates", "somebodys-rhcos")
    place.running.tell(lambda: engine.inventory.remove("templates", former))

    with pytest.raises(errors.Transient, match="there is no template somebodys-rhcos any more"):
        place.actuator.create(place.machine("worker-2"))
    with pytest.raises(errors.Terminal, match="there is no template"):
        machine.Actuator(place.client).create(place.machine("worker-2"))

    place.running.tell(lambda: shape.add_template(engine, "somebodys-rhcos", "newer", "rhcos_x64"))
    assert place.actuator.create(place.machine("worker-2")).id


def test_a_tag_that_was_taken_off_is_missed_and_given_again_to_a_vm_that_runs(place: engine_place.Place) -> None:
    wanted = place.machine()
    made = place.actuator.create(wanted)
    place.until_ready(wanted)
    place.change("vms", wanted.name, _tags=[])
    before = len(place.traced)

    missed = place.actuator.exists(wanted)
    place.actuator.update(wanted)

    assert missed is not None
    assert (missed.ready, missed.waiting_for) == (False, f"its tag {INFRA}, which somebody has taken off")
    assert place.writes(before) == [f"POST /vms/{made.id}/tags"]
    assert place.actuator.update(wanted).ready
