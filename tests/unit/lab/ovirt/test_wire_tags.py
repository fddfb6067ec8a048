"""Tags and affinity groups, as the vendor's SDK makes, uses and removes them."""

from __future__ import annotations

from typing import Any

import ovirtsdk4
import pytest
from ovirtsdk4 import types

from moorage.lab.ovirt import affinity, shape
from tests.unit.lab.ovirt import engine_world


@pytest.fixture
def intranet(api: Any) -> Any:
    [vm] = api.vms_service().list(search="name=intranet")
    return vm


@pytest.fixture
def groups(api: Any) -> Any:
    [cluster] = api.clusters_service().list(search="name=Default")
    return api.clusters_service().cluster_service(cluster.id).affinity_groups_service()


def test_a_tag_is_put_on_a_machine_found_by_it_taken_off_and_removed(api: Any, intranet: Any) -> None:
    tags, worn = api.tags_service(), api.vms_service().vm_service(intranet.id).tags_service()
    made = tags.add(types.Tag(name="mine-abcde", description="moorage: mine-abcde"))
    assert (made.name, made.description, made.parent.id) == ("mine-abcde", "moorage: mine-abcde", shape.ROOT_TAG)

    worn.add(types.Tag(name="mine-abcde"))
    worn.add(types.Tag(id=made.id))  # twice is once
    assert [each.name for each in worn.list()] == ["mine-abcde"]
    assert [each.name for each in api.vms_service().list(search="tag=mine-abcde")] == ["intranet"]
    assert worn.tag_service(made.id).get().vm.id == intranet.id

    worn.tag_service(made.id).remove()
    assert api.vms_service().list(search="tag=mine-abcde") == []
    with pytest.raises(ovirtsdk4.NotFoundError):
        worn.tag_service(made.id).remove()

    worn.add(types.Tag(name="mine-abcde"))
    tags.tag_service(made.id).remove()
    assert worn.list() == []
    with pytest.raises(ovirtsdk4.NotFoundError):
        tags.tag_service(made.id).get()


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("mine", 409, "[The specified Tag name already exists.]"),
        ("with space", 400, "[Invalid tag name. Only letters, numbers, '-', and '_' are valid characters.]"),
        ("", 400, "Tag [name] required for add"),
    ],
)
def test_a_tag_that_cannot_be_is_refused(api: Any, name: str, code: int, words: str) -> None:
    api.tags_service().add(types.Tag(name="mine"))
    with pytest.raises(ovirtsdk4.Error) as refused:
        api.tags_service().add(types.Tag(name=name))
    assert (refused.value.code, refused.value.fault.detail) == (code, words)


def test_a_search_finds_what_bears_a_tag_below(api: Any, intranet: Any) -> None:
    above = api.tags_service().add(types.Tag(name="above"))
    api.tags_service().add(types.Tag(name="below", parent=types.Tag(name="above")))
    api.vms_service().vm_service(intranet.id).tags_service().add(types.Tag(name="below"))
    assert [each.name for each in api.vms_service().list(search="tag=above")] == ["intranet"]
    api.tags_service().tag_service(above.id).remove()
    assert [each.name for each in api.tags_service().list()] == ["root"]


def test_the_root_stays_and_nobody_is_above_himself(api: Any) -> None:
    tags = api.tags_service()
    with pytest.raises(ovirtsdk4.Error, match="Cannot edit readonly tag"):
        tags.tag_service(shape.ROOT_TAG).remove()
    above = tags.add(types.Tag(name="above"))
    below = tags.add(types.Tag(name="below", parent=types.Tag(id=above.id)))
    with pytest.raises(ovirtsdk4.Error, match="recursive Tag hierarchy"):
        tags.tag_service(above.id).update(types.Tag(parent=types.Tag(id=below.id)))


def test_a_group_keeps_machines_apart(running: engine_world.Running, api: Any, groups: Any, intranet: Any) -> None:
    rule = types.AffinityRule(enabled=True, positive=False, enforcing=True)
    made = groups.add(
        types.AffinityGroup(
            name="mine-controlplane",
            description="moorage: mine",
            priority=5.0,
            vms_rule=rule,
            hosts_rule=types.AffinityRule(enabled=False, positive=True, enforcing=False),
        )
    )
    found = groups.group_service(made.id).get()
    assert (found.name, found.priority, found.enforcing, found.positive) == ("mine-controlplane", 5.0, True, False)
    assert (found.vms_rule.enabled, found.vms_rule.positive, found.vms_rule.enforcing) == (True, False, True)
    assert found.hosts_rule.enabled is False

    members = groups.group_service(made.id).vms_service()
    members.add(types.Vm(id=intranet.id))
    assert [each.name for each in members.list()] == ["intranet"]
    assert [each.name for each in groups.group_service(made.id).get(follow="vms").vms] == ["intranet"]
    with pytest.raises(ovirtsdk4.Error, match="Duplicate VM") as refused:
        members.add(types.Vm(id=intranet.id))
    assert refused.value.code == 400

    groups.group_service(made.id).update(
        types.AffinityGroup(vms_rule=types.AffinityRule(enabled=True, positive=False, enforcing=False))
    )
    assert groups.group_service(made.id).get().vms_rule.enforcing is False
    members.vm_service(intranet.id).remove()
    assert members.list() == []
    members.add(types.Vm(id=intranet.id))
    running.tell(lambda: affinity.leave(running.engine, intranet.id))
    assert members.list() == []
    groups.group_service(made.id).remove()
    assert groups.list() == []


def test_one_name_is_for_one_group_in_the_whole_engine(api: Any, groups: Any, intranet: Any) -> None:
    groups.add(types.AffinityGroup(name="g", priority=1.0))
    [edge] = api.clusters_service().list(search="name=Edge")
    elsewhere = api.clusters_service().cluster_service(edge.id).affinity_groups_service()
    with pytest.raises(ovirtsdk4.Error) as refused:
        elsewhere.add(types.AffinityGroup(name="g", priority=1.0))
    assert refused.value.code == 400
    assert refused.value.fault.detail == "[Cannot add Affinity Group. Affinity Group name already exists.]"
    other = elsewhere.add(types.AffinityGroup(name="other", priority=1.0))
    with pytest.raises(ovirtsdk4.Error, match="resides in another Cluster"):
        elsewhere.group_service(other.id).vms_service().add(types.Vm(id=intranet.id))
    with pytest.raises(ovirtsdk4.NotFoundError):
        groups.group_service(other.id).get()
