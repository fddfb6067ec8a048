"""One VM per machine, against the lab's engine: made as its spec says, and completed whoever began."""

from __future__ import annotations

from concurrent import futures
from typing import Any

import pytest

from moorage.engine import errors
from moorage.platforms.ovirt import machine
from tests.unit.platforms_ovirt import engine_place
from tests.unit.platforms_ovirt.engine_place import GROUP, INFRA

GIB = 1024**3


class DiedError(Exception):
    """The process that made a VM was killed."""


@pytest.fixture
def place(place: engine_place.Place) -> engine_place.Place:
    place.tagged()
    place.group()
    return place


def members(place: engine_place.Place, group: str = GROUP) -> list[str]:
    found = place.doc("affinity_groups", group)
    assert found is not None
    return list(found["_vms"])


# -- making ------------------------------------------------------------------------------------------------------------


def test_a_machine_becomes_a_complete_vm_that_runs(place: engine_place.Place) -> None:
    wanted = place.machine(affinity_groups_names=[GROUP])
    assert place.actuator.exists(wanted) is None
    before = len(place.traced)

    made = place.actuator.create(wanted)
    ready = place.until_ready(wanted)

    assert not made.ready
    assert ready.ready
    assert ready.provider_id == f"ovirt://{made.id}"
    vm = place.doc("vms", wanted.name)
    assert vm is not None
    assert vm["cpu"]["topology"] == {"sockets": 1, "cores": 4, "threads": 2}, "threads are what the spec says"
    assert vm["memory"] == 8192 * 1024**2
    assert vm["description"] == f"moorage: {INFRA}"
    assert members(place) == [made.id]
    tags = {each["id"]: each["name"] for each in place.all("tags")}
    assert [tags[each] for each in vm["_tags"]] == [INFRA]
    attachment = next(each for each in place.all("disk_attachments") if each.get("vm", {}).get("id") == made.id)
    disk = next(each for each in place.all("disks") if each["id"] == attachment["disk"]["id"])
    assert disk["provisioned_size"] == 120 * GIB
    assert place.writes(before) == [
        "POST /vms",
        f"PUT /vms/{made.id}/diskattachments/{attachment['id']}",
        f"POST /clusters/{wanted.provider_spec['cluster_id']}/affinitygroups/{place.id('affinity_groups', GROUP)}/vms",
        f"POST /vms/{made.id}/tags",
        f"POST /vms/{made.id}/start",
    ]


def test_the_second_machine_of_a_group_joins_it_without_a_look_at_all_members(place: engine_place.Place) -> None:
    first, second = (place.machine(name, affinity_groups_names=[GROUP]) for name in ("master-0", "master-1"))
    made = [place.actuator.create(first)]
    place.until_ready(first)
    before = len(place.traced)

    made.append(place.actuator.create(second))
    place.until_ready(second)

    assert members(place) == [each.id for each in made]
    assert not [call for call in place.calls(before) if call.startswith("GET") and "affinitygroups" in call]


def test_machines_that_come_together_look_at_their_group_once(place: engine_place.Place) -> None:
    wanted = [place.machine(f"master-{number}", affinity_groups_names=[GROUP]) for number in range(3)]
    made = [place.actuator.create(each) for each in wanted]
    before = len(place.traced)

    with futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(place.until_ready, wanted))

    assert sorted(members(place)) == sorted(each.id for each in made)
    assert [call for call in place.calls(before) if call.endswith("affinitygroups")] == [
        f"GET /clusters/{wanted[0].provider_spec['cluster_id']}/affinitygroups"
    ]


def test_a_group_that_was_made_anew_is_found_and_one_that_was_joined_before_is_no_obstacle(
    place: engine_place.Place,
) -> None:
    first, second = (place.machine(name, affinity_groups_names=[GROUP]) for name in ("master-0", "master-1"))
    place.actuator.create(first)
    place.until_ready(first)
    former = place.id("affinity_groups", GROUP)
    place.running.tell(lambda: place.running.engine.inventory.remove("affinity_groups", former))
    place.group()

    # The tag is lost on the way, so that the machine comes again to a group that has it.
    place.fault("fail", "POST", "/**/tags", status=503)
    made = place.actuator.create(second)
    place.until_ready(second)

    assert members(place) == [made.id]


def test_a_look_is_one_call_and_a_complete_vm_is_only_looked_at(place: engine_place.Place) -> None:
    wanted = place.machine()
    place.actuator.create(wanted)
    place.until_ready(wanted)
    before = len(place.traced)

    place.actuator.update(wanted)
    place.actuator.exists(wanted)

    assert [call.split("/")[1] for call in place.calls(before)] == ["vms", "vms"]
    assert place.writes(before) == []


def test_what_it_waits_for_is_said(place: engine_place.Place) -> None:
    wanted = place.machine()
    place.actuator.create(wanted)

    locked = place.actuator.update(wanted)

    assert (locked.state, locked.ready) == ("image_locked", False)
    assert locked.waiting_for == "its disk to be made"
    assert place.writes()[-1] == "POST /vms", "nothing can be done to a locked VM"


def test_a_copied_disk_goes_where_and_as_the_spec_says(place: engine_place.Place) -> None:
    slow = place.id("storage_domains", "slow")
    wanted = place.machine(clone=True, format="raw", sparse=False, storage_domain_id=slow, os_disk={"size_gb": 60})

    made = place.actuator.create(wanted)
    place.until_ready(wanted)

    attachment = next(each for each in place.all("disk_attachments") if each.get("vm", {}).get("id") == made.id)
    disk = next(each for each in place.all("disks") if each["id"] == attachment["disk"]["id"])
    assert (disk["format"], disk["sparse"], disk["storage_domains"]) == ("raw", False, [{"id": slow}])


def test_huge_pages_pins_and_networks_are_given(place: engine_place.Place) -> None:
    profile = place.id("vnic_profiles", "storage")
    wanted = place.machine(
        hugepages=2048, auto_pinning_policy="resize_and_pin", network_interfaces=[{"vnic_profile_id": profile}]
    )

    made = place.actuator.create(wanted)
    place.until_ready(wanted)

    vm = place.doc("vms", wanted.name)
    assert vm is not None
    assert [(each["name"], each["value"]) for each in vm["custom_properties"]] == [("hugepages", "2048")]
    assert vm["cpu_pinning_policy"] == "resize_and_pin_numa"
    nics = [each for each in place.all("nics") if each.get("vm", {}).get("id") == made.id]
    assert [each["vnic_profile"]["id"] for each in nics] == [profile]


def test_a_template_may_be_named_by_its_id_and_be_of_another_system(place: engine_place.Place) -> None:
    wanted = place.machine(template_name=place.id("templates", "centos"))

    place.actuator.create(wanted)
    place.until_ready(wanted)

    vm = place.doc("vms", wanted.name)
    assert vm is not None
    assert vm["os"]["type"] == "rhcos_x64", "only so does the engine hand over what Ignition can read"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"apiVersion": "aws/v1"}, "apiVersion is not oVirt's"),
        ({"cluster_id": ""}, "cluster_id is missing"),
        ({"template_name": None}, "template_name is missing"),
        ({"memory_mb": "much"}, "memory_mb is 'much'"),
        ({"memory_mb": -1}, "memory_mb is -1"),
        ({"cpu": {"cores": True}}, "cores is True"),
        ({"cpu": 4}, "cpu is not a section"),
        ({"guaranteed_memory_mb": 9000}, "more than memory_mb"),
        ({"instance_type_id": "x"}, "together with cpu"),
        ({"sparse": "no"}, "neither true nor false"),
        ({"network_interfaces": [7]}, "list of sections"),
        ({"affinity_groups_names": "x"}, "list of names"),
    ],
)
def test_a_spec_that_can_never_work_is_refused_before_any_call(
    change: dict[str, Any], why: str, place: engine_place.Place
) -> None:
    wanted = place.machine(**change)
    before = len(place.traced)

    for act in (place.actuator.create, place.actuator.update):
        with pytest.raises(errors.Terminal, match=why):
            act(wanted)

    assert len(place.traced) == before


def test_a_template_or_group_that_is_not_there_is_called_that(place: engine_place.Place) -> None:
    with pytest.raises(errors.Terminal, match="no template nothing"):
        place.actuator.create(place.machine(template_name="nothing"))

    lonely = place.machine("master-1", affinity_groups_names=["nobody"])
    place.actuator.create(lonely)
    with pytest.raises(errors.Terminal, match="no affinity group nobody"):
        place.until_ready(lonely)


# -- completing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps_done", range(5))
def test_a_vm_that_was_left_half_built_is_completed(steps_done: int, place: engine_place.Place) -> None:
    """Given a process that died after its n-th change, when another one comes, then nothing is missing in the end."""
    wanted = place.machine(affinity_groups_names=[GROUP])
    place.actuator.create(wanted)
    original = place.client.call

    left = [steps_done]

    def mortal(what: str, use: Any, *, safe: bool = True) -> Any:
        if any(what.startswith(verb) for verb in ("enlarge", "put VM", "tag VM", "start VM")):
            if left[0] == 0 and steps_done < 4:
                raise DiedError
            left[0] -= 1
        return original(what, use, safe=safe)

    place.client.call = mortal  # type: ignore[method-assign]
    if steps_done < 4:
        with pytest.raises(DiedError):
            place.until_ready(wanted)
    else:
        place.until_ready(wanted)
    place.client.call = original  # type: ignore[method-assign]
    place.actuator = machine.Actuator(place.client)

    ready = place.until_ready(wanted)

    vm = place.doc("vms", wanted.name)
    assert vm is not None
    assert ready.ready
    assert members(place) == [vm["id"]]
    assert place.id("tags", INFRA) in vm["_tags"]
    assert vm["status"] in ("powering_up", "up")


def test_the_bootstrap_bears_both_tags(place: engine_place.Place) -> None:
    wanted = place.machine("bootstrap", "bootstrap")
    place.actuator.create(wanted)
    place.until_ready(wanted)

    vm = place.doc("vms", wanted.name)
    assert vm is not None
    assert set(vm["_tags"]) == {place.id("tags", INFRA), place.id("tags", f"{INFRA}-bootstrap")}


def test_a_lock_of_another_tool_is_waited_for(place: engine_place.Place) -> None:
    wanted = place.machine()
    made = place.actuator.create(wanted)
    place.until(lambda: place.doc("vms", wanted.name)["status"] == "down")  # type: ignore[index]
    place.running.tell(lambda: place.running.engine.locks.hold("vms", made.id, "VM is locked."))

    with pytest.raises(errors.DeadlineExceeded) as locked:
        place.until_ready(wanted, seconds=60)
    assert "locked" in locked.value.told().lower()

    place.running.tell(lambda: place.running.engine.locks.release("vms", made.id))
    assert place.until_ready(wanted).ready


def test_a_vm_that_the_engine_gave_up_is_reported_and_made_anew(place: engine_place.Place) -> None:
    wanted = place.machine()
    made = place.actuator.create(wanted)
    place.until(lambda: place.doc("vms", wanted.name)["status"] == "down")  # type: ignore[index]
    place.client.call("remove it", lambda api: api.vms_service().vm_service(made.id).remove())
    place.until(lambda: place.doc("vms", wanted.name) is None)

    with pytest.raises(errors.NotFound, match="is not there"):
        place.actuator.update(wanted)

    assert place.actuator.exists(wanted) is None
    assert place.actuator.create(wanted).id != made.id


def test_full_storage_says_what_to_do(place: engine_place.Place) -> None:
    place.change("storage_domains", "data", available=1 * GIB)

    with pytest.raises(errors.Terminal) as full:
        place.actuator.create(place.machine(clone=True))

    assert "Low disk space" in full.value.words
    assert full.value.remedy


def test_three_machines_that_must_be_apart_do_not_start_on_two_hosts(place: engine_place.Place) -> None:
    place.change("hosts", "default-3", status="maintenance")
    wanted = [place.machine(f"master-{number}", affinity_groups_names=[GROUP]) for number in range(3)]
    for each in wanted:
        place.actuator.create(each)
    for each in wanted[:2]:
        place.until_ready(each)

    with pytest.raises(errors.Terminal) as refused:
        place.until_ready(wanted[2])

    assert "no host that satisfies" in refused.value.words
    assert "affinityGroups" in refused.value.remedy
