"""Contents that a config names or carries: data URLs, compression and checksums.

The grammar of data URLs is the one of the library that Ignition uses, which is stricter than a browser's: no spaces,
no line ends in plain data, ``base64`` right before the comma, and padding where base64 wants it.
"""

from __future__ import annotations

import binascii
import functools
import hashlib
import re
import urllib.parse
import zlib

from moorage.lab.nodes import specs

_WORD = r"[!#$%&'*+\-.0-9A-Z^_`a-z{|}~]"
_HEAD = re.compile(
    rf"data:(?:(?:text|image|audio|video|application|message|multipart|[xX]-){_WORD}*/{_WORD}*)?"
    rf'(?:;{_WORD}+=(?:{_WORD}+|"(?:[^"\\]|\\[\x00-\x7f])*"))*(?P<base64>;base64)?,',
    re.ASCII,
)
_PLAIN = re.compile(r"[!$%&'()*+,\-./0-9:;=?@A-Z_a-z~]*")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\n]*")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_SUM_LENGTHS = {"sha256": 64, "sha512": 128}
_GZIP = 16 + zlib.MAX_WBITS


def scheme(url: str) -> str:
    """The scheme of a URL in lower case, empty if it has none."""
    found = _SCHEME.match(url)
    return found[1].lower() if found else ""


# A thousand nodes of one pool are given the same contents, and need not hold a thousand copies of them.
@functools.lru_cache(maxsize=1024)
def decoded(url: str) -> bytes:
    """The bytes that a data URL carries."""
    head = _HEAD.match(url)
    if head is None:
        raise specs.IgnitionError("invalid data URL: missing comma before data, or a malformed media type")
    data = url[head.end() :]
    if head["base64"]:
        if not _BASE64.fullmatch(data):
            raise specs.IgnitionError("invalid data URL: invalid data character")
        try:
            return binascii.a2b_base64(data.replace("\n", ""), strict_mode=True)
        except binascii.Error as problem:
            raise specs.IgnitionError(f"invalid data URL: illegal base64 data: {problem}") from None
    if not _PLAIN.fullmatch(data):
        raise specs.IgnitionError("invalid data URL: invalid data character")
    if _BAD_ESCAPE.search(data):
        raise specs.IgnitionError("invalid data URL: rfc2396: unexpected end of unescape sequence")
    return urllib.parse.unquote_to_bytes(data)


def encoded(content: bytes) -> str:
    """A data URL as the machine-config server writes it: plain, with everything unusual escaped."""
    return "data:," + urllib.parse.quote_from_bytes(content, safe="-_.!~*'()")


def unpacked(content: bytes, compression: str) -> bytes:
    """The content as it is meant, decompressed if it was compressed."""
    if not compression:
        return content
    if compression != "gzip":
        raise specs.IgnitionError("invalid compression method")
    return gunzipped(content)


def gunzipped(content: bytes) -> bytes:
    """All members of a gzip stream."""
    parts: list[bytes] = []
    try:
        # A stream may consist of several members, one after the other.
        while content or not parts:
            member = zlib.decompressobj(_GZIP)
            parts.append(member.decompress(content) + member.flush())
            if not member.eof:
                raise specs.IgnitionError("unexpected EOF")
            content = member.unused_data
    except zlib.error:
        raise specs.IgnitionError("gzip: invalid header") from None
    return b"".join(parts)


def hash_problem(text: str) -> str:
    """What is wrong with a checksum like ``sha512-…``, empty if nothing is."""
    function, dash, expected = text.partition("-")
    if not dash:
        return "malformed hash specifier"
    if function not in _SUM_LENGTHS:
        return "unrecognized hash function"
    return "" if len(expected) == _SUM_LENGTHS[function] else "incorrect size for hash sum"


def verified(content: bytes, expected: str) -> bytes:
    """The content, if it has the checksum that was expected of it (if any was)."""
    if not expected:
        return content
    if problem := hash_problem(expected):
        raise specs.IgnitionError(problem)
    function, _, wanted = expected.partition("-")
    found = hashlib.new(function, content).hexdigest()
    if found != wanted.lower():
        raise specs.IgnitionError(f"hash verification failed (calculated {found} but expected {wanted.lower()})")
    return content
