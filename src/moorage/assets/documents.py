"""Manifests as users leave them: edited, several in a file, JSON, half empty, broken.

`read` finds every object with its line, or says in which file and line the trouble is. `single_objects` brings files
into the one shape that the bootstrap node understands: it loads one object per file and silently drops what follows.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import yaml

from moorage import errors
from moorage.assets import objects, values
from moorage.config import emit

_FASTEST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# A date stays the text it is in Kubernetes. "=" is a plain word in CRDs' enums, on which PyYAML stumbles.
_LEFT_AS_TEXT = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")
_RESOLVERS = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _LEFT_AS_TEXT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_DEEPEST = 200


@dataclasses.dataclass(frozen=True)
class Identity:
    """What makes an object unique in a cluster; ``namespace`` is empty for cluster-wide ones."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


@dataclasses.dataclass(frozen=True)
class Document:
    """One object in a file, with the line it begins at."""

    path: str
    line: int
    manifest: values.Manifest
    identity: Identity


@dataclasses.dataclass(frozen=True)
class _Part:
    """Something in a file, not yet known to be an object; ``node`` is how it was written, None for JSON."""

    line: int
    data: Any
    node: yaml.Node | None


class Loader(_FASTEST):  # type: ignore[misc]
    """YAML as Kubernetes' readers see it."""

    yaml_implicit_resolvers = _RESOLVERS


class _Faithful(emit.Dumper):
    """Writes nodes as they were read: numbers in the user's spelling, aliases as aliases (a few lines of them, written
    out, can become gigabytes)."""

    yaml_implicit_resolvers = _RESOLVERS


def _integer_or_text(loader: Any, node: yaml.ScalarNode) -> Any:
    try:
        return loader.construct_yaml_int(node)
    except ValueError:  # such as 0x_, a number for PyYAML's pattern but for nobody's parser
        return node.value


Loader.add_constructor("tag:yaml.org,2002:int", _integer_or_text)


def unusable(path: str, line: int | None, message: str) -> errors.ConfigError:
    """The error for a manifest that cannot be used."""
    place = path if line is None else f"{path}, line {line}"
    return errors.ConfigError(f"{place}: {message}", remedy=f"correct {path}")


def read(path: str, content: bytes) -> list[Document]:
    """All objects in a file, those in a List one by one."""
    items = [item for part in _parts(path, content) for item in _items(part)]
    return [Document(path, item.line, item.data, _identify(path, item)) for item in items]


def single_objects(files: values.Files) -> values.Files:
    """The same objects, one per file. A file that holds exactly one stays as it is, byte for byte."""
    result: dict[str, bytes] = {}
    split: dict[str, list[_Part]] = {}
    for path, content in sorted(files.items()):
        if _surely_single(content):
            result[path] = content
            continue
        parts = _parts(path, content)
        items = [item for part in parts for item in _items(part)]
        for item in items:
            _identify(path, item)
        if items == parts and len(items) == 1:
            result[path] = content
        else:
            split[path] = items
    for path, items in split.items():
        stem = str(pathlib.PurePosixPath(path).with_suffix(""))
        for index, item in enumerate(items):
            name = f"{stem}-{index:03}"
            while f"{name}.yaml" in result:
                name += "x"
            result[f"{name}.yaml"] = _written(item)
    return dict(sorted(result.items()))


def _surely_single(content: bytes) -> bool:
    """Whether a glance is enough, as it is for nearly every manifest: parsing them all again would be felt."""
    return content.count(b"\nkind: ") == 1 and not any(word in content for word in (b"\n---", b"\n...", b"List"))


def _written(item: _Part) -> bytes:
    if item.node is None:
        return objects.to_yaml(item.data)
    _set_in_blocks(item.node, set())
    text: str = yaml.serialize(item.node, Dumper=_Faithful, allow_unicode=True)
    return text.encode()


def _set_in_blocks(node: yaml.Node, seen: set[int]) -> None:
    # Inside {…} the emitter must quote words like 12:30, and then tags them, since the quotes change their type.
    if id(node) in seen or not isinstance(node, yaml.CollectionNode):
        return
    seen.add(id(node))
    node.flow_style = False
    for child in node.value:
        for part in child if isinstance(child, tuple) else (child,):
            _set_in_blocks(part, seen)


def _parts(path: str, content: bytes) -> list[_Part]:
    try:
        text = content.decode("utf-8-sig")
        if path.endswith(".json") and text.strip():
            return [_Part(1, json.loads(text), None)]
        _refuse_abyss(path, text)
        return list(_yaml_documents(text))
    except UnicodeDecodeError as error:
        raise unusable(path, content.count(b"\n", 0, error.start) + 1, "not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise unusable(path, error.lineno, f"not JSON: {error.msg}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
        raise unusable(path, mark.line + 1 if mark else None, f"not YAML: {problem}") from error
    except RecursionError as error:
        raise unusable(path, None, "nested too deeply") from error
    except ValueError as error:
        raise unusable(path, None, f"holds a value that cannot be read: {error}") from error


def _refuse_abyss(path: str, text: str) -> None:
    # libyaml composes recursively and without a limit: a file of brackets would not fail but crash the process.
    depth = 0
    for event in yaml.parse(text, Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise unusable(path, event.start_mark.line + 1, "nested too deeply")


def _yaml_documents(text: str) -> Iterator[_Part]:
    loader = Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            yield _Part(node.start_mark.line + 1, loader.construct_document(node), node)
    finally:
        loader.dispose()


def _items(part: _Part) -> list[_Part]:
    """The objects in a document: none, itself, or the items of a List."""
    data = part.data
    if data is None:
        return []
    kind = data.get("kind") if isinstance(data, dict) else None
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(data.get("items"), list)):
        return [part]
    # The items of a typed list (ConfigMapList) may leave out what the list's own kind says.
    version, singular = data.get("apiVersion"), kind.removesuffix("List")
    implied = {"apiVersion": version, "kind": singular} if singular and isinstance(version, str) else {}
    nodes: list[yaml.Node | None] = [None] * len(data["items"])
    if isinstance(part.node, yaml.MappingNode):
        nodes = next(list(value.value) for key, value in part.node.value if key.value == "items")
    return [_item(part.line, item, node, implied) for item, node in zip(data["items"], nodes, strict=True)]


def _item(line: int, data: Any, node: yaml.Node | None, implied: dict[str, str]) -> _Part:
    line = node.start_mark.line + 1 if node is not None and node.start_mark else line
    missing = {key: word for key, word in implied.items() if isinstance(data, dict) and key not in data}
    if not missing:
        return _Part(line, data, node)
    if isinstance(node, yaml.MappingNode):
        added = [tuple(yaml.ScalarNode("tag:yaml.org,2002:str", word) for word in pair) for pair in missing.items()]
        node = yaml.MappingNode(node.tag, [*added, *node.value], node.start_mark, node.end_mark, node.flow_style)
    return _Part(line, {**missing, **data}, node)


def _identify(path: str, item: _Part) -> Identity:
    manifest = item.data
    if not isinstance(manifest, dict):
        raise unusable(path, item.line, "expected a Kubernetes object (a mapping with apiVersion and kind)")
    metadata = manifest.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    parts = {
        "apiVersion": manifest.get("apiVersion"),
        "kind": manifest.get("kind"),
        "metadata.name": metadata.get("name"),
        "metadata.namespace": metadata.get("namespace"),
    }
    for field, value in parts.items():
        if value in (None, "") and field != "metadata.namespace":
            raise unusable(path, item.line, f"{field} is missing")
        if not isinstance(value, str | None):
            raise unusable(path, item.line, f"{field} is {value!r}, which is not a text: put it in quotes")
    group, slash, _ = str(parts["apiVersion"]).partition("/")
    namespace = str(parts["metadata.namespace"] or "")
    return Identity(group if slash else "", str(parts["kind"]), namespace, str(parts["metadata.name"]))
