"""Destroying a cluster on the lab's engine: all of it, half-made things included, and nothing of anybody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ovirtsdk4 import types

from moorage.engine import errors
from moorage.installer import destroy as removal
from moorage.lab.ovirt import controls, shape
from moorage.platforms import contract
from moorage.platforms.ovirt import destroy, names, transfer
from tests.unit.platforms_ovirt import engine_place
from tests.unit.platforms_ovirt.engine_place import INFRA

METADATA = contract.Metadata("ovirt", INFRA)
KINDS = ("vms", "templates", "disks", "tags", "affinity_groups", "disk_attachments")


def everything(place: engine_place.Place) -> dict[str, list[str]]:
    return {kind: sorted(str(each["id"]) for each in place.all(kind)) for kind in KINDS}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "ASKING", 60.0)


def tear_down(
    place: engine_place.Place, scope: contract.Scope = "cluster", patience: float = 1800.0
) -> removal.Destroyed:
    return removal.destroy(METADATA, scope, destroy, place.around, place.told.append, patience=patience)


def a_cluster(place: engine_place.Place) -> None:
    """Tags, a group, a template, a bootstrap and a master, complete and running."""
    place.tagged()
    place.group()
    place.running.tell(
        lambda: shape.add_template(place.running.engine, names.template(INFRA), names.mark(INFRA), "rhcos_x64")
    )
    made = names.template(INFRA)
    for name, role in (("bootstrap", "bootstrap"), ("master-0", "master")):
        wanted = place.machine(name, role, template_name=made, affinity_groups_names=[f"{INFRA}-controlplane"])
        place.actuator.create(wanted)
        place.until_ready(wanted)


def loose_disk(place: engine_place.Place, name: str, description: str) -> str:
    wanted = types.Disk(
        name=name,
        description=description,
        format=types.DiskFormat.COW,
        provisioned_size=1 << 30,
        storage_domains=[types.StorageDomain(id=place.id("storage_domains", "data"))],
    )
    made = place.client.call("make a disk", lambda api: api.disks_service().add(wanted))
    place.until(lambda: not place.running.tell(lambda: place.running.engine.locks.held("disks", made.id)))
    return str(made.id)


def test_all_goes_and_neighbours_stay(place: engine_place.Place) -> None:
    for other in (f"{INFRA}0", f"x-{INFRA}", f"{INFRA}-x", INFRA[:-1]):
        place.running.tell(lambda other=other: controls.neighbour(place.running.engine, other))
    place.foreign_vm(f"{INFRA}-master-7", "looks like one, but is not")
    loose_disk(place, f"{INFRA}-rhcos", "somebody's")
    before = everything(place)
    a_cluster(place)

    done = tear_down(place)

    assert everything(place) == before
    assert set(done.removed) == {
        f"VM {INFRA}-bootstrap",
        f"VM {INFRA}-master-0",
        f"template {INFRA}-rhcos",
        f"affinity group {INFRA}-controlplane",
        f"tag {INFRA}",
        f"tag {INFRA}-bootstrap",
    }


def test_what_was_left_half_made_goes_too(place: engine_place.Place) -> None:
    before = everything(place)
    place.tagged()
    untagged = place.machine()
    place.actuator.create(untagged)
    disk = loose_disk(place, names.template(INFRA), names.mark(INFRA))
    running = transfer.begin(place.client, disk, "cow", INFRA)
    place.until(lambda: transfer.look(place.client, running.id).phase == "transferring")

    done = tear_down(place)

    assert everything(place) == before
    assert f"image transfer {INFRA}-rhcos" in done.removed
    assert not transfer.look(place.client, running.id).live


def test_only_the_bootstrap_and_its_tag_go_when_only_they_are_meant(place: engine_place.Place) -> None:
    a_cluster(place)

    done = tear_down(place, "bootstrap")

    assert set(done.removed) == {f"VM {INFRA}-bootstrap", f"tag {INFRA}-bootstrap"}
    assert place.doc("vms", f"{INFRA}-master-0") is not None
    assert place.doc("tags", INFRA) is not None


def test_those_that_could_heal_go_before_what_they_would_heal(place: engine_place.Place) -> None:
    # Given a cluster with a worker, whose controllers live on its masters.
    a_cluster(place)
    worker = place.machine("worker-0-abcde", "worker", template_name=names.template(INFRA))
    place.actuator.create(worker)
    place.until_ready(worker)

    tear_down(place)

    told = [(event.state, event.resource) for event in place.told if event.state in ("deleting", "reverted")]
    assert told.index(("reverted", f"VM {INFRA}-master-0")) < told.index(("deleting", f"VM {INFRA}-worker-0-abcde"))


def test_what_controllers_made_in_their_last_moments_goes_too(
    place: engine_place.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given controllers that make one more worker after destroy has looked, before their master is off.
    before = everything(place)
    a_cluster(place)
    late = place.machine("worker-0-later", "worker", template_name=names.template(INFRA))
    look, looks = destroy.discover, iter(range(1000))

    def discover(*around: Any) -> Any:
        found = look(*around)
        if next(looks) == 0:
            place.actuator.create(late)
        return found

    monkeypatch.setattr(destroy, "discover", discover)

    done = tear_down(place)

    assert everything(place) == before
    assert f"VM {INFRA}-worker-0-later" in done.removed
    assert done.rounds > 1


@pytest.mark.usefixtures("impatient")
def test_what_will_not_go_is_told_in_the_engines_words_and_the_rest_goes(place: engine_place.Place) -> None:
    a_cluster(place)
    place.change("vms", f"{INFRA}-master-0", delete_protected=True)

    with pytest.raises(removal.LeftBehind) as left:
        tear_down(place, patience=60)

    told = {each.resource: each.words for each in left.value.left}
    assert "delete protect" in told[f"VM {INFRA}-master-0"].lower()
    assert place.doc("vms", f"{INFRA}-bootstrap") is None
    assert place.doc("vms", f"{INFRA}-master-0") is not None


def test_a_lock_of_another_tool_is_waited_for(place: engine_place.Place) -> None:
    before = everything(place)
    a_cluster(place)
    vm = place.id("vms", f"{INFRA}-master-0")
    place.running.tell(lambda: place.running.engine.locks.hold("vms", vm, "Cannot ${action} ${type}. VM is locked."))
    asked: list[str] = []

    def release(event: Any) -> None:
        if event.resource == f"VM {INFRA}-bootstrap" and type(event).__name__ == "Reverted":
            asked.append("released")
            place.running.tell(lambda: place.running.engine.locks.release("vms", vm))

    removal.destroy(METADATA, "cluster", destroy, place.around, release)

    assert asked
    assert everything(place) == before


@pytest.mark.usefixtures("impatient")
def test_a_template_that_somebody_else_uses_stays_with_a_reason(place: engine_place.Place) -> None:
    a_cluster(place)
    template = place.id("templates", names.template(INFRA))
    wanted = types.Vm(
        name="somebodys",
        cluster=types.Cluster(id=place.id("clusters", "Default")),
        template=types.Template(id=template),
    )
    place.client.call("make a VM of somebody's", lambda api: api.vms_service().add(wanted))
    place.until(lambda: place.doc("vms", "somebodys")["status"] == "down")  # type: ignore[index]

    with pytest.raises(removal.LeftBehind) as left:
        tear_down(place, patience=60)

    assert [each.resource for each in left.value.left] == [f"template {INFRA}-rhcos"]
    assert "somebodys" in left.value.left[0].words
    assert place.doc("vms", "somebodys") is not None


def test_an_engine_that_cannot_be_asked_is_not_an_empty_one(place: engine_place.Place, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.touch(mode=0o600)
    good = Path(place.around.environ["OVIRT_CONFIG"]).read_text()
    bad.write_text(good.replace("ovirt_password: ", "ovirt_password: not-"))
    around = contract.Surroundings({"OVIRT_CONFIG": str(bad)}, place.clock, lambda _line: None)

    with pytest.raises(errors.Unauthorized):
        removal.destroy(METADATA, "cluster", destroy, around, place.told.append)


def test_the_engine_may_restart_meanwhile(place: engine_place.Place) -> None:
    before = everything(place)
    a_cluster(place)
    place.running.tell(lambda: place.running.engine.restart(60))

    tear_down(place)

    assert everything(place) == before


def test_many_things_are_found_page_by_page(place: engine_place.Place) -> None:
    engine, mark = place.running.engine, names.mark(INFRA)
    place.running.tell(lambda: [shape.add_vm(engine, f"{INFRA}-worker-0-{at:03}", mark) for at in range(130)])

    found = destroy.discover(METADATA, "cluster", place.around)

    assert sum(1 for each in found if each.kind == "VM") == 130


def test_marks_are_exact() -> None:
    assert names.marked(names.mark("abc-12345"), "abc-12345")
    assert names.marked(names.mark("abc-12345", "control plane"), "abc-12345")
    for other in ("abc-123456", "abc-1234", "x-abc-12345", "abc-12345-x"):
        assert not names.marked(names.mark(other), "abc-12345")
    assert not names.marked(None, "abc-12345")
