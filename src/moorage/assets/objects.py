"""Kubernetes objects and the bytes they become.

Every manifest is written by `to_yaml`, so that the same object gives the same bytes everywhere: with or without
libyaml, today and on the next run. Its readers are Go programs, whose YAML takes some words for numbers or booleans
that Python's does not; those are quoted.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from moorage.assets import values

_FASTEST: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_NEVER_FOLD = 1_000_000
_NOT_A_STRING_IN_GO = re.compile(r"[yYnN]|[-+]?[0-9._]*[0-9][0-9._]*[eE][-+]?[0-9]+|[-+]?0o?[0-9_]+|[-+]?0[xXbB]\w+")


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _NOT_A_STRING_IN_GO.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


class Dumper(_FASTEST):  # type: ignore[misc]
    """Block style, multi-line text as it is, and no anchors: an object that occurs twice is written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


Dumper.add_representer(str, _write_text)


def to_yaml(manifest: Mapping[str, object], dumper: Any = Dumper) -> bytes:
    """The object as YAML, its keys in the order given."""
    text: str = yaml.dump(
        manifest, Dumper=dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=_NEVER_FOLD
    )
    return text.encode()


def file(path: str, manifest: Mapping[str, object]) -> values.Files:
    """One object in one file."""
    return {path: to_yaml(manifest)}


def numbered(pattern: str, manifests: Iterable[Mapping[str, object]]) -> values.Files:
    """One file per object; the numbers put into ``pattern`` are padded, so that the files sort in this order."""
    listed = tuple(manifests)
    digits = len(str(len(listed)))
    return {pattern.format(f"{index:0{digits}}"): to_yaml(manifest) for index, manifest in enumerate(listed)}


def merge(*parts: values.Files) -> values.Files:
    """All files, sorted by path. That two assets claim one path is a programming error, not a user's."""
    merged: dict[str, bytes] = {}
    for part in parts:
        if twice := merged.keys() & part.keys():
            raise ValueError(f"two assets write {', '.join(sorted(twice))}")
        merged.update(part)
    return dict(sorted(merged.items()))


def encode(content: str | bytes) -> str:
    """Base64, as Secrets carry their data."""
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()


def config_map(
    namespace: str, name: str, data: Mapping[str, str], *, metadata: Mapping[str, object] | None = None
) -> values.Manifest:
    """A ConfigMap; ``metadata`` adds labels and annotations."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, **(metadata or {})},
        "data": dict(data),
    }


def secret(
    namespace: str,
    name: str,
    data: Mapping[str, str | bytes],
    *,
    kind: str = "Opaque",
    metadata: Mapping[str, object] | None = None,
) -> values.Manifest:
    """A Secret of type ``kind``; ``data`` is given in clear."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, **(metadata or {})},
        "type": kind,
        "data": {key: encode(content) for key, content in data.items()},
    }


def cluster_config(
    kind: str, spec: Mapping[str, object], status: Mapping[str, object] | None = None
) -> values.Manifest:
    """One of the cluster-wide settings in ``config.openshift.io``, of which there is one each, named ``cluster``."""
    manifest: values.Manifest = {
        "apiVersion": "config.openshift.io/v1",
        "kind": kind,
        "metadata": {"name": "cluster"},
        "spec": dict(spec),
    }
    if status is not None:
        manifest["status"] = dict(status)
    return manifest
