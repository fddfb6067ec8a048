"""The resolver that DHCP would give: knows ``world.example.org`` and nothing else, and says who asked for what."""

from __future__ import annotations

import socket
import struct
import sys

KNOWN = b"\5world\7example\3org\0"


def answered(packet: bytes) -> tuple[str, bytes]:
    end = packet.index(b"\0", 12) + 5
    name = packet[12 : end - 4]
    known = name.lower() == KNOWN and packet[end - 4 : end - 2] == b"\0\1"
    head = packet[:2] + struct.pack("!HHHHH", 0x8180 if known else 0x8183, 1, int(known), 0, 0)
    record = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 30, 4) + socket.inet_aton("192.0.2.99")
    labels, at = [], 0
    while name[at]:
        labels.append(name[at + 1 : at + 1 + name[at]].decode())
        at += 1 + name[at]
    return ".".join(labels), head + packet[12:end] + (record if known else b"")


if __name__ == "__main__":
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((sys.argv[1], 53))
        while True:
            asked, client = server.recvfrom(4096)
            name, reply = answered(asked)
            print(f"asked for {name}", flush=True)
            server.sendto(reply, client)
