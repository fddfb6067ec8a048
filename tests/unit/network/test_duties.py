"""The agent's other duties, each with its patience."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.network import duties
from tests.unit.network import conftest
from tests.unit.network.fake_host import FakeHost


@pytest.fixture
def node(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def steps(duty: duties.Duty, times: int) -> None:
    for _ in range(times):
        duty.step()


def test_the_api_is_led_through_haproxy_while_that_answers(node: FakeHost) -> None:
    duty = duties.Redirect(conftest.SETTINGS, node, lambda _: None)

    node.answering = {9445}
    steps(duty, 2)
    assert not node.redirected
    steps(duty, 1)
    assert node.redirected

    node.answering = set()
    steps(duty, 4)
    assert node.redirected, "a HAProxy that stumbles is given time"
    steps(duty, 1)
    assert not node.redirected


def test_an_agent_that_starts_anew_finds_the_rule_and_removes_it_at_its_end(node: FakeHost) -> None:
    node.put_redirect(conftest.SETTINGS, on=True)
    said: list[str] = []
    duty = duties.Redirect(conftest.SETTINGS, node, said.append)
    node.answering = {9445}

    steps(duty, 10)
    assert said == []
    duty.end()
    assert not node.redirected


def test_an_agent_that_finds_a_mark_alone_sets_the_rule_once(node: FakeHost) -> None:
    node.put_redirect(conftest.SETTINGS, on=True)
    node.rule = False
    duty = duties.Redirect(conftest.SETTINGS, node, lambda _: None)
    steps(duty, 1)
    assert not node.rule, "HAProxy does not answer: the rule would lead nowhere"

    node.answering = {9445}
    steps(duty, 1)
    assert node.rule

    node.rule = False
    steps(duty, 10)
    assert not node.rule, "looked after once: it is not set again and again"


def test_a_rule_that_could_not_be_set_is_tried_again(node: FakeHost) -> None:
    duty = duties.Redirect(conftest.SETTINGS, node, lambda _: None)
    node.answering, node.firewall_works = {9445}, False
    steps(duty, 2)
    with pytest.raises(OSError, match="not permitted"):
        duty.step()

    node.firewall_works = True
    steps(duty, 3)

    assert node.redirected


def test_the_bootstrap_lets_go_after_more_than_four_failures_in_a_row(node: FakeHost) -> None:
    duty = duties.HandOver(node, lambda _: None)
    steps(duty, 50)
    assert not node.halted, "an API that was never there cannot be gone"

    node.answering = {6443}
    steps(duty, 1)
    node.answering = set()
    steps(duty, 4)
    node.answering = {6443}
    steps(duty, 1)
    node.answering = set()
    steps(duty, 4)
    assert not node.halted
    steps(duty, 1)
    assert node.halted

    node.answering = {6443}
    steps(duty, 1)
    assert not node.halted, "it is back"


def test_addresses_are_swept_up_only_where_keepalived_is_surely_gone(node: FakeHost) -> None:
    duty = duties.Sweep(conftest.SETTINGS, node, lambda _: None)
    node.on_interface = [("ens3", "10.0.0.5", 32), ("ens3", "10.0.0.6", 32)]

    steps(duty, 3)
    node.up.discard("keepalived")
    steps(duty, 1)
    assert len(node.on_interface) == 2, "it may be about to start"
    steps(duty, 1)
    assert node.on_interface == []

    node.up.add("keepalived")
    node.on_interface = [("ens3", "10.0.0.5", 32)]
    steps(duty, 3)
    assert node.on_interface
