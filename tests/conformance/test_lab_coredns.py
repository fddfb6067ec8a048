"""The lab's CoreDNS and the real one: the same answers to the same questions, and the same refusals."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
import re
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.engine import clock as clocks
from moorage.lab import name_server, names
from moorage.lab.nodes import coredns, corefile
from moorage.network import corefile as rendered
from moorage.network import settings, view
from tests.conformance import coredns as real

DOMAIN = "harbour.example.com"
WANTED = settings.Settings(
    "harbour-abcde", DOMAIN, ("192.0.2.100",), ("192.0.2.101",), machine_networks=("192.0.2.0/24",)
)
SEEN = view.View(
    view.Self("master-0", "192.0.2.1", "ens3", 24),
    tuple(view.Node(f"master-{number}", view.MASTER, (f"192.0.2.{number + 1}",)) for number in range(3)),
    ("192.0.2.200",),
)
A, PTR, TXT, AAAA = 1, 12, 16, 28

pytestmark = pytest.mark.needs("coredns")


def free_port() -> int:
    """A port that is free for both protocols, below those that the kernel gives to connections."""
    while True:
        port = random.randrange(20_000, 32_000)
        kinds = (socket.SOCK_DGRAM, socket.SOCK_STREAM)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for kind in kinds:
                stack.enter_context(socket.socket(socket.AF_INET, kind)).bind(("", port))
            return port


def question(name: str, kind: int) -> bytes:
    labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
    return struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)


def told(reply: bytes) -> tuple[int, list[tuple[int, int, bytes]]]:
    """The code of a reply, and type, TTL and data of its answers."""
    _, flags, _, count, _, _ = struct.unpack_from("!6H", reply)
    at = _after_name(reply, 12) + 4
    found = []
    for _ in range(count):
        at = _after_name(reply, at)
        kind, _, ttl, length = struct.unpack_from("!HHIH", reply, at)
        found.append((kind, ttl, reply[at + 10 : at + 10 + length]))
        at += 10 + length
    return flags & 15, sorted(found)


def _after_name(packet: bytes, at: int) -> int:
    while length := packet[at]:
        if length > 63:
            return at + 2
        at += 1 + length
    return at + 1


@contextlib.contextmanager
def running(text: str, folder: Path) -> Iterator[int]:
    """A real CoreDNS with that Corefile; its port."""
    port = next(port for port in iter(free_port, None) if f":{port}" not in text)
    (folder / "Corefile").write_text(text)
    command = [str(real.path()), "-conf", folder / "Corefile", "-dns.port", str(port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 20
        while "CoreDNS-" not in (said := (folder / "log").read_text()):
            assert process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.02)
        yield port
    finally:
        process.kill()
        process.wait()


def asked(port: int, name: str, kind: int) -> tuple[int, list[tuple[int, int, bytes]]]:
    deadline = time.monotonic() + 10
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(1)
        while True:
            asking.sendto(question(name, kind), ("127.0.0.1", port))
            with contextlib.suppress(OSError):
                return told(asking.recv(4096))
            assert time.monotonic() < deadline, "CoreDNS does not answer"


def corefile_of(folder: Path, upstream: str) -> str:
    """What the product renders, with its files in a folder and free ports; its own order and words stay."""
    (folder / "nodes.hosts").write_text(rendered.hosts(WANTED, SEEN))
    text = rendered.render(WANTED, SEEN)
    text = text.replace("192.0.2.200", upstream).replace(rendered.HOSTS_PATH, str(folder / "nodes.hosts"))
    return re.sub(r"health \S+", f"health 127.0.0.1:{free_port()}", text.replace(".:53", "."))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"api.{DOMAIN}", A),
        (f"api-int.{DOMAIN}", A),
        (f"API.{DOMAIN}", A),
        (f"api.{DOMAIN}", AAAA),
        (f"api.{DOMAIN}", TXT),
        (f"console.apps.{DOMAIN}", A),
        (f"a.b.apps.{DOMAIN}", A),
        (f"apps.{DOMAIN}", A),
        (f"xapi.{DOMAIN}", A),
        ("master-1", A),
        (f"master-2.{DOMAIN}", A),
        (f"master-2.{DOMAIN}", AAAA),
        ("2.2.0.192.in-addr.arpa", PTR),
        ("world.example.org", A),
        ("nobody.example.org", A),
        ("elsewhere.example.net", A),
    ],
)
def test_both_answer_alike(name: str, kind: int, tmp_path: Path) -> None:
    outside = names.Zones()
    outside.hold("example.org")
    outside.put(names.RecordSet("world.example.org", "A", ("192.0.2.99",)))

    async def tell() -> None:
        # The real one asks over the wire, the lab's directly: of the same zones.
        async with name_server.NameServer(outside, clocks.Clock()) as server:
            text = corefile_of(tmp_path, f"127.0.0.1:{server.port}")
            with running(text, tmp_path) as port:
                there = await asyncio.to_thread(asked, port, name, kind)

        def read(path: str) -> bytes | None:
            return Path(path).read_bytes() if Path(path).exists() else None

        servers = coredns.read(text, "Corefile", read)
        here = coredns.CoreDNS(servers, read, lambda *about: outside.lookup(*about[2:]))
        reply = names.respond(question(name, kind), here)

        assert reply is not None
        assert told(reply) == there

    asyncio.run(tell())


@pytest.mark.parametrize(
    "text",
    [
        ". {\n    mdns example.com\n}\n",
        ". {\n    errors\n    errors\n}\n",
        ". {\n    errors {\n        loud\n    }\n}\n",
        ". {\n    health 18080\n}\n",
        ". {\n    reload 1s\n}\n",
        ". {\n    reload soon\n}\n",
        ". {\n    cache 0\n}\n",
        ". {\n    template IN\n}\n",
        ". {\n    template IN B\n}\n",
        ". {\n    template IN A {\n        guess\n    }\n}\n",
        ". {\n    template IN A {\n        rcode OOPS\n    }\n}\n",
        ". {\n    hosts f {\n        ttl x\n    }\n}\n",
        ". {\n    hosts f {\n        fallthrough\n        what\n    }\n}\n",
        ". {\n    forward .\n}\n",
        ". {\n    forward . 192.0.2.1 {\n        hope\n    }\n}\n",
        ". {\n    forward . 192.0.2.1 {\n        policy best\n    }\n}\n",
        ". {\n    loop twice\n}\n",
        ". {\n    bufsize 9000\n}\n",
        ". {\n    errors\n",
        ". {\n    errors }\n}\n",
        "(a) {\n    errors\n}\n. {\n    import b\n}\n",
    ],
)
def test_both_refuse_alike_and_in_the_same_words(text: str, tmp_path: Path) -> None:
    path = tmp_path / "Corefile"
    path.write_text(text)
    command = [str(real.path()), "-conf", path, "-dns.port", str(free_port())]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    said = ended.stdout + ended.stderr

    with pytest.raises(corefile.Wrong) as wrong:
        corefile.parse(text, str(path), lambda _: None)

    assert ended.returncode != 0
    assert str(wrong.value) in said


def test_addresses_are_what_they_seem() -> None:
    # The reader of replies is ours: it must not make everything equal.
    assert told(b"\0\7\x85\x80\0\1\0\1\0\0\0\0\3api\0\0\1\0\1\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\xc0\0\2\x64") == (
        0,
        [(1, 60, ipaddress.ip_address("192.0.2.100").packed)],
    )
