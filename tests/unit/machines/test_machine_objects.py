"""What is read from a Machine, what is wanted of a platform for it, and which changes are worth a look."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from moorage.engine import errors
from moorage.machines import machine, objects, phases
from moorage.platforms import contract
from tests.unit.machines import machine_world
from tests.unit.machines.machine_world import INFRA, NAME

Object = dict[str, Any]


def instance(*addresses: str, ready: bool = True) -> contract.Instance:
    return contract.Instance("i-1", "yard://i-1", "up", ready, addresses)


def with_status(**status: Any) -> Object:
    return {**machine_world.machine_object(), "status": status}


def test_a_machine_is_wanted_as_its_object_says() -> None:
    found = objects.wanted(machine_world.machine_object(providerID="yard://i-1"), b"data", INFRA, ["10.0.0.5"])

    assert found == contract.Machine(
        name=NAME,
        infra_id=INFRA,
        role="worker",
        provider_spec={"userDataSecret": {"name": "worker-user-data"}},
        user_data=b"data",
        provider_id="yard://i-1",
        not_addresses=("10.0.0.5",),
    )


@pytest.mark.parametrize(
    ("label", "expected"), [("master", "master"), ("infra", "infra"), ("", "worker"), ("bootstrap", "worker")]
)
def test_roles(label: str, expected: str) -> None:
    """A Machine that calls itself bootstrap would be removed together with the bootstrap."""
    found = machine_world.machine_object()
    found["metadata"]["labels"][objects.ROLE_LABEL] = label

    assert objects.role(found) == expected


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec.providerSpec.value"),
        ({"providerSpec": {}}, "spec.providerSpec.value"),
        ({"providerSpec": {"value": None}}, "spec.providerSpec.value"),
        ({"providerSpec": {"value": "large"}}, "spec.providerSpec.value"),
    ],
)
def test_a_spec_without_substance_is_refused_with_its_field(spec: Object, field: str) -> None:
    with pytest.raises(errors.Terminal, match=field):
        objects.wanted({**machine_world.machine_object(), "spec": spec}, b"", INFRA)


@pytest.mark.parametrize("secret", [{}, {"name": ""}, {"name": 5}, "worker-user-data"])
def test_a_secret_without_a_name_is_refused_with_its_field(secret: object) -> None:
    found = machine_world.machine_object(providerSpec={"value": {"userDataSecret": secret}})

    with pytest.raises(errors.Terminal, match=r"userDataSecret\.name"):
        objects.user_data_secret(found)


def test_a_machine_that_is_to_go_needs_no_readable_spec() -> None:
    found = machine_world.machine_object()
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found["spec"] = {"providerID": "yard://i-1"}

    wanted = objects.wanted(found, b"", INFRA)

    assert (wanted.provider_id, wanted.provider_spec) == ("yard://i-1", {})


def test_hooks_are_read_with_their_owners() -> None:
    hooks = {"preDrain": [{"name": "MigrateApp", "owner": "app"}], "preTerminate": None}
    found = machine_world.machine_object(lifecycleHooks=hooks)

    assert objects.hooks(found, "preDrain") == (objects.Hook("MigrateApp", "app"),)
    assert objects.hooks(found, "preTerminate") == ()
    assert objects.hooks(machine_world.machine_object(), "preDrain") == ()


def test_addresses_are_those_of_the_platform_and_the_names_of_the_node() -> None:
    assert objects.addresses(machine_world.machine_object(), instance("10.0.0.9", "fd00::9", "10.0.0.9")) == [
        {"type": "InternalIP", "address": "10.0.0.9"},
        {"type": "InternalIP", "address": "fd00::9"},
        {"type": "Hostname", "address": NAME},
        {"type": "InternalDNS", "address": NAME},
    ]


@pytest.mark.parametrize(("told", "expected"), [((), ["10.0.0.9"]), (("10.0.0.7",), ["10.0.0.7"])])
def test_addresses_are_kept_while_the_platform_is_silent(told: tuple[str, ...], expected: list[str]) -> None:
    known = with_status(addresses=[{"type": "InternalIP", "address": "10.0.0.9"}])

    found = objects.addresses(known, instance(*told))

    assert [each["address"] for each in found if each["type"] == "InternalIP"] == expected


@pytest.mark.parametrize(
    ("platform_status", "expected"),
    [
        ({"type": "None"}, ()),
        ({"ovirt": {"apiServerInternalIPs": ["10.0.0.5"], "ingressIPs": ["10.0.0.6"]}}, ("10.0.0.5", "10.0.0.6")),
        ({"ovirt": {"apiServerInternalIP": "10.0.0.5", "apiServerInternalIPs": ["10.0.0.5"]}}, ("10.0.0.5",)),
        (None, ()),
    ],
)
def test_virtual_addresses(platform_status: Object | None, expected: tuple[str, ...]) -> None:
    assert objects.virtual_addresses({"status": {"platformStatus": platform_status}}) == expected


@pytest.mark.parametrize(
    ("before", "has_node", "complete", "expected"),
    [
        ("", False, False, "Provisioning"),
        ("Provisioning", False, False, "Provisioning"),
        ("Provisioning", False, True, "Provisioned"),
        ("Provisioned", False, False, "Provisioned"),
        ("Provisioned", True, True, "Running"),
        ("Running", True, False, "Running"),
        # Whoever took the node away has not unmade the instance.
        ("Running", False, False, "Provisioned"),
        ("", True, False, "Running"),
    ],
)
def test_phases_of_a_machine_with_an_instance(before: str, has_node: bool, complete: bool, expected: str) -> None:
    found = with_status(phase=before, nodeRef={"name": NAME} if has_node else None)

    assert phases.with_instance(found, complete=complete) == expected


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, {}, False),
        ({"providerID": "yard://i-1"}, {}, True),
        ({}, {"addresses": [{"type": "Hostname", "address": "x"}]}, True),
    ],
)
def test_what_counts_as_provisioned(spec: Object, status: Object, expected: bool) -> None:
    assert phases.is_provisioned({"spec": spec, "status": status}) is expected


def test_why_a_machine_was_given_up() -> None:
    assert objects.failure(with_status()) is None
    assert objects.failure(with_status(errorMessage="gone")) == objects.Failure("", "gone")


# -- changes -----------------------------------------------------------------------------------------------------------


def _meta(field: str, **values: str) -> Callable[[Object], None]:
    return lambda found: found["metadata"].setdefault(field, {}).update(values)


def _status(**values: Any) -> Callable[[Object], None]:
    return lambda found: found["status"].update(values)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_status(phase="Provisioned"), False),
        (_status(conditions=[{"type": "InstanceExists"}], lastUpdated="x", lastOperation={}), False),
        (_status(providerStatus={"instanceState": "up"}, addresses=[{}]), False),
        (_meta("annotations", **{objects.STATE_ANNOTATION: "up"}), False),
        (_meta("labels", **{objects.ZONE_LABEL: "a"}), False),
        (lambda found: found["spec"].update(providerID="yard://i-1"), False),
        (lambda found: found["metadata"]["finalizers"].append("foregroundDeletion"), False),
        (lambda found: found["metadata"]["finalizers"].clear(), True),
        (_status(nodeRef={"name": NAME}), True),
        (_status(authoritativeAPI="ClusterAPI"), True),
        (_meta("annotations", **{objects.EXCLUDE_DRAIN: ""}), True),
        (_meta("labels", **{objects.CLUSTER_LABEL: "other"}), True),
        (lambda found: found["metadata"].update(deletionTimestamp="now"), True),
        (lambda found: found["metadata"].update(uid="another"), True),
        (lambda found: found["spec"].update(lifecycleHooks={}), True),
    ],
)
def test_which_changes_concern_the_controller(change: Callable[[Object], None], expected: bool) -> None:
    old = with_status(phase="Provisioning")
    old["metadata"] |= {"uid": "uid-1", "resourceVersion": "1", "finalizers": [objects.FINALIZER]}
    new = copy.deepcopy(old)
    change(new)
    new["metadata"]["resourceVersion"] = "2"

    assert machine.concerns(old, new) is expected


def test_new_ones_gone_ones_and_reminders_concern_it() -> None:
    found = with_status()

    assert machine.concerns(None, found)
    assert machine.concerns(found, None)
    assert machine.concerns(found, found)
