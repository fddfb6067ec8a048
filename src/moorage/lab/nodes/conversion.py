"""An Ignition config turned into an older spec for machines that know no better, as the machine-config server does it.

Specs 3.1 to 3.5 differ in what they can say, so a config that says none of the newer things is only renamed. Spec 2.2
says the same things in other places. What an older spec cannot say is never left out: the conversion is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage import errors
from moorage.lab.nodes import specs

V2: specs.Version = (2, 2, 0)
# 3.0 is read, but nothing is turned into it.
TARGETS: tuple[specs.Version, ...] = (V2, *specs.READABLE[1:])

# Newer fields that an older spec takes for granted when they have these values.
_SAYS_NOTHING = {"shouldExist": True, "resize": False}


class CannotConvert(errors.MoorageError):
    """The config says something that the older spec has no words for."""


def converted(config: specs.Config, version: specs.Version) -> specs.Config:
    """The config (in the newest spec) in another version."""
    if version not in TARGETS:
        raise CannotConvert(f"the conversion to version {specs.written(version)} is not supported")
    minor = 2 if version == V2 else version[1]
    if too_new := next(_newer(specs.CONFIG, config, minor, "$"), ""):
        raise CannotConvert(f"{too_new} is not supported on {specs.written(version)}")
    if version == V2:
        return _second(config)
    narrowed = specs.narrowed(config, minor)
    return {**narrowed, "ignition": {**narrowed["ignition"], "version": specs.written(version)}}


def _newer(kind: specs.Struct, value: specs.Config, minor: int, where: str) -> Iterator[str]:
    """Places where something is said that came after the given minor version."""
    for name, field in kind.fields.items():
        said = value.get(name)
        if said is None or said in ([], {}):
            continue
        if field.since > minor:
            if said is not _SAYS_NOTHING.get(name):
                yield f"{where}.{name}"
        elif isinstance(field.kind, specs.Struct):
            yield from _newer(field.kind, said, minor, f"{where}.{name}")
        elif isinstance(field.kind, specs.Listed) and isinstance(field.kind.of, specs.Struct):
            for at, entry in enumerate(said):
                yield from _newer(field.kind.of, entry, minor, f"{where}.{name}.{at}")


def _second(config: specs.Config) -> specs.Config:
    """Spec 2.2, whose sections are all there even when empty."""
    if problem := next(_unspeakable(config), ""):
        raise CannotConvert(f"{problem} is not supported on 2.2")
    said, storage = config["ignition"], config.get("storage") or {}
    references = said.get("config") or {}
    instead = references.get("replace") or {}
    return {
        "ignition": {
            "version": specs.written(V2),
            "config": _set(
                append=[_reference(each) for each in references.get("merge") or []],
                replace=_reference(instead) if instead.get("source") is not None else None,
            ),
            "security": {"tls": _set(certificateAuthorities=[_reference(each) for each in _authorities(said)])},
            "timeouts": said.get("timeouts") or {},
        },
        "networkd": {},
        "passwd": {
            kind: [_without(each, "shouldExist") for each in listed]
            for kind, listed in (config.get("passwd") or {}).items()
        },
        "storage": _set(
            files=[each for file in storage.get("files") or [] for each in _files(file)],
            directories=[_node(each) for each in storage.get("directories") or []],
            links=[_node(each) for each in storage.get("links") or []],
        ),
        "systemd": config.get("systemd") or {},
    }


def _authorities(ignition: specs.Config) -> list[specs.Config]:
    return ((ignition.get("security") or {}).get("tls") or {}).get("certificateAuthorities") or []


def _unspeakable(config: specs.Config) -> Iterator[str]:
    said, storage = config["ignition"], config.get("storage") or {}
    references = said.get("config") or {}
    for each in (*(references.get("merge") or []), references.get("replace") or {}, *_authorities(said)):
        if each.get("compression") is not None:
            yield "compression of a referenced config or authority"
    contents = [
        resource
        for file in storage.get("files") or []
        for resource in (file.get("contents") or {}, *(file.get("append") or []))
    ]
    if any(each.get("httpHeaders") for each in (*contents, *(references.get("merge") or []), *_authorities(said))):
        yield "httpHeaders"
    if said.get("proxy"):
        yield "ignition.proxy"
    for kind in ("luks", "disks", "raid", "filesystems"):
        if storage.get(kind):
            yield f"storage.{kind}"
    for kind, listed in (config.get("passwd") or {}).items():
        if any(each.get("shouldExist") is False for each in listed):
            yield f"shouldExist in passwd.{kind}"


def _files(file: specs.Config) -> Iterator[specs.Config]:
    """One file of spec 3 is several of spec 2: the contents, and each piece to append to them."""
    node = _without(_node(file), "contents", "append")
    node["overwrite"] = bool(file.get("overwrite"))
    contents = file.get("contents") or {}
    if contents.get("source") is not None:
        yield {**node, "contents": _contents(contents)}
    for piece in file.get("append") or []:
        yield {**node, "overwrite": False, "append": True, "contents": _contents(piece)}


def _node(node: specs.Config) -> specs.Config:
    return {"filesystem": "root", **node}


def _contents(resource: specs.Config) -> specs.Config:
    return {**_reference(resource), **_set(compression=resource.get("compression"))}


def _reference(resource: specs.Config) -> specs.Config:
    return {"source": resource.get("source") or "", "verification": resource.get("verification") or {}}


def _without(said: specs.Config, *names: str) -> specs.Config:
    return {name: value for name, value in said.items() if name not in names}


def _set(**said: Any) -> specs.Config:
    """Only what is said."""
    return {name: value for name, value in said.items() if value}
