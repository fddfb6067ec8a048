"""Where the bootstrap node pulls images from when the cluster has mirrors.

The cluster gets its mirrors as an object it reconciles; the bootstrap node starts before any object exists, so it gets
the same mirrors as `registries.conf`, the file that podman and CRI-O read.
"""

from __future__ import annotations

import dataclasses
import json

from moorage.config import model

PATH = "/etc/containers/registries.conf"
NEVER = "NeverContactSource"


@dataclasses.dataclass(frozen=True)
class Registry:
    """One repository and the places that hold the same images; ``blocked`` forbids to fall back on itself."""

    source: str
    mirrors: tuple[str, ...]
    blocked: bool = False


def merged(config: model.InstallConfig) -> tuple[Registry, ...]:
    """The mirrors, each source once, in the user's order; sources without a mirror change nothing and are left out.

    The runtime takes only the first entry of a source and ignores the rest, so a source that is named twice has to be
    put together here. Its strictest policy wins.
    """
    mirrors: dict[str, dict[str, None]] = {}
    blocked: set[str] = set()
    for source in config.image_content_sources or config.image_digest_sources:
        mirrors.setdefault(source.source, {}).update(dict.fromkeys(source.mirrors))
        if source.source_policy == NEVER:
            blocked.add(source.source)
    return tuple(Registry(name, tuple(found), name in blocked) for name, found in mirrors.items() if found)


def registries_conf(config: model.InstallConfig) -> bytes | None:
    """The file's contents; None where there are no mirrors and the node's own file should stand."""
    registries = merged(config)
    if not registries:
        return None
    return "\n".join(_entry(registry) for registry in registries).encode()


def _entry(registry: Registry) -> str:
    # JSON's strings are TOML's basic strings. Mirrors of tags could be moved under us, those of digests cannot.
    lines = ["[[registry]]", f"location = {json.dumps(registry.source)}", "insecure = false"]
    lines += ["mirror-by-digest-only = true", f"blocked = {json.dumps(registry.blocked)}"]
    for mirror in registry.mirrors:
        lines += ["", "[[registry.mirror]]", f"location = {json.dumps(mirror)}", "insecure = false"]
    return "\n".join(lines) + "\n"
