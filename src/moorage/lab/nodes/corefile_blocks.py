"""The blocks and words of a Corefile, before anybody asks what they mean: CoreDNS has this from the Caddy of old.

A word ends at white space unless it is quoted, a # begins a comment anywhere, and a brace counts only as a word of its
own. Errors name the file and the line on which the reader stood, in the real words.
"""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Mapping

# What CoreDNS is built with, so what may begin a line in a block.
_NAMES = (
    "root metadata geoip cancel tls proxyproto quic grpc_server https https3 timeouts multisocket reload nsid bufsize "
    "bind debug trace ready health pprof prometheus errors log dnstap local dns64 any chaos loadbalance tsig rewrite "
    "autopath acl cache header dnssec minimal template transfer hosts route53 azure clouddns k8s_external kubernetes "
    "file auto secondary etcd loop forward grpc erratic whoami on sign view nomad"
)
PLUGINS = frozenset(_NAMES.split())
_MOST_IMPORTS = 10_000
# Variables of the environment; containers on the lab's machines have none.
_VARIABLE = re.compile(r"\{%[^%]+%\}|\{\$[^}]+\}")


class Wrong(ValueError):  # noqa: N818 - as the program puts it: this line is wrong
    """Something on which CoreDNS refuses to start, in its words."""


@dataclasses.dataclass(frozen=True)
class Word:
    text: str
    line: int


@dataclasses.dataclass(frozen=True)
class Stanza:
    """A directive with its arguments and the lines of its block, each a stanza again."""

    file: str
    line: int
    name: str
    args: tuple[str, ...]
    block: tuple[Stanza, ...] = ()

    def wrong(self, words: str) -> Wrong:
        return Wrong(f"{self.file}:{self.line} - Error during parsing: {words}")

    def count(self) -> Wrong:
        """The complaint about too many or too few arguments."""
        last = self.args[-1] if self.args else self.name
        return self.wrong(f"Wrong argument count or unexpected line ending after '{last}'")

    def unexpected(self, found: str, expected: str) -> Wrong:
        return Wrong(f"{self.file}:{self.line} - Syntax error: Unexpected token '{found}', expecting '{expected}'")

    def some(self) -> tuple[str, ...]:
        """The arguments, of which there must be one."""
        if not self.args:
            raise self.count()
        return self.args


@dataclasses.dataclass(frozen=True)
class Block:
    """A server block: its keys, and its stanzas by the directive that they begin with."""

    keys: tuple[str, ...]
    stanzas: Mapping[str, list[Stanza]]


def parse(text: str, file: str) -> list[Block]:
    """The server blocks of a Corefile, in order."""
    return _Parser(file, words(text)).blocks()


def words(text: str) -> list[Word]:
    """The words of a text, each with the line on which it begins."""
    found: list[Word] = []
    line, at, length = 1, 0, len(text)
    while at < length:
        letter = text[at]
        if letter == "\n":
            line += 1
        if letter.isspace():
            at += 1
        elif letter == "#":
            at = _end(text, at, "\n")
        elif letter == '"':
            end = at + 1
            while end < length and text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            inside = text[at + 1 : end]
            found.append(Word(inside.replace('\\"', '"'), line))
            line += inside.count("\n")
            at = end + 1
        else:
            end = min(_end(text, at, mark) for mark in (*string.whitespace, "#"))
            found.append(Word(text[at:end], line))
            at = end
    return found


def _end(text: str, at: int, mark: str) -> int:
    found = text.find(mark, at)
    return len(text) if found < 0 else found


class _Parser:
    """Goes through the words of one file."""

    def __init__(self, file: str, found: list[Word]) -> None:
        self._file = file
        self._words = found
        self._at = 0
        self._snippets: dict[str, list[Word]] = {}
        self._imported = 0

    def blocks(self) -> list[Block]:
        found: list[Block] = []
        while self._at < len(self._words):
            keys = self._keys()
            if len(keys) == 1 and keys[0].startswith("(") and keys[0].endswith(")"):
                self._snippets[keys[0][1:-1]] = self._snippet()
                continue
            braced = self._text() == "{"
            self._at += braced
            stanzas = self._stanzas(braced=braced)
            if keys:
                found.append(Block(tuple(keys), stanzas))
        return found

    def _text(self) -> str:
        return self._words[self._at].text if self._at < len(self._words) else ""

    def _wrong(self, message: str) -> Wrong:
        last = self._words[min(self._at, len(self._words) - 1)].line if self._words else 1
        return Wrong(f"{self._file}:{last} - Error during parsing: {message}")

    def _keys(self) -> list[str]:
        """The zones that a block is for; a comma says that more come, on the next line maybe."""
        found: list[str] = []
        more = False
        while True:
            word = _VARIABLE.sub("", self._text())
            if word == "{":
                if more:
                    raise self._wrong("Expected another address but had '{' - check for extra comma")
                return found
            more = word.endswith(",")
            if word.removesuffix(","):
                found.append(word.removesuffix(","))
            line = self._words[self._at].line
            self._at += 1
            if self._at >= len(self._words):
                if more:
                    raise self._wrong("Unexpected EOF")
                return found
            if not more and self._words[self._at].line != line:
                return found

    def _snippet(self) -> list[Word]:
        start, depth = self._at + 1, 0
        while self._at < len(self._words):
            depth += {"{": 1, "}": -1}.get(self._text(), 0)
            self._at += 1
            if not depth:
                return self._words[start : self._at - 1]
        raise self._wrong("Unexpected EOF")

    def _stanzas(self, *, braced: bool) -> dict[str, list[Stanza]]:
        found: dict[str, list[Stanza]] = {}
        while self._at < len(self._words) and self._text() != "}":
            if self._text() == "import":
                self._import()
                continue
            name = _VARIABLE.sub("", self._text())
            if name not in PLUGINS:
                raise self._wrong(f"Unknown directive '{name}'")
            found.setdefault(name, []).append(self._stanza(name))
        if braced and self._at >= len(self._words):
            last = self._words[-1]
            raise Wrong(f"{self._file}:{last.line} - Syntax error: Unexpected token '{last.text}', expecting '}}'")
        self._at += 1
        return found

    def _import(self) -> None:
        name = self._words[self._at + 1].text if self._at + 1 < len(self._words) else ""
        if name not in self._snippets:
            raise self._wrong(f"File to import not found: {name}")
        # A snippet may import itself.
        self._imported += 1
        if self._imported > _MOST_IMPORTS:
            raise self._wrong(f"maximum snippet import depth ({_MOST_IMPORTS}) exceeded")
        self._words[self._at : self._at + 2] = self._snippets[name]

    def _stanza(self, name: str) -> Stanza:
        """A directive: the rest of its line, and its block if one begins there."""
        first = self._words[self._at]
        self._at += 1
        args: list[str] = []
        while self._at < len(self._words) and self._words[self._at].line == first.line:
            if self._text() == "{":
                return Stanza(self._file, first.line, name, tuple(args), self._block())
            if self._text() == "}":
                raise self._wrong("Unexpected '}' because no matching opening brace")
            args.append(_VARIABLE.sub("", self._text()))
            self._at += 1
        return Stanza(self._file, first.line, name, tuple(args))

    def _block(self) -> tuple[Stanza, ...]:
        """The lines between braces."""
        self._at += 1
        lines: list[list[Word]] = []
        while self._at < len(self._words) and self._text() != "}":
            word = self._words[self._at]
            if not lines or lines[-1][0].line != word.line:
                lines.append([])
            lines[-1].append(word)
            self._at += 1
        if self._at >= len(self._words):
            raise self._wrong("Unexpected EOF")
        self._at += 1
        return tuple(
            Stanza(self._file, line[0].line, line[0].text, tuple(_VARIABLE.sub("", each.text) for each in line[1:]))
            for line in lines
        )
