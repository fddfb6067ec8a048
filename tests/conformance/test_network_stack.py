"""Virtual addresses that really move: our configs, the real keepalived, machines that are network namespaces."""

from __future__ import annotations

import dataclasses
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.network import checks, keepalived, pods, view
from tests.conformance import netns

DUAL = dataclasses.replace(
    netns.SETTINGS,
    api_vips=("10.99.0.5", "fd99::5"),
    ingress_vips=("10.99.0.6", "fd99::6"),
    machine_networks=("10.99.0.0/24", "fd99::/64"),
)
ASK_EVERYBODY = """
import socket
question = bytes([0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + b"\\x08master-0\\x05local\\0" + bytes([0, 1, 0, 1])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
    asker.settimeout(5)
    asker.sendto(question, ("224.0.0.251", 5353))
    print(socket.inet_ntoa(asker.recv(4096)[-4:]))
"""
pytestmark = pytest.mark.needs("keepalived", "root", "ip", "nsenter", "setpriv", "curl")


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[netns.Segment]:
    with netns.segment(tmp_path) as opened:
        yield opened


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> object:
    """Numbers that are worth seeing when nothing is wrong."""

    def said(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}", end="")

    return said


def masters(segment: netns.Segment, count: int = 3, *, known: int | None = None) -> list[netns.Machine]:
    """Masters with an API each, whose keepalived knows the first ``known`` of them."""
    made = [segment.machine(f"master-{number}") for number in range(count)]
    for each in made:
        each.serve_api(segment.authority)
        each.give_kubeconfig(segment.authority)
        each.render(made[:known])
    return made


def start(*machines: netns.Machine) -> None:
    for each in machines:
        each.start_container("keepalived")


def served_by(client: netns.Machine, seconds: float = 1.0) -> str | None:
    """Who answers at the API's virtual address."""
    return client.asks(f"https://{netns.API_VIP}:6443/whoami", seconds)


def answered_by_another(client: netns.Machine, former: netns.Machine) -> bool:
    """Asked in short breaths: one that meets nobody must not hide who comes meanwhile."""
    return served_by(client, 0.5) not in (None, former.name)


def taken_over(segment: netns.Segment, former: list[netns.Machine], begun: float) -> float:
    """How long after ``begun`` another than the former ones has the address.

    It may be reached later than that: if two take it at once, clients may believe the one that lets go again, until
    the other says anew where it is.
    """
    others = [each for each in segment.machines if each not in former]
    netns.until(lambda: any(each.holds() for each in others), 15, "another has the address", segment.logs)
    return time.monotonic() - begun


def test_an_address_moves_when_its_holder_is_stopped_and_when_it_is_killed(segment: netns.Segment, tell) -> None:
    made = masters(segment)
    client = segment.machine("client", view.WORKER)
    start(*made)
    first = segment.settle()
    netns.until(lambda: served_by(client) == first.name, 5, "the holder is reached", segment.logs)

    begun = time.monotonic()
    first.stop("keepalived")
    stopped = taken_over(segment, [first], begun)
    netns.until(lambda: answered_by_another(client, first), 10, "another is reached", segment.logs)
    second = segment.settle()

    begun = time.monotonic()
    second.stop("keepalived", signal.SIGKILL)
    killed = taken_over(segment, [first, second], begun)
    netns.until(lambda: answered_by_another(client, second), 15, "another is reached", segment.logs)

    tell(f"VIP held again: holder stopped (SIGTERM) {stopped:.2f} s, holder killed (SIGKILL) {killed:.2f} s")
    assert second is not first
    assert stopped < killed, "a holder that says good-bye is replaced without any advert being missed"
    assert killed > 2.0, "three adverts have to be missed"


def test_addresses_of_both_families_are_carried_and_move(segment: netns.Segment) -> None:
    made = [segment.machine(f"master-{number}") for number in range(2)]
    for each in made:
        each.wanted = DUAL
        each.serve_api(segment.authority)
        each.render(made)
    start(*made)
    first = segment.settle()
    netns.until(lambda: len(segment.holders("fd99::5")) == 1, 15, "one holder", segment.logs)

    first.stop("keepalived")

    (second,) = [each for each in made if each is not first]
    for address in DUAL.api_vips:
        netns.until(lambda at=address: segment.holders(at) == [second], 10, f"{address} moves", segment.logs)


def test_a_node_answers_for_its_name_by_multicast_where_that_is_wanted(segment: netns.Segment) -> None:
    node, asking = segment.machine("master-0"), segment.machine("asking")
    node.wanted = dataclasses.replace(netns.SETTINGS, mdns=True)
    node.render([node])
    for each in (node, asking):
        each.do("ip", "route", "add", "224.0.0.0/4", "dev", "eth0")
    node.start_agent()
    netns.until(lambda: "mdns: answer for master-0.local" in node.log("agent"), 15, "it listens", segment.logs)

    # dig takes answers from the address alone that it asked, which is nobody's here.
    found = asking.do(sys.executable, "-c", ASK_EVERYBODY, check=False)

    assert node.address in found.stdout, found.stderr + node.logs()


def test_the_address_stays_where_it_is_when_an_equal_comes_back(segment: netns.Segment) -> None:
    made = masters(segment)
    start(*made)
    first = segment.settle()
    first.stop("keepalived")
    second = segment.settle()

    first.start_container("keepalived")
    netns.until(lambda: "Entering BACKUP STATE" in first.log("keepalived").rpartition("Starting VRRP")[2], 10, "back")
    # Longer than it would take to miss three adverts, or for its checks to raise its priority.
    time.sleep(6)

    assert segment.holders() == [second]


def test_a_master_without_an_api_yields_to_one_that_has_one(segment: netns.Segment, tell) -> None:
    made = masters(segment)
    start(*made)
    first = segment.settle()
    # All checks have had their say: nobody has a config server or HAProxy here, all have an API.
    netns.until(lambda: all("chk-api" in each.log("keepalived") for each in made), 15, "checks", segment.logs)

    first.set_ready(False)
    took = netns.until(lambda: not first.holds(), 20, "the address leaves", segment.logs)
    second = segment.settle()
    tell(f"VIP left a master whose API is not ready after {took:.2f} s")
    assert took < 12.0

    first.set_ready(True)
    time.sleep(8)
    assert segment.holders() == [second], f"it came back to {first.name} for nothing\n{segment.logs()}"


def test_masters_honour_the_bootstrap_which_is_none_of_their_peers(segment: netns.Segment, tell) -> None:
    made = masters(segment, 2)
    start(*made)
    segment.settle()
    bootstrap = segment.machine("bootstrap", view.BOOTSTRAP)
    bootstrap.render(made)
    assert all(bootstrap.address not in each.path(keepalived.PATH).read_text() for each in made)

    bootstrap.start_container("keepalived")
    took = netns.until(lambda: segment.holders() == [bootstrap], 15, "the bootstrap holds it alone", segment.logs)
    time.sleep(5)
    assert segment.holders() == [bootstrap], "masters do not believe the bootstrap's adverts"

    begun = time.monotonic()
    bootstrap.stop("keepalived")
    netns.until(lambda: any(each.holds() for each in made), 10, "a master takes over", segment.logs)
    tell(
        f"bootstrap took the VIP in {took:.2f} s, a master had it {time.monotonic() - begun:.2f} s after it was stopped"
    )
    assert segment.settle() in made


def test_the_agent_takes_a_new_peer_in_and_the_address_does_not_move(segment: netns.Segment, tell) -> None:
    first, newcomer = masters(segment, 2, known=1)
    first.show_nodes([first])
    newcomer.show_nodes([first, newcomer])
    start(first)
    assert segment.settle() is first
    first.start_agent()
    netns.until(lambda: first.path("/run/moorage/status.json").exists(), 15, "the agent looks", segment.logs)
    config = first.path(keepalived.PATH)
    assert newcomer.address not in config.read_text()

    first.show_nodes([first, newcomer])
    took = netns.until(lambda: newcomer.address in config.read_text(), 20, "a new peer", segment.logs)
    netns.until(lambda: "Reloading" in first.log("keepalived"), 5, "keepalived is told", segment.logs)
    tell(f"new peer in keepalived.conf after {took * 10:.0f} s of the agent's time")

    newcomer.start_container("keepalived")
    time.sleep(6)
    assert segment.holders() == [first], "the newcomer hears the holder, and the holder kept the address"
    assert "Entering FAULT" not in first.log("keepalived")
    assert first.log("keepalived").count("Entering MASTER STATE") == 1


def test_a_new_master_waits_until_the_others_know_it(segment: netns.Segment) -> None:
    first, newcomer = masters(segment, 2)
    first.show_nodes([first])
    newcomer.show_nodes([first])
    for path in (keepalived.PATH, "/etc/moorage/network-view.json"):
        newcomer.path(path).unlink(missing_ok=True)
    rendered = newcomer.do("env", f"NODE_NAME={newcomer.name}", *newcomer.moorage("render", "--role", "master"))
    newcomer.start_container("keepalived")
    newcomer.start_agent()
    time.sleep(5)
    assert newcomer.path(pods.HALT_MARK).exists(), rendered.stdout
    assert not newcomer.log("keepalived"), "keepalived began"
    assert "keepalived: waits until the other nodes know this one" in rendered.stdout

    newcomer.show_nodes([first, newcomer])
    netns.until(newcomer.holds, 30, "it takes part", segment.logs)
    assert not newcomer.path(pods.HALT_MARK).exists()


def test_the_bootstrap_hands_over_when_its_api_is_gone_and_comes_back_with_it(segment: netns.Segment, tell) -> None:
    (master,) = masters(segment, 1)
    bootstrap = segment.machine("bootstrap", view.BOOTSTRAP)
    bootstrap.serve_api(segment.authority)
    bootstrap.give_kubeconfig(segment.authority)
    bootstrap.show_nodes([master])
    bootstrap.render([master])
    start(master, bootstrap)
    bootstrap.start_agent()
    netns.until(lambda: "the API of this machine is there" in bootstrap.log("agent"), 15, "seen", segment.logs)
    netns.until(lambda: segment.holders() == [bootstrap], 15, "the bootstrap holds it", segment.logs)

    bootstrap.set_ready(False)
    took = netns.until(lambda: segment.holders() == [master], 20, "the master takes over", segment.logs)
    netns.until(lambda: "failed 5 checks in a row" in bootstrap.log("agent"), 5, "it says why", segment.logs)
    tell(f"bootstrap handed over after {took:.1f} s (its agent ten times faster than life)")

    bootstrap.set_ready(True)
    netns.until(lambda: segment.holders() == [bootstrap], 20, "the bootstrap takes it back", segment.logs)


def test_the_agent_sweeps_up_after_a_keepalived_that_was_killed(segment: netns.Segment) -> None:
    first, second = masters(segment, 2)
    for each in (first, second):
        each.show_nodes([first, second])
    start(first, second)
    holder = segment.settle()
    holder.start_agent()
    netns.until(lambda: "looking after" in holder.log("agent"), 10, "the agent runs", segment.logs)

    holder.stop("keepalived", signal.SIGKILL)

    netns.until(lambda: not holder.holds(), 10, "the address is removed", segment.logs)
    said = f"removed {netns.API_VIP} from eth0"
    netns.until(lambda: said in holder.log("agent"), 10, "by the agent, which says so", segment.logs)


@pytest.mark.needs("haproxy", "nft")
def test_the_api_is_balanced_while_haproxy_works_and_direct_when_it_does_not(segment: netns.Segment) -> None:
    first, second = masters(segment, 2)
    client = segment.machine("client", view.WORKER)
    first.show_nodes([first])
    first.render([first])
    start(first)
    assert segment.settle() is first
    first.start_container("haproxy")
    first.start_agent()
    mark = first.path(checks.REDIRECT_MARK)
    netns.until(mark.exists, 20, "the rule is there", segment.logs)
    assert {served_by(client) for _ in range(8)} == {"master-0"}

    first.show_nodes([first, second])
    netns.until(lambda: {served_by(client) for _ in range(8)} == {"master-0", "master-1"}, 20, "both", segment.logs)
    assert {served_by(first) for _ in range(8)} == {"master-0", "master-1"}, "from the node itself"

    first.stop("api")
    netns.until(lambda: {served_by(client) for _ in range(4)} == {"master-1"}, 20, "the other serves", segment.logs)
    assert first.holds(), "the address had no reason to move"

    first.serve_api(segment.authority)
    first.stop("haproxy", signal.SIGKILL)
    netns.until(lambda: not mark.exists(), 20, "the rule goes", segment.logs)
    assert {served_by(client) for _ in range(4)} == {"master-0"}
