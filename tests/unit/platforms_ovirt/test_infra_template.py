"""The template of the boot image: one in the end, and nothing beside it, however often its making was cut short."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.engine import errors, steps
from moorage.lab.ovirt import images as stored
from moorage.lab.ovirt import shape
from moorage.platforms.ovirt import images, names
from tests.unit.platforms_ovirt import engine_place
from tests.unit.platforms_ovirt.engine_place import INFRA, NO_INPUTS

NAME = names.template(INFRA)


class KilledError(Exception):
    """The process that makes the template was killed."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[engine_place.Place]:
    with engine_place.started(tmp_path, speed=500) as found:
        found.tagged()
        yield found


def ours(place: engine_place.Place) -> dict[str, list[str]]:
    """What of the cluster's there is, besides tags."""
    mark = names.mark(INFRA)
    kinds = ("vms", "disks", "templates")
    return {kind: [each["name"] for each in place.all(kind) if each.get("description") == mark] for kind in kinds}


def template_only(place: engine_place.Place) -> bool:
    found = ours(place)
    held = {each["disk"]["id"] for each in place.all("disk_attachments") if "template" in each}
    loose = [each for each in place.all("disks") if each["name"] == NAME and each["id"] not in held]
    return found["vms"] == [] and found["templates"] == [NAME] and loose == []


def test_it_is_made_and_nothing_else_stays(place: engine_place.Place) -> None:
    thing = place.template()

    record = steps.bring_up(thing, NO_INPUTS, place.ctx("template"))

    assert record == {"id": place.id("templates", NAME), "name": NAME}
    assert template_only(place)
    made = place.doc("templates", NAME)
    assert made is not None
    assert made["os"]["type"] == "rhcos_x64"
    attachment = next(
        each for each in place.all("disk_attachments") if each.get("template", {}).get("id") == made["id"]
    )
    assert (attachment["interface"], attachment["bootable"]) == ("virtio_scsi", True)
    content = place.running.tell(lambda: stored.contents(place.running.engine)[attachment["disk"]["id"]])
    assert content.read(0, 8 << 20) == images.path_of(thing.image.location).read_bytes()[: 8 << 20]  # type: ignore[union-attr]
    nics = [each for each in place.all("nics") if each.get("template", {}).get("id") == made["id"]]
    assert [each["vnic_profile"]["id"] for each in nics] == [place.id("vnic_profiles", "ovirtmgmt")]


def test_what_is_there_is_adopted_with_few_calls(place: engine_place.Place) -> None:
    steps.bring_up(place.template(), NO_INPUTS, place.ctx("template"))
    before = len(place.traced)

    steps.bring_up(place.template(), NO_INPUTS, place.ctx("template"))

    assert place.writes(before) == []
    assert len(place.calls(before)) <= 4


def bring_up_and_die(place: engine_place.Place, writes: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Make the template in a process that is killed after so many changes; whether it came to that."""
    original, left = place.client.call, [writes]

    def mortal(what: str, use: Any, *, safe: bool = True) -> Any:
        if not safe:
            if left[0] == 0:
                raise KilledError
            left[0] -= 1
        return original(what, use, safe=safe)

    with monkeypatch.context() as patch:
        patch.setattr(place.client, "call", mortal)
        try:
            steps.bring_up(place.template(), NO_INPUTS, place.ctx("template"))
        except KilledError:
            return True
    return False


@pytest.mark.parametrize("writes_done", range(11))
def test_killed_at_any_change_the_next_run_carries_on(
    writes_done: int, place: engine_place.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = bring_up_and_die(place, writes_done, monkeypatch)
    assert killed == (writes_done < 9), "there are nine changes"

    steps.bring_up(place.template(), NO_INPUTS, place.ctx("template", intended=True))

    assert template_only(place)


@pytest.mark.parametrize("action", ["drop", "apply-then-drop"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/**/disks"),
        ("POST", "/**/imagetransfers"),
        ("POST", "/ovirt-engine/api/vms"),
        ("POST", "/**/diskattachments"),
        ("POST", "/**/nics"),
        ("POST", "/**/templates"),
        ("DELETE", "/**/vms/*"),
    ],
)
def test_a_lost_reply_leaves_no_second_thing(method: str, path: str, action: str, place: engine_place.Place) -> None:
    place.fault(action, method, path)

    steps.bring_up(place.template(), NO_INPUTS, place.ctx("template"))

    assert template_only(place)


def test_an_upload_that_dies_at_sixty_percent_and_leaves_the_disk_locked_is_begun_anew(
    place: engine_place.Place,
) -> None:
    order = {"die_at": 0.6, "disk": "locked", "seconds": 120}
    place.running.tell(lambda: setattr(place.running.engine.shape, "transfers", order))

    steps.bring_up(place.template(), NO_INPUTS, place.ctx("template"))

    assert template_only(place)
    assert len(place.all("image_transfers")) == 2
    assert f"disk {NAME} to be gone" in place.waits()


def test_an_image_that_is_never_accepted_is_given_up_without_a_trace(
    place: engine_place.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = images.on_disk
    monkeypatch.setattr(
        images,
        "on_disk",
        lambda *given: dataclasses.replace(found := honest(*given), virtual_size=found.virtual_size * 2),
    )

    with pytest.raises(errors.Terminal, match="could not be uploaded, 3 times") as failed:
        steps.bring_up(place.template(), NO_INPUTS, place.ctx("template"))

    assert "does not accept" in failed.value.words
    assert ours(place)["disks"] == []


def test_full_storage_is_said_at_once(place: engine_place.Place) -> None:
    place.change("storage_domains", "data", available=1024**3)

    with pytest.raises(errors.Terminal, match="storage is full"):
        steps.bring_up(place.template(), NO_INPUTS, place.ctx("template"))


@pytest.mark.parametrize("kind", ["template", "vm"])
def test_somebody_elses_thing_of_its_name_is_never_taken(kind: str, place: engine_place.Place) -> None:
    engine = place.running.engine
    if kind == "template":
        place.running.tell(lambda: shape.add_template(engine, NAME, "of others"))
    else:
        place.foreign_vm(names.temporary(INFRA))
    before = len(place.traced)

    with pytest.raises(errors.Conflict, match="does not belong to the cluster"):
        steps.bring_up(place.template(), NO_INPUTS, place.ctx("template"))

    assert place.writes(before) == []


def test_a_network_with_several_profiles_must_be_decided(place: engine_place.Place) -> None:
    thing = dataclasses.replace(place.template(), network="storage")

    with pytest.raises(errors.Terminal, match="has 2 vNIC profiles") as undecided:
        steps.bring_up(thing, NO_INPUTS, place.ctx("template"))

    assert "vnicProfileID" in undecided.value.remedy


@pytest.mark.parametrize("writes_done", [1, 5, 99])
def test_rolled_back_from_anywhere_nothing_is_left(
    writes_done: int, place: engine_place.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_up_and_die(place, writes_done, monkeypatch)

    assert steps.take_down(place.template(), NO_INPUTS, place.ctx("template", intended=True))

    assert ours(place) == {"vms": [], "disks": [], "templates": []}
    assert [each for each in place.all("disks") if each["name"] == NAME] == []
