"""What the agent does with what it sees, over time."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from moorage.engine import clock as clocks
from moorage.network import agent, checks, corefile, haproxy, host, keepalived, pods, rendering, status, view
from tests.unit.network import conftest
from tests.unit.network.fake_host import FakeHost

NEWCOMER = view.Node("master-9", view.MASTER, ("10.0.0.19",))


class Story:
    """An agent on a fake node, and the time that passes for it."""

    def __init__(self, root: Path, role: str = view.MASTER) -> None:
        self.host = FakeHost(root)
        self.host.write("/etc/moorage/network.json", conftest.SETTINGS.to_json())
        self.clock = clocks.ManualClock()
        self.said: list[str] = []
        self.role = role
        self.restart()

    def restart(self) -> None:
        self.agent = agent.Agent(conftest.SETTINGS, self.role, self.host, self.clock, self.said.append)

    def looks(self, times: int = 1) -> None:
        for _ in range(times):
            self.agent.step()
            self.clock.sleep(agent.LOOK_SECONDS)

    def text(self, path: str = keepalived.PATH) -> str:
        return self.host.text(path) or ""

    def heard(self, words: str) -> int:
        return sum(words in line for line in self.said)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


def test_the_first_look_writes_everything(story: Story) -> None:
    story.looks()

    expected = rendering.files(conftest.SETTINGS, view.MASTER, conftest.VIEW)
    assert {path: story.text(path) for path in expected} == expected
    assert story.host.at(checks.path(checks.API)).stat().st_mode & 0o777 == 0o755
    assert story.host.at(keepalived.PATH).stat().st_mode & 0o777 == 0o644
    assert sorted(story.host.told) == ["haproxy", "keepalived"]


def test_looks_that_show_nothing_new_change_nothing(story: Story) -> None:
    story.looks()
    story.host.told.clear()
    written = {path: story.host.at(path).stat().st_mtime_ns for path in (keepalived.PATH, corefile.PATH, haproxy.PATH)}

    story.looks(50)

    assert story.host.told == []
    assert written == {path: story.host.at(path).stat().st_mtime_ns for path in written}


def test_a_new_peer_counts_when_it_was_seen_three_times_over_twenty_seconds(story: Story) -> None:
    story.looks()
    story.host.told.clear()
    story.host.cluster = (*conftest.VIEW.nodes, NEWCOMER)

    story.looks(2)
    assert "10.0.0.19" not in story.text()
    assert story.agent.status()["pending"] == 2
    story.looks()
    assert "10.0.0.19" in story.text()
    assert sorted(story.host.told) == ["haproxy", "keepalived"]
    assert story.heard("(new: master-9)")


def test_a_node_that_flickers_is_no_change(story: Story) -> None:
    story.looks()
    story.host.told.clear()

    for _ in range(10):
        story.host.cluster = conftest.VIEW.nodes[1:]
        story.looks(2)
        story.host.cluster = conftest.VIEW.nodes
        story.looks()

    assert story.host.told == []


def test_without_an_api_the_last_good_view_stays_and_is_said_once(story: Story) -> None:
    story.looks()
    before = story.text()
    story.host.cluster = "localhost: Connection refused"

    story.looks(20)

    assert story.text() == before
    assert story.heard("the last good view stays: localhost: Connection refused") == 1
    assert story.agent.status()["cluster"] == {"answers": False, "why": "localhost: Connection refused"}
    story.host.cluster = conftest.VIEW.nodes
    story.looks()
    assert story.heard("can be seen again") == 1


def test_an_agent_that_starts_without_an_api_knows_what_it_knew(story: Story) -> None:
    story.looks()
    before = story.text()
    story.host.cluster = "nobody"
    story.host.at(keepalived.PATH).unlink()

    story.restart()
    story.looks()

    assert story.text() == before


def test_a_view_that_cannot_be_read_is_as_good_as_none(story: Story) -> None:
    story.host.write(host.VIEW_PATH, '{"self": 3}')

    story.restart()
    story.looks()

    assert "10.0.0.11" in story.text()


def test_a_refused_config_leaves_the_old_one_and_is_tried_again_later(story: Story) -> None:
    story.looks()
    before = story.text()
    story.host.told.clear()
    story.host.refuses = {"keepalived": "line 7: no"}
    story.host.cluster = (*conftest.VIEW.nodes, NEWCOMER)

    story.looks(20)

    assert story.text() == before
    assert "keepalived" not in story.host.told
    assert "10.0.0.19" in story.text(haproxy.PATH), "the others go on"
    assert story.heard("keepalived refuses the new config, the old one stays: line 7: no") == 1
    assert story.agent.status()["refused"] == {keepalived.PATH: "line 7: no"}
    story.host.refuses = {}
    story.looks(8)
    assert "10.0.0.19" in story.text()
    assert story.agent.status()["refused"] == {}


def test_a_node_that_moves_to_another_interface_is_followed(story: Story) -> None:
    story.looks()
    story.host.me = dataclasses.replace(conftest.ME, interface="br-ex")

    story.looks(4)

    assert "interface br-ex" in story.text()
    assert story.heard("this node is 10.0.0.10 on br-ex")


def test_a_node_that_loses_its_address_for_a_moment_keeps_what_it_has(story: Story) -> None:
    story.looks()
    before = story.text()
    story.host.me = None
    story.host.given = ()

    story.looks(10)

    assert story.text() == before
    assert "forward . 192.0.2.53 " in story.text(corefile.PATH)


def test_a_node_without_an_address_writes_nothing_and_says_why(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.host.me = None

    story.looks(3)

    assert story.text() == ""
    assert story.heard("no address in 10.0.0.0/24 yet") == 1


# --- taking part ---


def test_a_new_node_waits_until_the_others_have_had_time_to_know_it(story: Story) -> None:
    story.host.cluster = conftest.VIEW.nodes[1:]
    story.agent.begin()
    assert story.host.halted
    story.looks(20)
    assert story.host.halted, "the cluster does not know it"

    story.host.cluster = conftest.VIEW.nodes
    story.looks(3)
    assert story.host.halted
    story.looks(3)
    assert not story.host.halted
    assert story.heard("may start")


def test_a_node_that_starts_again_does_not_wait(story: Story) -> None:
    story.looks()
    story.host.cluster = "nobody: the whole cluster was switched off"
    story.host.halt("left over")

    story.restart()
    story.agent.begin()

    assert not story.host.halted


def test_the_bootstrap_does_not_wait_and_is_not_let_go_by_rendering(tmp_path: Path) -> None:
    story = Story(tmp_path, view.BOOTSTRAP)
    story.host.cluster = ()

    story.agent.begin()
    story.looks()
    assert not story.host.halted
    story.host.halt("its API is gone")
    story.agent.begin()
    story.looks(20)
    assert story.host.halted


# --- telling ---


def test_status_tells_what_was_rendered_and_why(story: Story) -> None:
    story.looks()
    story.host.cluster = (*conftest.VIEW.nodes, NEWCOMER)
    story.looks(3)
    story.host.halt("waits")
    story.host.on_interface = [("ens3", "10.0.0.5", 32)]
    story.looks()

    found = status.read(story.host)

    assert found["files"][keepalived.PATH]["why"] == "new: master-9"
    assert found["files"][corefile.PATH]["why"] == "first view"
    assert found["carries"] == ["10.0.0.5"]
    assert json.loads(json.dumps(found)) == found
    text = status.text(found)
    assert "master-0: master, 10.0.0.10 on ens3" in text
    assert "carries     10.0.0.5" in text
    assert "keepalived  runs: waits" in text
    assert f"{keepalived.PATH}: new: master-9" in text
    assert story.host.at(pods.HALT_MARK).read_text() == "waits\n"


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (dataclasses.replace(conftest.VIEW, nodes=conftest.MASTERS), "gone: worker-0, worker-1"),
        (dataclasses.replace(conftest.VIEW, resolvers=()), "resolvers: none"),
        (
            dataclasses.replace(
                conftest.VIEW, nodes=(view.Node("master-0", "master", ("10.0.0.99",)), *conftest.VIEW.nodes[1:])
            ),
            "changed: master-0",
        ),
    ],
)
def test_changes_are_told_in_words(after: view.View, words: str) -> None:
    assert agent.changes(conftest.VIEW, after) == words
