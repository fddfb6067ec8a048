"""The day-1 flow as it is declared, and the parts of it that are neither template nor VM."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from moorage.engine import clock as clocks
from moorage.engine import errors, flow, steps
from moorage.platforms import contract
from moorage.platforms.ovirt import config as sections
from moorage.platforms.ovirt import infra, names
from tests.unit.platforms_ovirt import engine_place, manifests_world
from tests.unit.platforms_ovirt.engine_place import NO_INPUTS

INFRA = manifests_world.INFRA
NOBODY = contract.Surroundings({}, clocks.ManualClock(), lambda _line: None)


def declared(**changes: object) -> flow.Flow:
    return infra.declare(manifests_world.cluster(**changes), NOBODY)


def nodes(found: flow.Flow) -> dict[str, infra.Node]:
    return {each.name: each for each in found.resources if isinstance(each, infra.Node)}


# -- the flow ----------------------------------------------------------------------------------------------------------


def test_machines_wait_for_what_they_are_made_of_and_not_for_each_other() -> None:
    needs = declared().needs

    assert needs["template"] == ("tag",)
    assert set(needs["bootstrap"]) == {"tag", "tag-bootstrap", "template"}
    for number in range(3):
        assert set(needs[f"master-{number}"]) == {"tag", "template", "affinity-controlplane"}
    assert not [name for name in needs if name.startswith("worker-")], "the cluster makes them itself"
    assert needs["affinity-compute"] == (), "but not what they stand in"


def test_a_cluster_without_controllers_gets_its_first_workers_with_the_rest() -> None:
    needs = declared(platformType="oVirt").needs

    workers = [name for name in needs if name.startswith("worker-")]
    assert len(workers) == 2
    assert {frozenset(needs[name]) for name in workers} == {frozenset({"tag", "template", "affinity-compute"})}


def test_a_template_of_the_users_own_is_no_resource_of_ours() -> None:
    found = declared(template="golden")

    assert "template" not in found.needs
    assert all("template" not in needs for needs in found.needs.values())
    assert {node.machine.provider_spec["template_name"] for node in nodes(found).values()} == {"golden"}


def test_every_machine_knows_which_addresses_are_not_its_own() -> None:
    found = nodes(declared(dns_vips=["10.0.0.7"]))

    assert {node.machine.not_addresses for node in found.values()} == {("10.0.0.5", "10.0.0.6", "10.0.0.7")}


def test_user_data_is_shown_nowhere() -> None:
    assert "{bootstrap}" not in repr(declared().resources)


# -- credentials -------------------------------------------------------------------------------------------------------


def test_the_controllers_get_the_engines_credentials(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.touch(mode=0o600)
    given = {
        "ovirt_url": "https://engine.example.com/ovirt-engine/api",
        "ovirt_username": "admin@internal",
        "ovirt_password": "correct horse",
        "ovirt_insecure": True,
    }
    path.write_text(yaml.safe_dump(given))
    around = contract.Surroundings({"OVIRT_CONFIG": str(path)}, clocks.ManualClock(), lambda _line: None)

    found = infra.cluster_secret(manifests_world.cluster(), around)

    assert found is not None
    assert found.name == "ovirt-credentials"
    assert found.namespaces == ("kube-system", "openshift-machine-api")
    assert {key: value.reveal() for key, value in found.values.items()} == {
        "ovirt_url": "https://engine.example.com/ovirt-engine/api",
        "ovirt_username": "admin@internal",
        "ovirt_password": "correct horse",
        "ovirt_cafile": "",
        "ovirt_insecure": "true",
        "ovirt_ca_bundle": "",
    }
    assert "correct horse" not in repr(found)
    assert [each.reveal() for each in infra.secrets(manifests_world.cluster(), around)] == ["correct horse"]


# -- tags and groups ---------------------------------------------------------------------------------------------------


def group(place: engine_place.Place, *, enforcing: bool = True) -> infra.AffinityGroup:
    wanted = sections.AffinityGroup(name="controlplane", priority=5, description="apart", enforcing=enforcing)
    cluster = place.id("clusters", "Default")
    return infra.AffinityGroup(
        name="affinity-controlplane", client=place.client, infra_id=INFRA, cluster_id=cluster, group=wanted
    )


@pytest.mark.parametrize("action", ["", "drop", "apply-then-drop"])
def test_a_tag_and_a_group_are_made_once_and_marked(action: str, place: engine_place.Place) -> None:
    if action:
        place.fault(action, "POST", "/**/tags")
        place.fault(action, "POST", "/**/affinitygroups")

    for thing in (place.tag(), group(place)):
        first = steps.bring_up(thing, NO_INPUTS, place.ctx())
        assert steps.bring_up(thing, NO_INPUTS, place.ctx()) == first

    tags = [each for each in place.all("tags") if each["name"] == INFRA]
    assert [each["description"] for each in tags] == [f"moorage: {INFRA}"]
    (made,) = [each for each in place.all("affinity_groups") if each["name"] == f"{INFRA}-controlplane"]
    assert names.marked(made["description"], INFRA)
    assert made["description"].endswith("apart")
    assert (made["priority"], made["vms_rule"]["positive"], made["vms_rule"]["enforcing"]) == (5, False, True)


def test_they_are_taken_down_again(place: engine_place.Place) -> None:
    for thing in (place.tag(), group(place)):
        steps.bring_up(thing, NO_INPUTS, place.ctx())
        assert steps.take_down(thing, NO_INPUTS, place.ctx())

    assert place.doc("tags", INFRA) is None
    assert place.all("affinity_groups") == []


def test_somebody_elses_tag_or_group_is_not_taken(place: engine_place.Place) -> None:
    for thing, kind in ((place.tag(), "tags"), (group(place), "affinity_groups")):
        steps.bring_up(thing, NO_INPUTS, place.ctx())
        name = INFRA if kind == "tags" else f"{INFRA}-controlplane"
        place.change(kind, name, description="another's")

        with pytest.raises(errors.Conflict, match="does not belong to the cluster"):
            steps.bring_up(thing, NO_INPUTS, place.ctx())
