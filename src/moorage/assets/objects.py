"""Kubernetes objects and the bytes they become.

Every manifest is written by `to_yaml`, so that the same object gives the same bytes everywhere: with or without
libyaml, today and on the next run. Its readers are Go programs, whose YAML takes some words for numbers or booleans
that Python's does not; those are quoted.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from moorage.assets import values
from moorage.config import emit


def to_yaml(manifest: Mapping[str, object], dumper: Any = emit.Dumper) -> bytes:
    """The object as YAML, its keys in the order given."""
    return emit.dump(manifest, dumper).encode()


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
