"""An address that two machines are said to have is nobody's yet: guests tell their own, and may tell another's."""

from __future__ import annotations

import dataclasses
import ipaddress

import pytest
from cryptography import x509

from moorage.machines import approval
from tests.unit.machines import test_approval as rules
from tests.unit.machines.test_approval import MACHINE, MADE, NEIGHBOUR, NODE, OTHER, judged

ITS_OWN = dataclasses.replace(MACHINE, node=NODE)
THEIRS = NEIGHBOUR.addresses[0]


def wanting(*addresses: str) -> dict[str, object]:
    names = [x509.DNSName(NODE), *(x509.IPAddress(ipaddress.ip_address(each)) for each in addresses)]
    return rules.serving(rules.csr(names=names))


def claiming(*addresses: str) -> approval.Machine:
    return dataclasses.replace(ITS_OWN, addresses=(*MACHINE.addresses, *addresses))


@pytest.mark.parametrize(
    ("spelled", "told"),
    [
        pytest.param(THEIRS, THEIRS, id="as it is"),
        pytest.param("fd00::32", "fd00::32", id="spelled otherwise"),
        pytest.param(f"::ffff:{THEIRS}", THEIRS, id="in the clothes of the other family"),
    ],
)
def test_the_address_of_another_node_is_waited_for(spelled: str, told: str) -> None:
    other = dataclasses.replace(NEIGHBOUR, node=OTHER, addresses=(THEIRS, "FD00:0::0032"))
    verdict = judged(wanting("10.0.0.31", spelled), [claiming(spelled), other], [NODE, OTHER])

    assert verdict == approval.Wait(f"{told} is an address of {OTHER} too")


def test_what_a_node_shares_and_does_not_ask_for_is_no_matter() -> None:
    other = dataclasses.replace(NEIGHBOUR, node=OTHER)

    verdict = judged(wanting("10.0.0.31"), [claiming(THEIRS), other], [NODE, OTHER])

    assert verdict == approval.Approve(NODE, "serving")


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(NEIGHBOUR, id="not a node yet"),
        pytest.param(dataclasses.replace(NEIGHBOUR, node="gone"), id="a node that is gone"),
    ],
)
def test_a_machine_that_is_no_node_has_no_address_to_itself(other: approval.Machine) -> None:
    """An address that was given up goes to the next who asks: its last holder must not keep it for ever."""
    verdict = judged(wanting("10.0.0.31", THEIRS), [claiming(THEIRS), other], [NODE, OTHER])

    assert verdict == approval.Approve(NODE, "serving")


def test_a_machine_that_is_not_linked_yet_is_not_its_own_rival() -> None:
    unlinked = approval.Machine(NODE, MADE, addresses=MACHINE.addresses)

    assert judged(rules.serving(), [unlinked], [NODE]) == approval.Approve(NODE, "serving")


def test_what_a_node_has_already_it_keeps() -> None:
    other = dataclasses.replace(NEIGHBOUR, node=OTHER)
    names = [x509.DNSName(NODE), x509.IPAddress(ipaddress.ip_address(THEIRS))]

    verdict = judged(wanting(THEIRS), [claiming(THEIRS), other], [NODE, OTHER], shown=rules.shown(names))

    assert verdict == approval.Approve(NODE, "serving")
