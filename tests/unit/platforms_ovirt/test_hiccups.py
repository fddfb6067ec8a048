"""What an engine says in a bad moment, or through bad credentials: day 1 ends with it, and no machine is given up."""

from __future__ import annotations

import ovirtsdk4
import pycurl
import pytest
from ovirtsdk4 import types

from moorage.engine import errors, steps
from moorage.platforms.ovirt import faults, infra, wire
from tests.unit.machines import machine_world
from tests.unit.platforms_ovirt import engine_place
from tests.unit.platforms_ovirt.engine_place import INFRA, NO_INPUTS

FAULT = "<action><fault><detail>[{words}]</detail><reason>Operation Failed</reason></fault></action>"
UNREACHED = "Network error during communication with the Host."


def failed(words: str) -> ovirtsdk4.Error:
    return ovirtsdk4.Error("", code=400, fault=types.Fault(reason="Operation Failed", detail=f"[{words}]"))


PASSING = [
    pytest.param(failed(UNREACHED), UNREACHED, id="host"),
    pytest.param(failed("Internal Engine Error"), "Internal Engine Error", id="bug"),
    pytest.param(failed(""), "the engine failed to do it", id="no words"),
    pytest.param(
        wire.Broken(pycurl.E_PEER_FAILED_VERIFICATION, "self-signed", sent=False), "is not trusted", id="authority"
    ),
    pytest.param(wire.Broken(pycurl.E_URL_MALFORMAT, "malformed", sent=False), "is no URL", id="address"),
]


@pytest.mark.parametrize(("error", "words"), PASSING)
@pytest.mark.parametrize("verb", ["create", "update"])
def test_no_machine_is_given_up_for_what_passes_or_can_be_put_right(
    verb: str, error: ovirtsdk4.Error, words: str
) -> None:
    # Given a machine whose VM is asked for, or half built, when that fails.
    world = machine_world.World(building=5)
    failure = faults.translate(error, "start VM x", safe=False)
    world.yard.fail(verb, failure, times=1)
    world.put()

    told: list[str] = []

    def is_built() -> bool:
        told.append(f"{world.status.get('lastOperation')} {world.status.get('providerStatus')}")
        return world.phase == "Provisioned"

    world.run(is_built)

    assert any(words in each for each in told), "people see why it takes so long"
    assert len(world.yard.instances) == 1


def test_a_start_that_failed_is_tried_again(place: engine_place.Place) -> None:
    place.tagged()
    wanted = place.machine()
    headers = {"Content-Type": "application/xml"}
    place.fault("fail", "POST", "/**/start", status=400, body=FAULT.format(words=UNREACHED), headers=headers)
    place.actuator.create(wanted)

    with pytest.raises(errors.Conflict, match="start VM") as refused:
        place.until_ready(wanted)

    assert refused.value.words == UNREACHED
    assert place.until_ready(wanted).ready


def test_day_1_ends_with_the_engines_words_and_goes_on_where_it_was(place: engine_place.Place) -> None:
    place.tagged()
    node = infra.Node(name="master-0", machine=place.machine(), actuator=place.actuator, expected=60, timeout=3600)
    headers = {"Content-Type": "application/xml"}
    place.fault("fail", "POST", "/**/start", status=400, body=FAULT.format(words=UNREACHED), headers=headers)

    with pytest.raises(errors.Conflict) as refused:
        steps.bring_up(node, NO_INPUTS, place.ctx())
    record = steps.bring_up(node, NO_INPUTS, place.ctx())

    assert UNREACHED in refused.value.told()
    assert [each["id"] for each in place.all("vms") if each["name"] == f"{INFRA}-master-0"] == [record["id"]]
