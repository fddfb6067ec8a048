"""What Ignition refuses in a config that has the right shape, in its own words.

The rules are those of the engine for everything that a machine of the lab acts on: references, files, links, units,
owners, duplicates. Disks, filesystems and encryption are read but not judged, since the lab's machines have no disks to
divide.
"""

from __future__ import annotations

import posixpath
import re
import urllib.parse
from collections.abc import Iterator
from typing import Any

from moorage.lab.nodes import merging, resources, specs, unit_files

_UNITS = "/etc/systemd/system/"
_UNIT_KINDS = frozenset(
    f".{kind}"
    for kind in (
        *("service", "socket", "device", "mount", "automount", "swap"),
        *("target", "path", "timer", "snapshot", "slice", "scope"),
    )
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_FETCHED = ("http", "https", "tftp", "gs", "s3", "arn")


def problems(config: specs.Config) -> list[str]:
    """Everything that is wrong, each with its place; empty if the engine would take the config."""
    found = [*_resources(specs.CONFIG, config, "$"), *_ignition(config.get("ignition") or {})]
    storage, systemd = config.get("storage") or {}, config.get("systemd") or {}
    return [*found, *_storage(storage), *_systemd(systemd), *_conflicts(storage, systemd)]


def duplicates(config: specs.Config) -> list[str]:
    """Entries that occur twice where each may occur once. A merge can make none, so only what was said is asked."""
    return list(_duplicates(specs.CONFIG, config, "$"))


def check(config: specs.Config, *, as_said: bool = True) -> None:
    """Refuse what the engine would refuse."""
    found = problems(config) + (duplicates(config) if as_said else [])
    if found:
        raise specs.IgnitionError("config is not valid: " + "; ".join(found))


def _structs(kind: specs.Struct, value: specs.Config, where: str) -> Iterator[tuple[specs.Struct, specs.Config, str]]:
    """The struct and all structs in it, with their places."""
    yield kind, value, where
    for name, field in kind.fields.items():
        member = value.get(name)
        if isinstance(field.kind, specs.Struct) and member:
            yield from _structs(field.kind, member, f"{where}.{name}")
        elif isinstance(field.kind, specs.Listed) and isinstance(field.kind.of, specs.Struct):
            for at, entry in enumerate(member or []):
                yield from _structs(field.kind.of, entry, f"{where}.{name}.{at}")


def _duplicates(kind: specs.Struct, value: specs.Config, where: str) -> Iterator[str]:
    for struct, held, place in _structs(kind, value, where):
        together: set[str] = set()
        for name, field in struct.fields.items():
            if not isinstance(field.kind, specs.Listed) or field.kind.repeat:
                continue
            seen = together if name in struct.shared else set()
            for at, entry in enumerate(held.get(name) or []):
                key = merging.key_of(field.kind.of, entry)
                if key in seen:
                    yield f"error at {place}.{name}.{at}: duplicate entry defined"
                seen.add(key)


def _resources(kind: specs.Struct, value: specs.Config, where: str) -> Iterator[str]:
    for struct, held, place in _structs(kind, value, where):
        if struct in (specs.CONTENTS, specs.REFERENCE):
            yield from _resource(held, place)


def _resource(said: specs.Config, where: str) -> Iterator[str]:
    source, checksum = said.get("source"), (said.get("verification") or {}).get("hash")
    if said.get("compression") not in (None, "", "gzip"):
        yield f"error at {where}.compression: invalid compression method"
    if checksum is not None:
        if source is None:
            yield f"error at {where}.verification.hash: source must be specified if verification is specified"
        if problem := resources.hash_problem(checksum):
            yield f"error at {where}.verification.hash: {problem}"
    if source and (problem := _url_problem(source)):
        yield f"error at {where}.source: {problem}"
    headers = said.get("httpHeaders") or []
    if headers and resources.scheme(source or "") not in ("http", "https"):
        yield f"error at {where}.httpHeaders: cannot use HTTP headers with this source scheme"
    for at, header in enumerate(headers):
        if not header.get("name"):
            yield f"error at {where}.httpHeaders.{at}.name: HTTP header name can't be empty"
        if header.get("value") == "":
            yield f"error at {where}.httpHeaders.{at}.value: unable to parse HTTP header"


def _url_problem(url: str) -> str:
    if _CONTROL.search(url) or url.startswith(":"):
        return "unable to parse url"
    scheme = resources.scheme(url)
    if scheme == "data":
        try:
            resources.decoded(url)
        except specs.IgnitionError as problem:
            return problem.message
        return ""
    try:
        urllib.parse.urlsplit(url).port  # noqa: B018 - it is worked out, and refused, when it is asked for
    except ValueError:
        return "unable to parse url"
    return "" if scheme in _FETCHED else "invalid url scheme"


def _ignition(said: specs.Config) -> Iterator[str]:
    references = {
        "config.merge": (said.get("config") or {}).get("merge"),
        "security.tls.certificateAuthorities": ((said.get("security") or {}).get("tls") or {}).get(
            "certificateAuthorities"
        ),
    }
    for name, listed in references.items():
        for at, reference in enumerate(listed or []):
            if not reference.get("source"):
                yield f"error at $.ignition.{name}.{at}: source is required"
    for name in ("httpProxy", "httpsProxy"):
        proxy = (said.get("proxy") or {}).get(name)
        if proxy is not None and resources.scheme(proxy) not in ("http", "https"):
            yield f"error at $.ignition.proxy.{name}: proxies must be http(s)"


def _storage(said: specs.Config) -> Iterator[str]:
    links = said.get("links") or []
    for name, one in (("directories", "directory"), ("files", "file"), ("links", "link")):
        for at, node in enumerate(said.get(name) or []):
            where, path = f"$.storage.{name}.{at}", node.get("path") or ""
            yield from _node(node, where)
            if any(path.startswith((link.get("path") or "") + "/") for link in links):
                yield f"error at {where}: {one} path includes link in config"
            if name != "links" and not 0 <= (node.get("mode") or 0) <= 0o7777:
                yield f"error at {where}.mode: illegal file mode"
    for at, file in enumerate(said.get("files") or []):
        if file.get("overwrite") and (file.get("contents") or {}).get("source") is None:
            yield f"error at $.storage.files.{at}.overwrite: overwrite must be false if source is unspecified"
    directories = {each.get("path") for each in said.get("directories") or []}
    for at, link in enumerate(links):
        target = link.get("target")
        if not target:
            yield f"error at $.storage.links.{at}.target: link target is required"
        elif link.get("hard") and hard_target(link) in directories:
            yield f"error at $.storage.links.{at}: hard link target is a directory"


def hard_target(link: specs.Config) -> str:
    """The path that a hard link's target means."""
    return cleaned(posixpath.join(link["path"], link["target"]))


def cleaned(path: str) -> str:
    """A path without dots, doubled slashes and a trailing slash, as Go cleans it."""
    return posixpath.normpath("/" + path.lstrip("/")) if path.startswith("/") else posixpath.normpath(path)


def _node(node: specs.Config, where: str) -> Iterator[str]:
    path = node.get("path") or ""
    if not path:
        yield f"error at {where}.path: path not specified"
    elif not path.startswith("/"):
        yield f"error at {where}.path: path not absolute"
    elif cleaned(path) != path:
        yield f"error at {where}.path: path is not fully simplified"
    for owner in ("user", "group"):
        said = node.get(owner) or {}
        if said.get("id") is not None and said.get("name"):
            yield f"error at {where}.{owner}: cannot set both id and name"


def _systemd(said: specs.Config) -> Iterator[str]:
    for at, unit in enumerate(said.get("units") or []):
        where = f"$.systemd.units.{at}"
        if _extension(unit.get("name") or "") not in _UNIT_KINDS:
            yield f"error at {where}.name: invalid systemd unit extension"
        yield from _unit_contents(unit.get("contents"), where)
        for number, dropin in enumerate(unit.get("dropins") or []):
            if _extension(dropin.get("name") or "") != ".conf":
                yield f"error at {where}.dropins.{number}.name: invalid systemd drop-in extension"
            yield from _unit_contents(dropin.get("contents"), f"{where}.dropins.{number}")


def _extension(name: str) -> str:
    last = name.rpartition("/")[2]
    return "." + last.rpartition(".")[2] if "." in last else ""


def _unit_contents(contents: str | None, where: str) -> Iterator[str]:
    if contents is not None and (problem := unit_files.problem(contents)):
        yield f"error at {where}.contents: invalid unit content: {problem}"


def _conflicts(storage: specs.Config, systemd: specs.Config) -> Iterator[str]:
    taken = set()
    for unit in systemd.get("units") or []:
        name: Any = unit.get("name") or ""
        taken |= {_UNITS + name} if unit.get("contents") else set()
        taken |= {f"{_UNITS}{name}.d/{each.get('name')}" for each in unit.get("dropins") or [] if each.get("contents")}
    for kind in ("files", "directories", "links"):
        for at, node in enumerate(storage.get(kind) or []):
            if node.get("path") in taken:
                yield f"error at $.storage.{kind}.{at}.path: path conflicts with systemd unit or dropin"
