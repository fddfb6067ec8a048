"""What is judged is what will be signed: a request that can be read in two ways is refused, whatever it says."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.machines import approval
from tests.unit.machines import test_approval as rules
from tests.unit.machines import two_readers

CLIENT_BLOCKS = two_readers.blocks(two_readers.GOOD_CLIENT, two_readers.EVIL_CLIENT)
SERVING_BLOCKS = two_readers.blocks(two_readers.GOOD_SERVING, two_readers.EVIL_SERVING)
UNREADABLE = "it holds no certificate request that can be read"


@pytest.mark.parametrize("content", CLIENT_BLOCKS.values(), ids=CLIENT_BLOCKS)
def test_a_new_machine_sends_one_block_and_nothing_else(content: bytes) -> None:
    request = rules.client(content)

    assert rules.why_not(rules.judged(request)).startswith(UNREADABLE)
    assert approval.claimed(request) == ""


@pytest.mark.parametrize("content", SERVING_BLOCKS.values(), ids=SERVING_BLOCKS)
def test_a_node_sends_one_block_and_nothing_else(content: bytes) -> None:
    verdict = rules.judged(rules.serving(content), nodes=[rules.NODE], shown=rules.shown(rules.OWN))

    assert rules.why_not(verdict).startswith(UNREADABLE)


@pytest.mark.parametrize("make", [rules.client, rules.serving])
@pytest.mark.parametrize("content", two_readers.ATTRIBUTES.values(), ids=two_readers.ATTRIBUTES)
def test_a_request_has_one_attribute_at_most_and_that_is_its_names(make: Any, content: bytes) -> None:
    nodes = [rules.NODE] if make is rules.serving else []

    assert isinstance(rules.judged(make(content), nodes=nodes), approval.Refuse)


def test_why_two_attributes_are_refused_is_told() -> None:
    content = two_readers.ATTRIBUTES["no names, then others"]

    assert "says more than" in rules.why_not(rules.judged(rules.serving(content), nodes=[rules.NODE]))


def test_a_request_of_a_single_attribute_is_read() -> None:
    served = rules.judged(rules.serving(two_readers.ONE_ATTRIBUTE), nodes=[rules.NODE])

    assert served == approval.Approve(rules.NODE, "serving")
    assert rules.judged(rules.client(two_readers.NO_ATTRIBUTE)) == approval.Approve(rules.NODE, "client")


@pytest.mark.parametrize(
    "ending", [pytest.param(b"", id="no last line"), pytest.param(b"\n", id="one"), pytest.param(b"\n\n", id="two")]
)
@pytest.mark.parametrize("width", [64, 76, 10_000], ids=["as kubelets write", "as mail", "on one line"])
def test_lines_may_be_of_any_length(width: int, ending: bytes) -> None:
    """Every reader takes them alike."""
    body = b"".join(two_readers.GOOD_CLIENT.splitlines()[1:-1])
    lines = [body[at : at + width] for at in range(0, len(body), width)]
    content = b"\n".join([b"-----BEGIN CERTIFICATE REQUEST-----", *lines, b"-----END CERTIFICATE REQUEST-----"])

    assert rules.judged(rules.client(content + ending)) == approval.Approve(rules.NODE, "client")


@pytest.mark.parametrize("content", two_readers.WRITTEN.values(), ids=two_readers.WRITTEN)
def test_what_others_write_is_read(content: bytes) -> None:
    assert rules.judged(rules.client(content)) == approval.Approve(rules.NODE, "client")


def test_a_serving_request_of_a_kubelet_is_read() -> None:
    verdict = rules.judged(rules.serving(two_readers.KUBELETS_SERVING), nodes=[rules.NODE])

    assert verdict == approval.Approve(rules.NODE, "serving")
