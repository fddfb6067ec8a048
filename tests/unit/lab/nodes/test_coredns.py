"""CoreDNS of a simulated machine: what it answers, to the machine itself and over the wire."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct

import pytest

from moorage.lab import names
from moorage.lab.nodes import coredns, corefile, instance, network
from tests.unit.lab.nodes.vip_world import Scene, console, pod, story, until

DOMAIN = "harbour.example.com"
COREFILE = """\
.:53 {{
    errors
    health localhost:18080
    template IN A {domain} {{
        match ^api(-int)?\\.harbour\\.example\\.com\\.$
        answer "{{{{ .Name }}}} 60 IN A 127.9.0.100"
        fallthrough
    }}
    template IN ANY {domain} {{
        match ^api(-int)?\\.harbour\\.example\\.com\\.$
        rcode NOERROR
        fallthrough
    }}
    hosts /etc/coredns/nodes.hosts {{
        ttl 60
        fallthrough
    }}
    forward . {server}
    cache 30
}}
"""
HOSTS = "127.9.1.1 master-0 master-0.harbour.example.com\n# nobody\n127.9.1.2 master-1.harbour.example.com\n"
DISPATCHER = "/etc/NetworkManager/dispatcher.d/30-resolv"
A, AAAA, TXT, PTR = 1, 28, 16, 12


def answers(text: str, hosts: str = HOSTS, upstream: names.Zones | None = None) -> coredns.CoreDNS:
    def ask(address: str, port: int, name: names.Name, kind: int) -> names.Reply | None:
        return None if upstream is None or address != "10.0.0.1" else upstream.lookup(name, kind)

    files = {"/etc/coredns/nodes.hosts": hosts.encode()}
    return coredns.CoreDNS(coredns.read(text, "Corefile", files.get), files.get, ask)


def asked(found: coredns.CoreDNS, name: str, kind: int = A) -> tuple[int, list[str], list[int]]:
    reply = found.lookup(names.parsed(name), kind)
    data = [str(ipaddress.ip_address(each.data)) for each in reply.answers if each.kind in (A, AAAA)]
    return reply.code, data, [each.ttl for each in reply.answers]


OUTSIDE = names.Zones()
OUTSIDE.hold("example.org")
OUTSIDE.put(names.RecordSet("www.example.org", "A", ("10.0.0.80",), ttl=300))
USUAL = COREFILE.format(domain=DOMAIN, server="10.0.0.1")


@pytest.mark.parametrize(
    ("name", "kind", "code", "data", "ttls"),
    [
        (f"api.{DOMAIN}", A, names.NOERROR, ["127.9.0.100"], [30]),
        (f"API-INT.{DOMAIN}", A, names.NOERROR, ["127.9.0.100"], [30]),
        (f"api.{DOMAIN}", AAAA, names.NOERROR, [], []),
        (f"api.{DOMAIN}", TXT, names.NOERROR, [], []),
        ("master-0", A, names.NOERROR, ["127.9.1.1"], [30]),
        (f"master-1.{DOMAIN}", A, names.NOERROR, ["127.9.1.2"], [30]),
        (f"master-1.{DOMAIN}", AAAA, names.NOERROR, [], []),
        ("www.example.org", A, names.NOERROR, ["10.0.0.80"], [30]),
        ("nope.example.org", A, names.NXDOMAIN, [], []),
        (f"master-9.{DOMAIN}", A, names.REFUSED, [], []),
    ],
)
def test_questions_go_through_the_plugins_in_their_order(
    name: str, kind: int, code: int, data: list[str], ttls: list[int]
) -> None:
    assert asked(answers(USUAL, upstream=OUTSIDE), name, kind) == (code, data, ttls)


def test_addresses_lead_back_to_names() -> None:
    reply = answers(USUAL).lookup(names.parsed("1.1.9.127.in-addr.arpa"), PTR)

    assert [each.data for each in reply.answers] == [
        b"\x08master-0\x00",
        b"\x08master-0\x07harbour\x07example\x03com\x00",
    ]


def test_nobody_behind_it_is_a_failure() -> None:
    alone = USUAL.replace("    forward . 10.0.0.1\n", "")

    assert asked(answers(USUAL), "www.example.org")[0] == names.SERVFAIL
    assert asked(answers(alone), "www.example.org")[0] == names.SERVFAIL
    assert asked(answers(".:53 {\n errors\n}\n"), "www.example.org")[0] == names.REFUSED
    assert asked(answers("example.net {\n errors\n}\n"), "www.example.org")[0] == names.REFUSED


def test_without_fallthrough_the_first_that_knows_nothing_has_the_last_word() -> None:
    sealed = USUAL.replace("        fallthrough\n", "")
    hosts = ". {\n hosts /etc/coredns/nodes.hosts example.com\n forward . 10.0.0.1\n}\n"

    assert asked(answers(sealed, upstream=OUTSIDE), f"master-1.{DOMAIN}")[0] == names.SERVFAIL
    assert asked(answers(hosts, upstream=OUTSIDE), f"master-9.{DOMAIN}")[0] == names.SERVFAIL
    assert asked(answers(hosts, upstream=OUTSIDE), "www.example.org")[1] == ["10.0.0.80"]


def test_the_longest_zone_answers() -> None:
    text = '. {\n template IN A {\n answer "{{ .Name }} A 10.0.0.1"\n }\n}\n'
    text += 'sub.example.com {\n template IN A {\n answer "{{ .Name }} 5 IN A 10.0.0.2"\n }\n}\n'

    found = answers(text)

    assert asked(found, "sub.example.com") == (names.NOERROR, ["10.0.0.2"], [5])
    assert asked(found, "a.sub.example.com")[1] == ["10.0.0.2"]
    assert asked(found, "notsub.example.com") == (names.NOERROR, ["10.0.0.1"], [3600])


def test_templates_are_filled_with_what_was_asked() -> None:
    text = """
    . {
        template IN A example.com {
            match ^(?P<host>[a-z]+)-(\\d+)\\.example\\.com\\.$
            answer "{{ .Name }} A 10.0.0.{{ index .Match 2 }}"
        }
        template IN TXT {
            match ^(?P<host>\\w+)
            answer "{{ .Name }} TXT {{ .Group.host }}.{{ .Zone }}{{ .Type }}"
        }
    }
    """

    found = answers(text)

    assert asked(found, "node-7.example.com")[1] == ["10.0.0.7"]
    assert asked(found, "node-777.example.com")[0] == names.SERVFAIL
    (reply,) = found.lookup(names.parsed("some.where"), TXT).answers
    assert reply.data[1:] == b"some..TXT"


def test_an_alias_comes_with_what_it_stands_for() -> None:
    text = '. {\n template IN A {\n match ^www\\.\n answer "{{ .Name }} CNAME api.example.com"\n fallthrough\n }\n'
    text += " hosts {\n 10.0.0.9 api.example.com\n fallthrough\n }\n}\n"

    assert asked(answers(text), "www.example.com")[1] == ["10.0.0.9"]


# --- on a machine ------------------------------------------------------------------------------------------------


def contents(scene: Scene, text: str = COREFILE, *, asks: bool = True) -> dict[str, str]:
    start = "exec coredns -conf /etc/coredns/Corefile -dns.port 53"
    found = {
        "/etc/coredns/Corefile": text.format(domain=DOMAIN, server=scene.site.nameserver.host),
        "/etc/coredns/nodes.hosts": HOSTS,
        "/etc/kubernetes/manifests/coredns.yaml": pod("coredns", "/etc/coredns", start),
    }
    return found | ({DISPATCHER: "put me into /etc/resolv.conf"} if asks else {})


async def running(scene: Scene, machine: instance.Instance) -> None:
    await until(lambda: "coredns" in machine.wire.listening, console(machine))


def test_a_machine_asks_its_own_name_server_first_and_while_it_runs() -> None:
    async def tell(scene: Scene) -> None:
        scene.site.zones.hold("example.com")
        scene.site.zones.put(names.RecordSet(f"api.{DOMAIN}", "A", ("127.0.0.77",)))
        scene.site.zones.put(names.RecordSet("www.example.com", "A", ("127.0.0.80",)))
        machine = await scene.machine("m", contents(scene))
        assert await machine.wire.resolve(f"api.{DOMAIN}") == ["127.0.0.77"]
        await running(scene, machine)

        assert await machine.wire.resolve(f"api.{DOMAIN}") == ["127.9.0.100"]
        assert await machine.wire.resolve("master-0") == ["127.9.1.1"]
        assert await machine.wire.resolve("www.example.com") == ["127.0.0.80"]
        with pytest.raises(network.NoSuchName, match=rf"lookup no\.example\.com on {machine.address}:53: no such host"):
            await machine.wire.resolve("no.example.com")
        # The next server is asked where this one fails, and only then.
        with pytest.raises(OSError, match="server misbehaving"):
            await machine.wire.resolve("www.example.net")

        machine.kept["/etc/coredns/nodes.hosts"] = b"127.9.1.9 master-0\n"
        assert await machine.wire.resolve("master-0") == ["127.9.1.9"]

        await machine.power_off()
        assert await machine.wire.resolve(f"api.{DOMAIN}") == ["127.0.0.77"]

    story(tell)


def test_a_machine_that_is_cut_off_still_knows_its_own_names() -> None:
    async def tell(scene: Scene) -> None:
        scene.site.zones.hold("example.com")
        machine = await scene.machine("m", contents(scene))
        await running(scene, machine)
        machine.wire.resolvers.pop()

        await machine.partition()

        assert await machine.wire.resolve(f"api.{DOMAIN}") == ["127.9.0.100"]
        with pytest.raises(network.Misbehaving):
            await machine.wire.resolve("www.example.com")

    story(tell)


def test_without_a_dispatcher_nobody_asks_it() -> None:
    async def tell(scene: Scene) -> None:
        machine = await scene.machine("m", contents(scene, asks=False))
        await running(scene, machine)

        with pytest.raises(OSError, match="server misbehaving"):
            await machine.wire.resolve(f"api.{DOMAIN}")
        assert "nothing in /etc/NetworkManager/dispatcher.d puts it into resolv.conf" in console(machine)

    story(tell)


def test_others_ask_it_over_the_wire() -> None:
    async def tell(scene: Scene) -> None:
        machine = await scene.machine("m", contents(scene))
        await running(scene, machine)
        port = scene.site.port(53)

        question = (
            struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + b"\3api\7harbour\7example\3com\0" + struct.pack("!2H", 1, 1)
        )
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendto(asking, question, (machine.address, port))
            reply = await asyncio.wait_for(loop.sock_recv(asking, 512), 5)
        health = await machine.wire.request("GET", f"http://localhost:{scene.site.port(18080)}/health")

        assert reply.endswith(ipaddress.ip_address("127.9.0.100").packed)
        assert health.status == 200

    story(tell)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("errors", "mdns"), "coredns: /etc/coredns/Corefile:2 - Error during parsing: Unknown directive 'mdns'"),
        (("errors", "loop\n    errors"), "coredns: plugin/loop: Loop ("),
    ],
)
def test_what_it_refuses_keeps_it_from_starting(change: tuple[str, str], words: str) -> None:
    async def tell(scene: Scene) -> None:
        server = "127.0.0.1" if "loop" in words else scene.site.nameserver.host
        text = COREFILE.replace(*change, 1).replace("{server}", server)
        machine = await scene.machine("m", contents(scene, text))

        await until(lambda: words in console(machine), console(machine))

        assert "back-off restarting failed container coredns in pod coredns" in console(machine)
        assert "coredns" not in machine.wire.listening
        machine.kept["/etc/coredns/Corefile"] = contents(scene)["/etc/coredns/Corefile"].encode()
        await running(scene, machine)

    story(tell)


def test_a_wrong_change_leaves_the_old_answers() -> None:
    async def tell(scene: Scene) -> None:
        machine = await scene.machine("m", contents(scene))
        await running(scene, machine)
        good = contents(scene)["/etc/coredns/Corefile"]

        machine.kept["/etc/coredns/Corefile"] = good.replace("errors", "mistake").encode()
        await until(lambda: "coredns: goes on with the config it has" in console(machine))
        assert await machine.wire.resolve(f"api.{DOMAIN}") == ["127.9.0.100"]

        machine.kept["/etc/coredns/Corefile"] = good.replace("127.9.0.100", "127.9.0.101").encode()

        async def moved() -> bool:
            return await machine.wire.resolve(f"api.{DOMAIN}") == ["127.9.0.101"]

        async with asyncio.timeout(10):
            while not await moved():
                await asyncio.sleep(0.02)

    story(tell)


def test_ports_of_its_own_are_not_the_virtual_address_s() -> None:
    servers = corefile.parse(". {\n health localhost:18080\n}\nexample.com {\n health :8080\n}\n", "f", {}.get)

    assert coredns.private_ports(servers) == {18080}
