"""MachineHealthChecks that do not delete: somebody else is asked to see to a machine, by a request or an annotation."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.machines import remediation
from moorage.machines.runtime import errors
from tests.unit.machines import fleet
from tests.unit.machines.fleet import PLACE
from tests.unit.machines.test_healthcheck import CHECK_KEY, LAGS, allowed, behind, edit_check, fall_ill, recover
from tests.unit.machines.test_healthcheck import ward as ward

# -- somebody else is asked --------------------------------------------------------------------------------------------

REFERENCE = {
    "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
    "kind": "Metal3RemediationTemplate",
    "name": "reboot",
}
TEMPLATES = remediation.kind_of(REFERENCE)
REQUESTS = remediation.kind_of(REFERENCE, of_requests=True)


def offer(ward: fleet.Fleet, **spec: Any) -> None:
    edit_check(ward, remediationTemplate=REFERENCE)
    wanted = {"template": {"metadata": {"labels": {"a": "b"}, "finalizers": ["no"]}, "spec": {"type": "Reboot"}}}
    body = {"metadata": {"name": "reboot", "namespace": PLACE}, "spec": {**wanted, **spec}}
    ward.api.put(TEMPLATES, {"apiVersion": REFERENCE["apiVersion"], "kind": REFERENCE["kind"], **body})


def asked(ward: fleet.Fleet) -> list[str]:
    return sorted(name for kind, _, name in ward.api.objects if kind == str(REQUESTS))


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Metal3RemediationTemplate", "metal3remediationtemplates"),
        ("FenceProxyTemplate", "fenceproxytemplates"),
        ("Policy", "policies"),
        ("Fix", "fixes"),
        ("Relay", "relays"),
    ],
)
def test_the_word_for_a_kind_in_paths(kind: str, plural: str) -> None:
    found = remediation.kind_of({"apiVersion": "fix.example.com/v1", "kind": kind})
    assert (found.group, found.version, found.plural) == ("fix.example.com", "v1", plural)


def test_a_request_is_made_from_the_template_and_the_machine_stays(ward: fleet.Fleet) -> None:
    offer(ward)
    fall_ill(ward, "m0")
    ward.look()
    assert len(ward.names()) == 5
    machine, made = ward.machine("m0"), ward.api.have(REQUESTS, "m0", PLACE)
    assert machine is not None
    assert made is not None
    assert (made["kind"], made["apiVersion"]) == ("Metal3Remediation", REFERENCE["apiVersion"])
    assert made["spec"] == {"type": "Reboot"}
    meta = made["metadata"]
    assert meta["labels"] == {"a": "b"}
    assert "finalizers" not in meta
    assert meta["annotations"] == {
        "machine.openshift.io/cloned-from-name": "reboot",
        "machine.openshift.io/cloned-from-groupkind": "Metal3RemediationTemplate.infrastructure.cluster.x-k8s.io",
    }
    assert meta["ownerReferences"] == [fleet.reference(machine, is_controller=False)]


def test_a_request_is_kept_while_the_machine_is_ill_and_withdrawn_when_it_is_well(ward: fleet.Fleet) -> None:
    offer(ward)
    fall_ill(ward, "m0", "m1")
    ward.look()
    first = ward.api.have(REQUESTS, "m0", PLACE)
    recover(ward, "m1")
    ward.look()
    assert asked(ward) == ["m0"]
    assert ward.api.have(REQUESTS, "m0", PLACE) == first
    recover(ward, "m0")
    ward.look()
    assert asked(ward) == []


def test_a_request_that_is_going_is_not_withdrawn_again(ward: fleet.Fleet) -> None:
    """Whoever sees to the machine holds it by a finalizer until all is put away."""
    offer(ward)
    fall_ill(ward, "m0")
    ward.look()
    ward.api.change(REQUESTS, "m0", PLACE, lambda found: found["metadata"].update(finalizers=["example.com/tidy"]))
    recover(ward, "m0")
    ward.look()
    ward.api.calls.clear()

    ward.look()

    assert not [call for call in ward.api.calls if call.startswith("delete")]


def test_requests_of_others_stay(ward: fleet.Fleet) -> None:
    offer(ward)
    ward.api.put(REQUESTS, {"metadata": {"name": "m3", "namespace": PLACE}, "spec": {}})
    ward.look()
    assert asked(ward) == ["m3"]


def test_a_request_that_is_made_twice_at_once_is_made_once(ward: fleet.Fleet) -> None:
    offer(ward)
    fall_ill(ward, "m0")
    ward.api.trouble(f"create {REQUESTS.plural}", errors.AlreadyExists("there", code=409))
    ward.look()
    assert allowed(ward) == ("True", "")


def test_a_template_that_is_missing_is_told_and_used_when_it_comes(ward: fleet.Fleet) -> None:
    edit_check(ward, remediationTemplate=REFERENCE)
    fall_ill(ward, "m0")
    with pytest.raises(remediation.TemplateMissing):
        ward.look()
    found = fleet.condition(ward.check_status(), "ExternalRemediationTemplateAvailable")
    assert (found["status"], found["reason"]) == ("False", "ExternalRemediationTemplateNotFound")
    offer(ward)
    ward.look()
    assert asked(ward) == ["m0"]
    assert fleet.condition(ward.check_status(), "ExternalRemediationTemplateAvailable")["status"] == "True"


def test_a_template_with_nothing_in_it_is_told(ward: fleet.Fleet) -> None:
    offer(ward, template=None)
    fall_ill(ward, "m0")
    with pytest.raises(remediation.TemplateMissing):
        ward.look()
    assert asked(ward) == []


def test_a_request_that_is_refused_is_told(ward: fleet.Fleet) -> None:
    offer(ward)
    fall_ill(ward, "m0")
    ward.api.trouble(f"create {REQUESTS.plural}", errors.Forbidden("not you", code=403))
    with pytest.raises(remediation.RequestRefused):
        ward.look()
    found = fleet.condition(ward.check_status(), "ExternalRemediationRequestAvailable")
    assert (found["status"], found["reason"]) == ("False", "ExternalRemediationRequestCreationFailed")


def test_too_many_ill_machines_are_not_asked_for_either(ward: fleet.Fleet) -> None:
    offer(ward)
    edit_check(ward, maxUnhealthy=1)
    fall_ill(ward, "m0", "m1")
    ward.look()
    assert asked(ward) == []


def test_who_has_lost_the_lease_asks_for_nothing(ward: fleet.Fleet) -> None:
    offer(ward)
    fall_ill(ward, "m0")
    ward.leading = False
    with pytest.raises(errors.NotLeader):
        ward.look()
    assert asked(ward) == []


# -- asked by annotation -----------------------------------------------------------------------------------------------

BY_ANNOTATION = {"machine.openshift.io/remediation-strategy": "external-baremetal"}


def test_a_check_can_ask_by_annotation_of_the_machine(ward: fleet.Fleet) -> None:
    ward.add_check(notes=BY_ANNOTATION)
    fall_ill(ward, "m0")
    ward.look()
    machine = ward.machine("m0")
    assert machine is not None
    assert machine["metadata"]["annotations"] == {"host.metal3.io/external-remediation": ""}
    assert ward.reasons() == ["ExternalAnnotationAdded"]
    ward.api.calls.clear()
    ward.look()
    assert ward.calls("patch") == []


def test_while_somebody_sees_to_it_a_machine_is_not_healthy(ward: fleet.Fleet) -> None:
    ward.add_check(notes=BY_ANNOTATION)
    fall_ill(ward, "m0")
    ward.look()
    recover(ward, "m0")
    ward.look()
    assert ward.check_status()["currentHealthy"] == 4


def test_a_failed_machine_is_deleted_all_the_same(ward: fleet.Fleet) -> None:
    ward.add_check(notes=BY_ANNOTATION)
    ward.edit_machine("m0", lambda found: found["status"].update(phase="Failed"))
    ward.look()
    assert "m0" not in ward.names()


def test_an_annotation_that_is_refused_is_told(ward: fleet.Fleet) -> None:
    ward.add_check(notes=BY_ANNOTATION)
    fall_ill(ward, "m0")
    ward.api.trouble("patch machines", errors.Unavailable("the connection broke"))
    with pytest.raises(errors.Unavailable):
        ward.look()
    assert ward.reasons() == ["ExternalAnnotationFailed"]


# -- caches that lag ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", LAGS)
@pytest.mark.parametrize("how", ["by a request", "by annotation"])
def test_nobody_is_asked_on_the_word_of_a_cache_alone(ward: fleet.Fleet, how: str, what: str) -> None:
    """Who is asked may switch the machine off at once."""
    if how == "by a request":
        offer(ward)
    else:
        ward.add_check(notes=BY_ANNOTATION)
    fall_ill(ward, "m0")
    ward.sync()
    behind(ward, what)

    ward.health.reconcile(CHECK_KEY)

    assert asked(ward) == []
    assert ward.calls("patch") == []
