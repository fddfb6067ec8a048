"""Volumes that the cluster's users have on its machines: they stay when a VM goes, whoever removes it and however."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ovirtsdk4 import types

from moorage.engine import errors
from moorage.installer import destroy as removal
from moorage.platforms import contract
from moorage.platforms.ovirt import destroy, machine, names, vms
from tests.unit.platforms_ovirt import engine_place
from tests.unit.platforms_ovirt.engine_place import INFRA

GIB = 1024**3


@pytest.fixture
def place(place: engine_place.Place) -> engine_place.Place:
    place.tagged()
    return place


def a_worker(place: engine_place.Place, name: str = "worker-0-abcde") -> contract.Instance:
    wanted = place.machine(name, "worker")
    place.actuator.create(wanted)
    return place.until_ready(wanted)


def volume(place: engine_place.Place, vm_id: str, name: str, description: str = "made by a CSI driver") -> str:
    """A disk as a CSI driver makes and attaches it."""
    wanted = types.Disk(
        name=name,
        description=description,
        format=types.DiskFormat.COW,
        provisioned_size=GIB,
        storage_domains=[types.StorageDomain(id=place.id("storage_domains", "data"))],
    )
    made = place.client.call("make a volume", lambda api: api.disks_service().add(wanted))
    place.until(lambda: not place.running.tell(lambda: place.running.engine.locks.held("disks", made.id)))
    attach(place, vm_id, made.id)
    return str(made.id)


def attach(place: engine_place.Place, vm_id: str, disk_id: str) -> None:
    wanted = types.DiskAttachment(
        disk=types.Disk(id=disk_id), interface=types.DiskInterface.VIRTIO_SCSI, bootable=False, active=True
    )
    place.client.call(
        "attach a volume", lambda api: api.vms_service().vm_service(vm_id).disk_attachments_service().add(wanted)
    )


def disks(place: engine_place.Place) -> set[str]:
    return {str(each["id"]) for each in place.all("disks")}


def remove(place: engine_place.Place, wanted: contract.Machine, again: Callable[[], None] = lambda: None) -> None:
    """Come again until it is surely gone, with another process each time, past whatever is said meanwhile."""

    def gone() -> bool | None:
        again()
        try:
            machine.Actuator(place.client).delete(wanted)
        except errors.NotFound:
            return True
        return None

    place.ctx(seconds=6000.0).poll(gone, what="it to go", every=5.0)


# -- a machine goes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
def test_a_machine_goes_without_the_volumes_that_it_had(count: int, place: engine_place.Place) -> None:
    before = disks(place)
    made = a_worker(place)
    volumes = {volume(place, made.id, f"pvc-{number}") for number in range(count)}
    since = len(place.traced)

    remove(place, place.machine("worker-0-abcde", "worker"))

    assert place.doc("vms", f"{INFRA}-worker-0-abcde") is None
    assert disks(place) == before | volumes, "its boot disk is gone, and nothing else"
    writes = place.writes(since)
    assert writes[0] == f"POST /vms/{made.id}/stop"
    assert set(writes[1:-1]) == {f"DELETE /vms/{made.id}/diskattachments/{each}" for each in volumes}
    assert (len(writes), writes[-1]) == (count + 2, f"DELETE /vms/{made.id}")


@pytest.mark.parametrize("action", ["apply-then-drop", "drop"])
def test_a_detach_whose_answer_is_lost_is_no_reason_to_lose_more(action: str, place: engine_place.Place) -> None:
    made = a_worker(place)
    kept = volume(place, made.id, "pvc-1")
    place.fault(action, "DELETE", "/**/diskattachments/*")

    remove(place, place.machine("worker-0-abcde", "worker"))

    assert place.doc("vms", f"{INFRA}-worker-0-abcde") is None
    assert kept in disks(place)


def test_what_is_off_already_does_not_make_the_vm_gone(place: engine_place.Place) -> None:
    # Given a look that still shows a volume which somebody has taken off since.
    wanted = place.machine("worker-0-abcde", "worker")
    made = a_worker(place)
    kept = volume(place, made.id, "pvc-1")
    place.client.call("stop it", lambda api: api.vms_service().vm_service(made.id).stop(force=True))
    place.until(lambda: place.doc("vms", wanted.name)["status"] == "down")  # type: ignore[index]
    stale = vms.find(place.client, wanted.name, INFRA)
    place.running.tell(lambda: place.running.engine.inventory.remove("disk_attachments", kept))

    assert vms.take_away(place.client, stale, INFRA)

    place.until(lambda: place.doc("vms", wanted.name) is None)
    assert kept in disks(place)


def test_a_vm_that_goes_while_its_volumes_are_taken_off_was_not_ordered_away(
    place: engine_place.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = place.machine("worker-0-abcde", "worker")
    made = a_worker(place)
    volume(place, made.id, "pvc-1")
    place.client.call("stop it", lambda api: api.vms_service().vm_service(made.id).stop(force=True))
    place.until(lambda: place.doc("vms", wanted.name)["status"] == "down")  # type: ignore[index]
    found = vms.find(place.client, wanted.name, INFRA)
    since = len(place.traced)
    monkeypatch.setattr(vms, "look", lambda *_args: None)

    assert not vms.take_away(place.client, found, INFRA)

    assert f"DELETE /vms/{made.id}" not in place.writes(since)


def test_a_volume_that_is_attached_in_the_last_moment_stays_too(place: engine_place.Place) -> None:
    # Given a second volume that comes while the first is taken off.
    made = a_worker(place)
    volumes = [volume(place, made.id, "pvc-1")]
    call = place.client.call

    def late(what: str, use: Any, *, safe: bool = True) -> Any:
        if what.startswith("detach disk pvc-1 ") and len(volumes) == 1:
            place.client.call = call  # type: ignore[method-assign]
            volumes.append(volume(place, made.id, "pvc-2"))
        return call(what, use, safe=safe)

    place.client.call = late  # type: ignore[method-assign]

    remove(place, place.machine("worker-0-abcde", "worker"))

    assert len(volumes) == 2
    assert set(volumes) <= disks(place)


def test_a_volume_on_which_the_engine_works_is_waited_for(place: engine_place.Place) -> None:
    made = a_worker(place)
    kept = volume(place, made.id, "pvc-1")
    place.running.tell(lambda: place.running.engine.locks.hold("disks", kept, "Disk is locked."))
    tries: list[str] = []

    def release() -> None:
        if any("diskattachments" in line and "-> 409" in line for line in place.traced):
            tries.append("refused")
            place.running.tell(lambda: place.running.engine.locks.release("disks", kept))

    remove(place, place.machine("worker-0-abcde", "worker"), release)

    assert tries
    assert place.doc("vms", f"{INFRA}-worker-0-abcde") is None
    assert kept in disks(place)


def test_what_bears_our_mark_came_with_the_vm_and_goes_with_it(place: engine_place.Place) -> None:
    before = disks(place)
    made = a_worker(place)
    volume(place, made.id, f"{INFRA}-rhcos", names.mark(INFRA))

    remove(place, place.machine("worker-0-abcde", "worker"))

    assert disks(place) == before


# -- the cluster goes --------------------------------------------------------------------------------------------------


def test_destroy_keeps_volumes_and_says_so(place: engine_place.Place) -> None:
    before = disks(place)
    one, other = a_worker(place), a_worker(place, "worker-0-fghij")
    kept = {volume(place, one.id, "pvc-1"), volume(place, other.id, "pvc-2")}
    place.change("disks", "pvc-2", provisioned_size=1536 * 1024**2)

    done = removal.destroy(contract.Metadata("ovirt", INFRA), "cluster", destroy, place.around, place.told.append)

    assert disks(place) == before | kept
    assert sorted(done.spared) == ["disk pvc-1 (1 GiB)", "disk pvc-2 (1.5 GiB)"]
    assert place.all("vms") == [each for each in place.all("vms") if not str(each["name"]).startswith(INFRA)]


def test_a_volume_that_comes_to_a_vm_that_is_off_after_it_was_listed_is_kept(place: engine_place.Place) -> None:
    made = a_worker(place)
    place.client.call("switch off", lambda api: api.vms_service().vm_service(made.id).stop(force=True))
    place.until(lambda: place.doc("vms", f"{INFRA}-worker-0-abcde")["status"] == "down" or None)
    metadata = contract.Metadata("ovirt", INFRA)
    (listed,) = [each for each in destroy.discover(metadata, "cluster", place.around) if each.kind == "VM"]

    kept = volume(place, made.id, "pvc-1")
    listed.remove()
    place.until(lambda: not listed.present() or None)

    assert kept in disks(place)
    assert list(listed.spared) == ["disk pvc-1 (1 GiB)"]


def test_what_was_spared_is_told_even_if_not_all_would_go(
    place: engine_place.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "ASKING", 60.0)
    made = a_worker(place)
    kept = volume(place, made.id, "pvc-1")
    place.change("vms", f"{INFRA}-worker-0-abcde", delete_protected=True)

    with pytest.raises(removal.LeftBehind, match=r"disk pvc-1 \(1 GiB\): not made by moorage") as left:
        removal.destroy(
            contract.Metadata("ovirt", INFRA), "cluster", destroy, place.around, place.told.append, patience=60
        )

    assert [each.resource for each in left.value.left] == [f"VM {INFRA}-worker-0-abcde"]
    assert kept in disks(place)


# -- what counts as one ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attachments", "stay"),
    [
        pytest.param(None, [], id="a VM without disks"),
        pytest.param([types.DiskAttachment(id="a", bootable=True)], [], id="its boot disk"),
        pytest.param(
            [types.DiskAttachment(id="a", bootable=False, disk=types.Disk(name="direct-lun"))],
            ["disk direct-lun"],
            id="a LUN, whose size the engine does not tell",
        ),
        pytest.param([types.DiskAttachment(id="a")], ["disk a"], id="a disk of which nothing is told"),
        pytest.param(
            [types.DiskAttachment(id="a", disk=types.Disk(name="x", description=names.mark(f"{INFRA}0")))],
            ["disk x"],
            id="another cluster's",
        ),
    ],
)
def test_all_but_the_boot_disk_and_what_we_made_is_data(
    attachments: list[types.DiskAttachment] | None, stay: list[str]
) -> None:
    found = vms.volumes(types.Vm(disk_attachments=attachments), INFRA)

    assert [destroy._volume(each) for each in found] == stay
