"""Requests that one program reads differently from another: who judges the one and signs the other lets anybody in.

The cluster's signer takes the first PEM block that is well-formed to the letter, and the names of the first attribute
that holds some. Other readers forgive more, and so stop at another block or attribute.
"""

from __future__ import annotations

import base64

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tests.unit.machines import test_approval as rules

GOOD_CLIENT = rules.csr()
EVIL_CLIENT = rules.csr(rules.subject(f"system:node:{rules.OTHER}"))
GOOD_SERVING = rules.csr(names=rules.OWN)
EVIL_SERVING = rules.csr(names=[x509.DNSName(rules.OTHER), x509.DNSName("api-int.berth.example.org")])

_BEGIN, _END = b"-----BEGIN CERTIFICATE REQUEST-----\n", b"-----END CERTIFICATE REQUEST-----"


def blocks(good: bytes, evil: bytes) -> dict[str, bytes]:
    """Contents of which a reader that forgives sees ``good``; what others see, and whether at all, differs."""
    return {
        "text before": b"x" + good + evil,
        "a space before": b" " + good + evil,
        "a line before": b"\n" + good + evil,
        "text before, and nothing behind": b"x\n" + good,
        "text behind": good + b"x",
        "a second one": good + evil,
        "the other first": evil + good,
        "the same twice": good + good,
        "an old name": good.replace(b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST"),
        "an old name, and a second one": good.replace(b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST") + evil,
        "another kind before": good.replace(b"CERTIFICATE REQUEST", b"X") + evil,
        "text after the end": good.replace(_END, _END + b" x") + evil,
        "returns in place of ends of lines": good.replace(b"\n", b"\r") + b"\n" + evil,
        "returns at the ends of lines": good.replace(b"\n", b"\r\n"),
        "a header": good.replace(_BEGIN, _BEGIN + b"foo: bar\n\n") + evil,
        "a header that is none": good.replace(_BEGIN, _BEGIN + b"Proc-Type: 4,X\nfoo\n\n") + evil,
        "no line after the beginning": good.replace(_BEGIN, _BEGIN.rstrip()) + evil,
        "no line before the end": good.replace(b"\n" + _END, _END) + evil,
        "spaces at the ends of lines": good.replace(b"\n", b" \n") + evil,
        "an empty line": good.replace(_BEGIN, _BEGIN + b"\n") + evil,
        "another end": good.replace(_END, b"-----END CERTIFICATE-----") + evil,
        "padding within": good.replace(_BEGIN, _BEGIN + b"AA==\n") + evil,
        "nothing within": _BEGIN + _END + b"\n" + good,
    }


def _tagged(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _sequence(*parts: bytes) -> bytes:
    return _tagged(0x30, *parts)


def _set(*parts: bytes) -> bytes:
    return _tagged(0x31, *parts)


def _oid(dotted: str) -> bytes:
    first, second, *rest = (int(each) for each in dotted.split("."))
    content = bytearray([40 * first + second])
    for number in rest:
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(0x80 | (number & 0x7F))
        content += bytes(reversed(groups))
    return _tagged(0x06, bytes(content))


_REQUESTED, _CHALLENGE, _NAMES = _oid("1.2.840.113549.1.9.14"), _oid("1.2.840.113549.1.9.7"), _oid("2.5.29.17")
_ALSO_REQUESTED = _oid("1.3.6.1.4.1.311.2.1.14")
_ECDSA = _oid("1.2.840.10045.4.3.2")


def _names(*names: str) -> bytes:
    return _sequence(_NAMES, _tagged(0x04, _sequence(*(_tagged(0x82, name.encode()) for name in names))))


def _extensions(*extensions: bytes, key: bytes = _REQUESTED) -> bytes:
    return _sequence(key, _set(_sequence(*extensions)))


def with_attributes(*attributes: bytes) -> bytes:
    """A request of the node's, with these attributes and a signature that is right."""
    public = rules.KEY.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    content = _sequence(_tagged(0x02, b"\0"), rules.subject().public_bytes(), public, _tagged(0xA0, *attributes))
    signature = rules.KEY.sign(content, rules.ec.ECDSA(hashes.SHA256()))
    whole = _sequence(content, _sequence(_ECDSA), _tagged(0x03, b"\0" + signature))
    return _BEGIN + base64.encodebytes(whole) + _END + b"\n"


ONE_ATTRIBUTE = with_attributes(_extensions(_names(rules.NODE)))
NO_ATTRIBUTE = with_attributes()

ATTRIBUTES = {
    "its own names, then others": with_attributes(_extensions(_names(rules.NODE)), _extensions(_names("evil"))),
    "other names, then its own": with_attributes(_extensions(_names("evil")), _extensions(_names(rules.NODE))),
    "no names, then others": with_attributes(_extensions(), _extensions(_names("evil"))),
    "no value, then names": with_attributes(_sequence(_REQUESTED, _set()), _extensions(_names("evil"))),
    "two values": with_attributes(
        _sequence(_REQUESTED, _set(_sequence(_names(rules.NODE)), _sequence(_names("evil"))))
    ),
    "names twice": with_attributes(_extensions(_names(rules.NODE), _names("evil"))),
    "more in an attribute": with_attributes(
        _sequence(_REQUESTED, _set(_sequence(_names(rules.NODE))), _tagged(0x02, b"\1"))
    ),
    "names and a password": with_attributes(
        _extensions(_names(rules.NODE)), _sequence(_CHALLENGE, _set(_tagged(0x0C, b"x")))
    ),
    "names by an attribute that not all know": with_attributes(_extensions(_names(rules.NODE), key=_ALSO_REQUESTED)),
    "names by both attributes": with_attributes(
        _extensions(_names(rules.NODE), key=_ALSO_REQUESTED), _extensions(_names("evil"))
    ),
}

#: Requests as a kubelet (a Go program) and openssl have really written them.
WRITTEN = {
    "a kubelet": b"""\
-----BEGIN CERTIFICATE REQUEST-----
MIIBAjCBqgIBADBIMRUwEwYDVQQKEwxzeXN0ZW06bm9kZXMxLzAtBgNVBAMTJnN5
c3RlbTpub2RlOmJlcnRoLXg3azJwLXdvcmtlci0wLXE3eGsyMFkwEwYHKoZIzj0C
AQYIKoZIzj0DAQcDQgAEvTOOmKs8zbNL0RQHu6y3ADVUxifreCW9MhB3iMSaCZ4x
xsW7So5hWQAQL3MjvbdWBxVj86JjrLmua3P2vuSezKAAMAoGCCqGSM49BAMCA0cA
MEQCIAJhlxOLYQacD87qC2QLdehIfk5d2+MWNIE8QhlrLyxjAiAgAY4diY9PVfZj
4QWJ1QCpPpdzKuL64uJb96vretA+lQ==
-----END CERTIFICATE REQUEST-----
""",
    "openssl": b"""\
-----BEGIN CERTIFICATE REQUEST-----
MIIBAjCBqgIBADBIMRUwEwYDVQQKDAxzeXN0ZW06bm9kZXMxLzAtBgNVBAMMJnN5
c3RlbTpub2RlOmJlcnRoLXg3azJwLXdvcmtlci0wLXE3eGsyMFkwEwYHKoZIzj0C
AQYIKoZIzj0DAQcDQgAEjevIRqxVvE8rwoL6r0yX4YsNHMDaz0Iqca8lhLDWZGbE
RaKwnrzYNrzEhPirnh0EdCTsq+CRSL5XxQ2cFZUDN6AAMAoGCCqGSM49BAMCA0cA
MEQCIBeJVsa/jF3mNcVX3Lp/Pn2Sezj4h7jBGzt7nX1hhrPlAiB9xaV660Qtg1Lq
bAG1R95+TtTmDh+5JCqSQdZcDMSyvw==
-----END CERTIFICATE REQUEST-----
""",
}
KUBELETS_SERVING = b"""\
-----BEGIN CERTIFICATE REQUEST-----
MIIBQDCB6AIBADBIMRUwEwYDVQQKEwxzeXN0ZW06bm9kZXMxLzAtBgNVBAMTJnN5
c3RlbTpub2RlOmJlcnRoLXg3azJwLXdvcmtlci0wLXE3eGsyMFkwEwYHKoZIzj0C
AQYIKoZIzj0DAQcDQgAEvTOOmKs8zbNL0RQHu6y3ADVUxifreCW9MhB3iMSaCZ4x
xsW7So5hWQAQL3MjvbdWBxVj86JjrLmua3P2vuSezKA+MDwGCSqGSIb3DQEJDjEv
MC0wKwYDVR0RBCQwIoIaYmVydGgteDdrMnAtd29ya2VyLTAtcTd4azKHBAoAAB8w
CgYIKoZIzj0EAwIDRwAwRAIgAQ7ECkAkzjAEQTGVipItpeJhXhYw/eEI3mDPwkqJ
sJYCIG55cbynVM0oiZ0LFk3RhztEQEjDHZO3W6X6D/xF5K7o
-----END CERTIFICATE REQUEST-----
"""
