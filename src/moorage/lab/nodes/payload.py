"""The release payload, as far as the lab needs it: the kinds that OpenShift adds to Kubernetes.

The kinds are written down in ``payload_crds`` in a notation of a line per field, which is read here into
CustomResourceDefinitions: a field's name (``!`` if required), its type, and what holds for its value. So a manifest
with a wrong type or an unknown field meets the same resistance as in a real cluster.

    kind DNS dnses.config.openshift.io/v1 Cluster status     what the kind is called, where it lives, its subresources
      | Age | .metadata.creationTimestamp | date | 0         a column of kubectl get
      spec!                                                  an object, and required
        baseDomain string len<=253                           or bool, int, int32, int64, number, time, bytes, any, …
        type (AWS|None) ="None"                              an enum, with a default
        tags {}string                                        a map; {} alone has its values' fields below it
        zones [id] n<=4                                      a list by key; [] is a plain one, [set] one without repeats
        names []string n<=2 : len>=1                         what follows the colon holds for each item
        use condition                                        the lines of a part, see common.txt
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

Schema = dict[str, Any]
Object = dict[str, Any]

_COMMON = "common.txt"
_TOKEN = re.compile(r" +(/.*?/(?= (?:len|n|p|[<>=:]|null|open)|$)|=.*?(?= null$| open$|$)|\([^)]*\)|[^ ]+)")
_TYPES: dict[str, Schema] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "number": {"type": "number"},
    "time": {"type": "string", "format": "date-time"},
    "bytes": {"type": "string", "format": "byte"},
    "int|string": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
_LIMITS = (
    ("len>=", "minLength"),
    ("len<=", "maxLength"),
    ("n>=", "minItems"),
    ("n<=", "maxItems"),
    ("p>=", "minProperties"),
    ("p<=", "maxProperties"),
    (">=", "minimum"),
    ("<=", "maximum"),
)


class NotationError(ValueError):
    """A line of ``payload_crds`` makes no sense: a defect of the lab."""


@functools.cache
def definitions() -> tuple[Object, ...]:
    """The CustomResourceDefinitions of the payload, in the order of their names; not to be changed."""
    folder = resources.files(__package__) / "payload_crds"
    texts = {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".txt")}
    words = _Words(texts.pop(_COMMON))
    found = [definition for text in texts.values() for definition in _read(text, words)]
    return tuple(sorted(found, key=lambda definition: str(definition["metadata"]["name"])))


class _Words:
    """The patterns, enums and parts that kinds refer to by name."""

    def __init__(self, text: str) -> None:
        self.patterns: dict[str, str] = {}
        self.enums: dict[str, list[str]] = {}
        self.parts: dict[str, list[str]] = {}
        for block in _blocks(text):
            what, name, rest = ([*block[0].split(" ", 2), ""])[:3]
            if what == "pattern":
                self.patterns[name] = rest
            elif what == "enum":
                self.enums[name] = _enum(rest)
            else:
                self.parts[name] = block[1:]

    def expanded(self, lines: Sequence[str]) -> Iterator[str]:
        """The lines with every ``use`` replaced by what it stands for."""
        for line in lines:
            pad, _, name = line.partition("use ")
            if name and not pad.strip():
                # A part is written two spaces in; it is put as deep as the line that uses it.
                yield from (pad[2:] + each for each in self.expanded(self.parts[name]))
            else:
                yield line


def _blocks(text: str) -> Iterator[list[str]]:
    """Lines that begin at the margin, each with the indented ones that follow it."""
    block: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" ") and block:
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _read(text: str, words: _Words) -> Iterator[Object]:
    for head, *lines in _blocks(text):
        columns = [line for line in lines if line.startswith("  | ")]
        fields = list(words.expanded([line for line in lines if not line.startswith("  | ")]))
        schema, rest = _fields(fields, 2, words)
        if rest:
            raise NotationError(rest[0])
        yield _definition(head, columns, schema)


def _definition(head: str, columns: Sequence[str], schema: Schema) -> Object:
    _, kind, where, scope, *marks = head.split()
    named, _, version = where.partition("/")
    plural, _, group = named.partition(".")
    options = dict(mark.partition("=")[::2] for mark in marks)
    names: Object = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    for option, field in (("short", "shortNames"), ("categories", "categories")):
        if option in options:
            names[field] = options[option].split(",")
    served: Object = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _whole(schema)},
        "subresources": _subresources(options),
        "additionalPrinterColumns": [_column(line) for line in columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": named},
        "spec": {
            "group": group,
            "names": names,
            "scope": scope,
            "versions": [{key: value for key, value in served.items() if value}],
        },
    }


def _whole(schema: Schema) -> Schema:
    return {
        **schema,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            **schema["properties"],
        },
    }


def _subresources(options: dict[str, str]) -> Object:
    found: Object = {"status": {}} if "status" in options else {}
    if "scale" in options:
        paths = options["scale"].split(",")
        keys = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
        found["scale"] = {key: path for key, path in zip(keys, paths, strict=False) if path}
    return found


def _column(line: str) -> Object:
    name, path, kind, priority = (part.strip() for part in line.removeprefix("  | ").split(" | "))
    column: Object = {"name": name, "jsonPath": path, "type": kind}
    return {**column, "priority": int(priority)} if priority != "0" else column


def _fields(lines: list[str], depth: int, words: _Words) -> tuple[Schema, list[str]]:
    """The object whose fields are the lines at this depth; and the lines after them."""
    properties: dict[str, Schema] = {}
    required: list[str] = []
    while lines and _depth(lines[0]) == depth:
        line, lines = lines[0].strip(), lines[1:]
        below: Schema | None = None
        if lines and _depth(lines[0]) > depth:
            below, lines = _fields(lines, _depth(lines[0]), words)
        name, _, rest = line.partition(" ")
        if name.endswith("!"):
            name = name.removesuffix("!")
            required.append(name)
        properties[name] = _field(f" {rest}" if rest else "", below, words)
    schema: Schema = {"type": "object", "properties": properties}
    return ({**schema, "required": required} if required else schema), lines


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _field(text: str, below: Schema | None, words: _Words) -> Schema:
    tokens = _TOKEN.findall(text)
    if "".join(f" {token}" for token in tokens) != text:
        raise NotationError(text)
    own, items = (tokens[: tokens.index(":")], tokens[tokens.index(":") + 1 :]) if ":" in tokens else (tokens, [])
    schema: Schema = {}
    if own and (own[0].startswith("[") or own[0].startswith("{}")):
        schema = _container(own.pop(0), below, items, words)
    elif own and (own[0] in _TYPES or own[0][0] in "(@"):
        schema = _typed(own.pop(0), words)
    else:
        schema = below or {"type": "object"}
    return _constrained(schema, own, words)


def _container(token: str, below: Schema | None, items: list[str], words: _Words) -> Schema:
    if token.startswith("{}"):
        inner = token.removeprefix("{}")
        if inner.startswith("["):
            return {"type": "object", "additionalProperties": _container(inner, below, items, words)}
        value = _constrained(_typed(inner, words) if inner else below or {"type": "object"}, items, words)
        return {"type": "object", "additionalProperties": value}
    keys, _, inner = token.removeprefix("[").partition("]")
    item = _constrained(_typed(inner, words) if inner else below or {"type": "object"}, items, words)
    schema: Schema = {"type": "array", "items": item, "x-kubernetes-list-type": "atomic"}
    if keys == "set":
        schema["x-kubernetes-list-type"] = "set"
    elif keys:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys.split(",")}
        # A key that may be absent must have a default, or two items could not be told apart.
        for key in set(keys.split(",")) - set(item.get("required", ())):
            item["properties"][key].setdefault("default", "")
    return schema


def _typed(token: str, words: _Words) -> Schema:
    if token.startswith("@"):
        return {"type": "string", "enum": words.enums[token[1:]]}
    if token.startswith("("):
        return {"type": "string", "enum": _enum(token[1:-1])}
    return json.loads(json.dumps(_TYPES[token]))  # type: ignore[no-any-return]


def _enum(text: str) -> list[str]:
    return ["" if word == '""' else word for word in text.split("|")]


def _constrained(schema: Schema, marks: Sequence[str], words: _Words) -> Schema:
    for mark in marks:
        if mark == "null":
            schema["nullable"] = True
        elif mark == "open":
            schema["x-kubernetes-preserve-unknown-fields"] = True
        elif mark.startswith("~"):
            schema["pattern"] = words.patterns[mark[1:]]
        elif mark.startswith("/"):
            schema["pattern"] = mark[1:-1]
        elif mark.startswith("="):
            schema["default"] = json.loads(mark[1:])
        else:
            sign, field = next(((s, f) for s, f in _LIMITS if mark.startswith(s)), ("", ""))
            if not field:
                raise NotationError(mark)
            number = float(mark.removeprefix(sign))
            schema[field] = int(number) if number.is_integer() else number
    return schema
