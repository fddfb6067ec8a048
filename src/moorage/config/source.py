"""From YAML text to plain data that remembers its lines.

YAML is read in two steps: first as bare events, to refuse what would hurt (bombs, depth, several documents), then as a
tree, so that every field knows the line it stands in. Scalars follow what Go's reader makes of them where PyYAML
differs, since the cluster's own components will read the same file. Content is never echoed: it may be a secret.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import yaml

from moorage.config import findings

Location = tuple[str | int, ...]

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 50
MAX_VALUES: Final = 20_000

# CSafeLoader where libyaml was built in: ten times faster, and the same tree.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_EXPONENT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+")
_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_TAG = "tag:yaml.org,2002:"
_BOOLEANS: Final = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


@dataclasses.dataclass(frozen=True)
class Unusual:
    """A scalar of a type no field has, such as a date; kept so that its field can say what it got."""

    kind: str


@dataclasses.dataclass
class Document:
    """``data`` with the line of every field, the kinds YAML saw in its scalars, and what was wrong with the text."""

    data: dict[str, Any] | None = None
    lines: dict[Location, int] = dataclasses.field(default_factory=dict)
    written: dict[Location, str] = dataclasses.field(default_factory=dict)
    faults: list[findings.Finding] = dataclasses.field(default_factory=list)

    def line(self, location: Sequence[str | int]) -> int | None:
        """The field's line, or that of the nearest parent there is."""
        for length in range(len(location), 0, -1):
            found = self.lines.get(tuple(location[:length]))
            if found is not None:
                return found
        return 1 if self.data is not None else None

    def place(self, finding: findings.Finding) -> findings.Finding:
        """The finding with its line, unless it knows better."""
        if finding.line is not None:
            return finding
        return dataclasses.replace(finding, line=self.line(location(finding.field)))


class _RefusedError(Exception):
    def __init__(self, message: str, remedy: str = "", line: int | None = None) -> None:
        super().__init__(message)
        self.finding = findings.Finding("", message, remedy=remedy, line=line)


def load(raw: str | bytes) -> Document:
    """Read the text. What is wrong with it is in the document's faults; ``data`` is None if nothing can be used."""
    document = Document()
    try:
        text = _decode(raw)
        _check_events(text)
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if not isinstance(root, yaml.MappingNode):
                raise _RefusedError(
                    "is not a mapping of fields at the top level",
                    "start with: apiVersion: v1",
                    _line(root) if root is not None else None,
                )
            document.data = _Tree(document, loader).mapping(root, ())
        finally:
            loader.dispose()
    except _RefusedError as refused:
        document.data = None
        document.faults = [refused.finding]
    except yaml.reader.ReaderError as error:
        document.faults.append(_unreadable(error, text))
    except yaml.MarkedYAMLError as error:
        document.data = None
        document.faults.append(_explain(error, text))
    return document


def path(location: Sequence[str | int]) -> str:
    """``networking.clusterNetwork[0].cidr``."""
    words = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(words).removeprefix(".")


def location(field: str) -> Location:
    """The reverse of `path`; keys that have dots themselves come apart, which costs no more than a parent's line."""
    return tuple(int(number) if number else name for name, number in _PART.findall(field))


def without_indices(field: str) -> str:
    """``networking.clusterNetwork.cidr``: the field in the schema."""
    return ".".join(part for part in location(field) if isinstance(part, str))


def holds(data: Any, part: str | int) -> bool:
    """Whether ``data[part]`` is there."""
    if isinstance(data, dict):
        return part in data
    return isinstance(data, list) and isinstance(part, int) and part < len(data)


def _decode(raw: str | bytes) -> str:
    size = len(raw)
    if isinstance(raw, str):
        try:
            size = len(raw.encode())
        except UnicodeEncodeError as error:
            raise _RefusedError("is not valid Unicode text", line=raw.count("\n", 0, error.start) + 1) from None
    if size > MAX_BYTES:
        raise _RefusedError(
            f"is {size} bytes long, more than the {MAX_BYTES} an install-config may have", "is it the file?"
        )
    text = (raw if isinstance(raw, str) else _utf8(raw)).removeprefix("\ufeff")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise _RefusedError("has NUL bytes: it is a binary file", "is it the file?", line)
    if not text.strip():
        raise _RefusedError("is empty", "run: moorage create install-config")
    return text


def _utf8(raw: bytes) -> str:
    nul = raw.find(b"\0")
    if nul >= 0:
        raise _RefusedError("has NUL bytes: it is a binary file", "is it the file?", raw.count(b"\n", 0, nul) + 1)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _RefusedError("is not UTF-8 text", "save the file as UTF-8", line) from None


def _line(item: yaml.Event | yaml.Node) -> int:
    return item.start_mark.line + 1 if item.start_mark is not None else 1


def _check_events(text: str) -> None:
    # Nesting is bounded here because building the tree recurses, in C, where a deep file would end the process.
    depth = documents = 0
    loader = _Loader(text)
    try:
        while loader.check_event():
            event = loader.get_event()
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    line = _line(event)
                    raise _RefusedError(f"is nested more than {MAX_DEPTH} levels deep", "is it the file?", line)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    line = _line(event)
                    raise _RefusedError(
                        "holds a second YAML document", "keep one: remove the '---' and what follows", line
                    )
    finally:
        loader.dispose()
    if documents == 0:
        raise _RefusedError("has nothing but comments", "run: moorage create install-config")


class _Tree:
    """Turns nodes into data, noting lines as it goes; counts values, since aliases multiply them."""

    def __init__(self, document: Document, loader: Any) -> None:
        self.document = document
        self.loader = loader
        self.values = 0
        self.open: set[int] = set()

    def value(self, node: yaml.Node, location: Location) -> Any:
        self._count(node)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, location)
        if id(node) in self.open:
            line = _line(node)
            raise _RefusedError("has an alias that contains itself", "write out what the alias stands for", line)
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, location)
            return self.sequence(node, location)
        finally:
            self.open.discard(id(node))

    def _count(self, node: yaml.Node) -> None:
        self.values += 1
        if self.values > MAX_VALUES:
            line = _line(node)
            raise _RefusedError(
                f"expands to more than {MAX_VALUES} values", "write out what the aliases stand for", line
            )

    def sequence(self, node: yaml.Node, location: Location) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            here = (*location, index)
            self.document.lines[here] = _line(item)
            items.append(self.value(item, here))
        return items

    def mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        data: dict[str, Any] = {}
        seen: dict[str, int] = {}
        own = {id(pair[0]) for pair in node.value}
        for key_node, value_node in self._merged_last(node):
            self._count(key_node)
            key = self._key(key_node, location)
            if key is None:
                continue
            line = _line(key_node)
            here = (*location, key)
            if key in seen:
                if id(key_node) in own:
                    self._duplicate(here, seen[key], line)
                continue
            seen[key] = line
            self.document.lines[here] = line
            data[key] = self.value(value_node, here)
        return data

    def _merged_last(self, node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """The mapping's own pairs, then those that ``<<`` brings in and that its own override."""
        merges = []
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                merges.append(value_node)
            else:
                yield key_node, value_node
        for value_node in merges:
            sources = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
            for source in sources:
                if not isinstance(source, yaml.MappingNode) or id(source) in self.open:
                    raise _RefusedError("merges (<<) what is not a mapping", line=_line(value_node))
                self._count(source)
                self.open.add(id(source))
                yield from self._merged_last(source)
                self.open.discard(id(source))

    def _key(self, node: yaml.Node, location: Location) -> str | None:
        if isinstance(node, yaml.ScalarNode) and node.tag == _TAG + "str":
            return str(node.value)
        line = _line(node)
        self.document.faults.append(
            findings.Finding(
                path(location), "has a key that YAML does not read as text", remedy="put the key in quotes", line=line
            )
        )
        return None

    def _duplicate(self, location: Location, first: int, second: int) -> None:
        self.document.faults.append(
            findings.Finding(
                path(location), f"is given twice, in lines {first} and {second}", remedy="keep one of them", line=second
            )
        )

    def scalar(self, node: yaml.ScalarNode, location: Location) -> Any:
        text: str = node.value
        kind = node.tag.removeprefix(_TAG)
        if kind == "str" and not node.style and _EXPONENT.fullmatch(text):
            kind = "float"
        # 52:54:00:12:34:56 is a number in base 60 to YAML 1.1, and to nobody else.
        if kind in ("int", "float") and ":" in text:
            kind = "str"
        if kind == "str":
            return text
        self.document.written[location] = text
        if kind == "null":
            return None
        if kind == "bool":
            return _BOOLEANS.get(text.lower(), Unusual("value tagged !!bool"))
        if kind in ("int", "float"):
            try:
                return float(text.replace("_", "")) if _EXPONENT.fullmatch(text) else self.loader.construct_object(node)
            except (ValueError, OverflowError, IndexError):
                return Unusual("number")
        return Unusual("date" if kind == "timestamp" else f"value tagged {node.tag[:60]}")


def _unreadable(error: yaml.reader.ReaderError, text: str) -> findings.Finding:
    # libyaml counts bytes, the pure reader characters; for the line either is near enough only in ASCII files.
    position = error.position if isinstance(error.position, int) else 0
    line = text.encode()[:position].count(b"\n") + 1
    return findings.Finding("", "has a control character that YAML does not allow", remedy="remove it", line=line)


def _explain(error: yaml.MarkedYAMLError, text: str) -> findings.Finding:
    """YAML's own complaint, unless the cause is one of the usual ones."""
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else None
    lines = text.splitlines()
    for number in (line, (line or 0) - 1):
        if number and 0 < number <= len(lines):
            blank = lines[number - 1][: len(lines[number - 1]) - len(lines[number - 1].lstrip())]
            if "\t" in blank:
                return findings.Finding(
                    "", f"line {number} is indented with a tab: use spaces", remedy="use spaces", line=number
                )
    last = len(text.rstrip().splitlines())
    if mark is not None and mark.line >= last:
        # Some complaints begin where the text ended; what was left open is then in the last line.
        started = min(error.context_mark.line + 1 if error.context_mark else last, last)
        return findings.Finding(
            "",
            f"ends in the middle of what starts in line {started}: the file is cut off, or a quote or bracket is open",
            remedy="close it, or restore the file",
            line=started,
        )
    context = f" {error.context}" if error.context else ""
    return findings.Finding(
        "",
        f"is not YAML: {error.problem}{context}",
        remedy="check indentation, colons and quotes in this line and the one before",
        line=line,
    )
