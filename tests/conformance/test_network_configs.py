"""The configs of the network stack, read by the real programs: keepalived, HAProxy, CoreDNS, nft, shellcheck."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import moorage.network
from moorage.network import checks, corefile, haproxy, keepalived, pods, redirect, rendering, stack, view
from tests.conformance import coredns, netns

NODE_FILES = Path(moorage.network.__file__).parent / "node_files"
NODES = tuple(
    view.Node(f"{role}-{number}", role, (f"10.99.0.{base + number}", f"fd99::{base + number}"))
    for role, base in ((view.MASTER, 20), (view.WORKER, 30))
    for number in range(3)
)
SINGLE = netns.SETTINGS
DUAL = dataclasses.replace(
    SINGLE,
    api_vips=("10.99.0.5", "fd99::5"),
    ingress_vips=("10.99.0.6", "fd99::6"),
    dns_vips=("10.99.0.7", "fd99::7"),
    machine_networks=("10.99.0.0/24", "fd99::/64"),
)
CASES = [
    pytest.param(wanted, role, nodes, id=f"{name}-{role}-{len(nodes)}-nodes")
    for name, wanted in (("single", SINGLE), ("dual", DUAL))
    for role in view.ROLES
    for nodes in ((), NODES[:1], NODES)
]
in_a_namespace = pytest.mark.needs("root", "ip", "nsenter", "setpriv")


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[netns.Segment]:
    with netns.segment(tmp_path_factory.mktemp("segment")) as opened:
        yield opened


@pytest.fixture(scope="module")
def machine(segment: netns.Segment) -> netns.Machine:
    """A machine on whose disk a case's files are put."""
    return segment.machine("subject")


def put(machine: netns.Machine, wanted, role: str, nodes: tuple[view.Node, ...], resolvers=("10.99.0.9",)) -> None:
    me = view.Self(machine.name, machine.address, "eth0", 24, (machine.address, "fd99::11"))
    for path, text in rendering.files(wanted, role, view.View(me, nodes, resolvers)).items():
        machine.write(path, text, 0o755 if path.endswith(".sh") else 0o644)


@in_a_namespace
@pytest.mark.needs("keepalived")
@pytest.mark.parametrize(("wanted", "role", "nodes"), CASES)
def test_keepalived_has_nothing_against_it(machine: netns.Machine, wanted, role: str, nodes) -> None:
    put(machine, wanted, role, nodes)

    ended = machine.do("keepalived", "-t", "-f", keepalived.PATH, "--log-console", check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@in_a_namespace
@pytest.mark.needs("keepalived")
def test_keepalived_would_have_something_against_a_script_that_others_may_write(machine: netns.Machine) -> None:
    put(machine, SINGLE, view.MASTER, NODES)
    machine.path(checks.path(checks.API)).chmod(0o777)

    ended = machine.do("keepalived", "-t", "-f", keepalived.PATH, check=False)

    assert ended.returncode != 0
    assert "insecure" in ended.stderr


@in_a_namespace
@pytest.mark.needs("haproxy")
@pytest.mark.parametrize(("wanted", "role", "nodes"), [each for each in CASES if view.MASTER in each.values])
def test_haproxy_has_nothing_against_it(machine: netns.Machine, wanted, role: str, nodes) -> None:
    put(machine, wanted, role, nodes)

    ended = machine.do("haproxy", "-c", "-f", haproxy.PATH, check=False)

    assert ended.returncode == 0, ended.stderr
    assert "WARNING" not in ended.stderr


@in_a_namespace
@pytest.mark.needs("nft")
@pytest.mark.parametrize("wanted", [SINGLE, DUAL], ids=["single", "dual"])
def test_nft_takes_the_rules_twice_and_their_removal_twice(machine: netns.Machine, wanted) -> None:
    for text in (redirect.ruleset(wanted.api_vips), redirect.removal()):
        for _ in range(2):
            ended = subprocess.run(machine.inside("nft", "-f", "-"), input=text, capture_output=True, text=True)
            assert ended.returncode == 0, ended.stderr
        there = machine.do("nft", "list", "ruleset").stdout
        assert ("redirect to :9445" in there) == (text != redirect.removal())


class Names:
    """CoreDNS on a machine, and what it says."""

    def __init__(self, machine: netns.Machine, upstream: netns.Machine) -> None:
        self.machine, self.upstream = machine, upstream

    def ask(self, name: str, kind: str = "A") -> tuple[str, list[str]]:
        """The status and the answers, as dig sees them."""
        words = ("dig", f"@{self.machine.address}", name, kind, "+tries=1", "+time=3")
        text = self.machine.do(*words, check=False).stdout
        status = text.partition("status: ")[2].partition(",")[0]
        return status, self.machine.do(*words, "+short", check=False).stdout.split()

    def asked_upstream(self, name: str) -> bool:
        return f"asked for {name}" in self.upstream.log("names")


@pytest.fixture(scope="module")
def names(segment: netns.Segment, machine: netns.Machine) -> Names:
    program = coredns.path()
    assert program
    upstream = segment.machine("upstream")
    upstream.start("names", sys.executable, str(Path(__file__).with_name("name_stand_in.py")), upstream.address)
    put(machine, DUAL, view.MASTER, NODES, (upstream.address, DUAL.api_vips[0], machine.address))
    command = pods._COREDNS.replace("exec coredns", f"exec {program}")
    machine.start("coredns", "sh", "-c", command)
    health = f"http://127.0.0.1:{checks.DNS_HEALTH_PORT}/health"
    netns.until(lambda: machine.asks(health) == "OK", 15, "CoreDNS", lambda: machine.log("coredns"))
    return Names(machine, upstream)


needs_coredns = [in_a_namespace, pytest.mark.needs("coredns", "dig", "curl")]


@pytest.mark.parametrize(
    ("name", "kind", "status", "expected"),
    [
        pytest.param(*case, marks=needs_coredns, id=f"{case[0]}-{case[1]}")
        for case in (
            ("api.harbour.example.com", "A", "NOERROR", ["10.99.0.5"]),
            ("api.harbour.example.com", "AAAA", "NOERROR", ["fd99::5"]),
            ("API-int.Harbour.example.com", "A", "NOERROR", ["10.99.0.5"]),
            ("api.harbour.example.com", "TXT", "NOERROR", []),
            ("console.apps.harbour.example.com", "A", "NOERROR", ["10.99.0.6"]),
            ("a.b.apps.harbour.example.com", "AAAA", "NOERROR", ["fd99::6"]),
            ("console.apps.harbour.example.com", "MX", "NOERROR", []),
            ("master-1.harbour.example.com", "A", "NOERROR", ["10.99.0.21"]),
            ("master-1.harbour.example.com", "AAAA", "NOERROR", ["fd99::21"]),
            ("worker-2", "A", "NOERROR", ["10.99.0.32"]),
            ("subject.harbour.example.com", "A", "NOERROR", ["10.99.0.11"]),
            ("21.0.99.10.in-addr.arpa", "PTR", "NOERROR", ["master-1.", "master-1.harbour.example.com."]),
            ("world.example.org", "A", "NOERROR", ["192.0.2.99"]),
            ("nowhere.example.org", "A", "NXDOMAIN", []),
            ("xapi.harbour.example.com", "A", "NXDOMAIN", []),
            ("api.harbour.example.com.example.org", "A", "NXDOMAIN", []),
            ("apps.harbour.example.com", "A", "NXDOMAIN", []),
            ("master-1xharbour.example.com", "A", "NXDOMAIN", []),
        )
    ],
)
def test_coredns_answers(names: Names, name: str, kind: str, status: str, expected: list[str]) -> None:
    said, answers = names.ask(name, kind)

    assert (said, sorted(answers)) == (status, sorted(expected))
    ours = name.lower().endswith(("harbour.example.com", "arpa", "worker-2")) and status == "NOERROR"
    assert names.asked_upstream(name) != ours


@pytest.mark.parametrize("_", [pytest.param(None, marks=needs_coredns, id="")])
def test_coredns_learns_of_a_new_node_and_a_new_corefile_by_itself(names: Names, _: None) -> None:
    newer = (*NODES, view.Node("worker-9", view.WORKER, ("10.99.0.39",)))
    moved = dataclasses.replace(DUAL, ingress_vips=("10.99.0.66", "fd99::66"))
    put(names.machine, moved, view.MASTER, newer, (names.upstream.address,))

    netns.until(lambda: names.ask("worker-9")[1] == ["10.99.0.39"], 60, "a new node")
    # What was asked before may be remembered for a while; this one was not.
    netns.until(lambda: names.ask("new.apps.harbour.example.com")[1] == ["10.99.0.66"], 60, "a new address")
    assert corefile.TTL == 60


# --- files that are scripts ---

SCRIPTS = {
    **{name: checks.script(name) for name in checks._SCRIPTS},
    "keepalived": f"#!/bin/sh\n{pods._KEEPALIVED}",
    stack.DISPATCHER: (NODE_FILES / stack.DISPATCHER).read_text(),
}


@pytest.mark.needs("shellcheck")
@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_has_nothing_to_say(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(SCRIPTS[name])

    done = subprocess.run(["shellcheck", "--severity=style", path], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


@in_a_namespace
def test_the_dispatcher_lets_a_node_ask_itself_first(segment: netns.Segment) -> None:
    machine = segment.machine("asking")
    machine.do("ip", "address", "add", f"{netns.API_VIP}/32", "dev", "eth0")
    for file in stack.node_files(SINGLE, view.WORKER):
        machine.write(file.path, file.contents.decode(), file.mode)
    given = ("10.99.0.5", "192.0.2.1", "192.0.2.2", "192.0.2.3")
    servers = "".join(f"nameserver {each}\n" for each in given)
    machine.write("/run/NetworkManager/resolv.conf", f"search lan.example.net\n{servers}")
    link = machine.path("/etc/resolv.conf")
    link.unlink(missing_ok=True)
    link.symlink_to("../run/systemd/resolve/stub-resolv.conf")

    machine.do(f"/etc/NetworkManager/dispatcher.d/{stack.DISPATCHER}", "eth0", "up")

    assert not link.is_symlink()
    lines = [line for line in link.read_text().splitlines() if not line.startswith("#")]
    assert lines == [
        "search harbour.example.com lan.example.net",
        f"nameserver {machine.address}",
        "nameserver 192.0.2.1",
        "nameserver 192.0.2.2",
    ]
    assert link.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in link.parent.glob("resolv.conf*")] == ["resolv.conf"]

    before = link.stat().st_ino
    machine.do(f"/etc/NetworkManager/dispatcher.d/{stack.DISPATCHER}", "eth0", "dhcp4-change")
    machine.do(f"/etc/NetworkManager/dispatcher.d/{stack.DISPATCHER}", "eth0", "pre-up")
    assert link.stat().st_ino == before, "written although nothing changed"
