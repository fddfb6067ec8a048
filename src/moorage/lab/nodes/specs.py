"""The shape of an Ignition config, specs 3.0 to 3.5, as data: one tree of fields that reading, merging, checking and
converting all walk.

Configs are plain dicts that hold only what was said. A field that came with a later spec than the config's own is not
read (the engine warns of an unused key and goes on), which is how all 3.x specs share the one tree.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from moorage import errors

Config = dict[str, Any]
Version = tuple[int, int, int]

NEWEST: Version = (3, 5, 0)
READABLE: tuple[Version, ...] = tuple((3, minor, 0) for minor in range(6))

_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_LARGEST_INT = 2**63
_SURROGATES = re.compile("[\ud800-\udfff]")
_GO_NAMES = {str: "string", int: "number", float: "number", bool: "bool", list: "array", dict: "object"}


class IgnitionError(errors.MoorageError):
    """The machine cannot be set up from its config: the real engine would stop here, in the emergency shell."""


@dataclasses.dataclass(frozen=True)
class Struct:
    """Named fields. ``key`` tells entries of a list apart; ``shared`` lists have one space of keys between them."""

    fields: Mapping[str, Field]
    key: Callable[[Config], str] | None = None
    shared: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Listed:
    """A list of structs or strings; where entries may ``repeat`` they have no keys."""

    of: Struct | type
    repeat: bool = False


@dataclasses.dataclass(frozen=True)
class Field:
    """``since`` is the minor version of spec 3 that brought it; a ``plain`` value is always there, if only as zero."""

    kind: Struct | Listed | type
    since: int = 0
    plain: bool = False


def _keyed(name: str) -> Callable[[Config], str]:
    return lambda entry: str(entry.get(name) or "")


def _partition_key(entry: Config) -> str:
    return f"number:{entry['number']}" if entry.get("number") else f"label:{entry.get('label') or ''}"


def _struct(key: str | Callable[[Config], str] = "", shared: tuple[str, ...] = (), /, **fields: Any) -> Struct:
    made = {name: kind if isinstance(kind, Field) else Field(kind) for name, kind in fields.items()}
    found = (_keyed(key) if key else None) if isinstance(key, str) else key
    return Struct(made, found, frozenset(shared))


def _resource(compression_since: int) -> Struct:
    return _struct(
        "source",
        source=str,
        compression=Field(str, compression_since),
        verification=_struct(hash=str),
        httpHeaders=Field(Listed(_struct("name", name=Field(str, plain=True), value=str)), 1),
    )


CONTENTS = _resource(0)
REFERENCE = _resource(1)

_NAME = Field(str, plain=True)
_OWNER = _struct(id=int, name=str)
_NODE: dict[str, Any] = {"path": _NAME, "user": _OWNER, "group": _OWNER, "overwrite": bool}

_STORAGE = _struct(
    "",
    ("directories", "files", "links"),
    directories=Listed(_struct("path", **_NODE, mode=int)),
    files=Listed(_struct("path", **_NODE, mode=int, contents=CONTENTS, append=Listed(CONTENTS, repeat=True))),
    links=Listed(_struct("path", **_NODE, hard=bool, target=str)),
    disks=Listed(
        _struct(
            "device",
            device=_NAME,
            wipeTable=bool,
            partitions=Listed(
                _struct(
                    _partition_key,
                    guid=str,
                    label=str,
                    number=Field(int, plain=True),
                    resize=Field(bool, 2),
                    shouldExist=bool,
                    sizeMiB=int,
                    startMiB=int,
                    typeGuid=str,
                    wipePartitionEntry=bool,
                )
            ),
        )
    ),
    filesystems=Listed(
        _struct(
            "device",
            device=_NAME,
            format=str,
            label=str,
            mountOptions=Field(Listed(str, repeat=True), 1),
            options=Listed(str, repeat=True),
            path=str,
            uuid=str,
            wipeFilesystem=bool,
        )
    ),
    raid=Listed(
        _struct("name", name=_NAME, devices=Listed(str), level=str, options=Listed(str, repeat=True), spares=int)
    ),
    luks=Field(
        Listed(
            _struct(
                "name",
                name=_NAME,
                cex=Field(_struct(enabled=bool), 5),
                clevis=_struct(
                    custom=_struct(config=str, needsNetwork=bool, pin=str),
                    tang=Listed(_struct("url", url=_NAME, thumbprint=str, advertisement=Field(str, 4))),
                    threshold=int,
                    tpm2=bool,
                ),
                device=str,
                discard=Field(bool, 4),
                keyFile=CONTENTS,
                label=str,
                openOptions=Field(Listed(str), 4),
                options=Listed(str, repeat=True),
                uuid=str,
                wipeVolume=bool,
            )
        ),
        2,
    ),
)

_PASSWD = _struct(
    groups=Listed(
        _struct("name", name=_NAME, gid=int, passwordHash=str, shouldExist=Field(bool, 2), system=bool),
    ),
    users=Listed(
        _struct(
            "name",
            name=_NAME,
            gecos=str,
            groups=Listed(str),
            homeDir=str,
            noCreateHome=bool,
            noLogInit=bool,
            noUserGroup=bool,
            passwordHash=str,
            primaryGroup=str,
            sshAuthorizedKeys=Listed(str),
            shell=str,
            shouldExist=Field(bool, 2),
            system=bool,
            uid=int,
        )
    ),
)

CONFIG = _struct(
    ignition=_struct(
        version=_NAME,
        config=_struct(merge=Listed(REFERENCE), replace=REFERENCE),
        proxy=Field(_struct(httpProxy=str, httpsProxy=str, noProxy=Listed(str)), 1),
        security=_struct(tls=_struct(certificateAuthorities=Listed(REFERENCE))),
        timeouts=_struct(httpResponseHeaders=int, httpTotal=int),
    ),
    kernelArguments=Field(
        _struct("", ("shouldExist", "shouldNotExist"), shouldExist=Listed(str), shouldNotExist=Listed(str)), 3
    ),
    passwd=_PASSWD,
    storage=_STORAGE,
    systemd=_struct(
        units=Listed(
            _struct(
                "name",
                name=_NAME,
                contents=str,
                dropins=Listed(_struct("name", name=_NAME, contents=str)),
                enabled=bool,
                mask=bool,
            )
        )
    ),
)


def semver(text: str) -> Version | None:
    """The three numbers of a semantic version."""
    found = _SEMVER.fullmatch(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def written(version: Version) -> str:
    return ".".join(map(str, version))


def read(raw: bytes) -> tuple[Config, list[str]]:
    """A config as it was said, its version turned into the newest; and what the engine would warn of."""
    try:
        # Go puts U+FFFD for what is not UTF-8, and so must we.
        said = json.loads(raw.decode("utf-8", "replace"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        raise IgnitionError(f"config is not valid: {problem}") from None
    version = _version(said)
    warnings: list[str] = []
    config: Config = _decoded(CONFIG, said, version[1], "$", warnings)
    config["ignition"]["version"] = written(NEWEST)
    return config, warnings


def narrowed(config: Config, minor: int) -> Config:
    """Only what a minor version of spec 3 has fields for."""
    return _fields(CONFIG, config, minor, "$", [])


def _no_constant(word: str) -> None:
    raise ValueError(f"invalid character {word[0]!r} looking for beginning of value")


def _version(said: object) -> Version:
    ignition = _member(said, "ignition") if isinstance(said, dict) else None
    text = _member(ignition, "version") if isinstance(ignition, dict) else None
    if not isinstance(text, str) or semver(text) is None:
        raise IgnitionError("invalid config version (couldn't parse)")
    found = _SEMVER.fullmatch(text)
    version = semver(text)
    if version not in READABLE or (found and found[4]):
        raise IgnitionError(f"unsupported config version: {text}")
    return version


def _member(said: dict[str, Any], name: str) -> Any:
    """A member as Go's JSON finds it: by name, and failing that in any case of letters."""
    if name in said:
        return said[name]
    return next((value for key, value in said.items() if key.casefold() == name.casefold()), None)


def _decoded(kind: Struct | Listed | type[Any], value: Any, minor: int, where: str, warnings: list[str]) -> Any:
    if isinstance(kind, Struct):
        if not isinstance(value, dict):
            raise _mismatch(value, where, "object")
        return _fields(kind, value, minor, where, warnings)
    if isinstance(kind, Listed):
        if not isinstance(value, list):
            raise _mismatch(value, where, "array")
        empty: Any = {} if isinstance(kind.of, Struct) else kind.of()
        return [
            empty if each is None else _decoded(kind.of, each, minor, f"{where}.{at}", warnings)
            for at, each in enumerate(value)
        ]
    # A bool is an int to Python, but not to Go.
    if type(value) is not kind or (type(value) is int and not -_LARGEST_INT <= value < _LARGEST_INT):
        raise _mismatch(value, where, kind.__name__)
    return _SURROGATES.sub("\ufffd", value) if isinstance(value, str) else value


def _fields(kind: Struct, said: dict[str, Any], minor: int, where: str, warnings: list[str]) -> Config:
    known = {name: field for name, field in kind.fields.items() if field.since <= minor}
    warnings += [f"warning at {where}.{key}: unused key {key}" for key in said if key not in known]
    found: Config = {}
    for name, field in known.items():
        member = _member(said, name)
        value = None if member is None else _decoded(field.kind, member, minor, f"{where}.{name}", warnings)
        # An empty list or struct says no more than none.
        if value is not None and value != [] and value != {}:
            found[name] = value
    return found


def _mismatch(value: Any, where: str, wanted: str) -> IgnitionError:
    given = _GO_NAMES.get(type(value), "null")
    return IgnitionError(
        f"config is not valid: json: cannot unmarshal {given} into Go struct field {where[2:]} of type {wanted}"
    )
