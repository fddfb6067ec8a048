"""What the Ignition engine does on a machine's first boot: from user data to the files, units and users on its disk.

The config in the user data may name others to be merged into it or put in its place; they are fetched with the
authorities and time-outs of the config that names them, checked, and laid over each other. Then users are made, paths
written from the shallowest to the deepest, and units last. Anything that cannot be done ends the boot with an
`IgnitionError`, except what can still come true, such as a server that does not answer yet: that is tried for ever.
"""

from __future__ import annotations

import dataclasses
import functools
import posixpath
from collections.abc import Iterable, Mapping

from moorage.engine import clock as clocks
from moorage.lab.nodes import accounts, disk, fetching, merging, resources, specs, validation

IgnitionError = specs.IgnitionError
File, Directory, Link = disk.File, disk.Directory, disk.Link
User = accounts.User

PRESETS = "/etc/systemd/system-preset/20-ignition.preset"
UNITS = "/etc/systemd/system"

_PREFIX = "ignition[786]: "
_VERSION = "Ignition 2.22.0"
_DEEPEST = 64
_GZIP_MAGIC = b"\x1f\x8b"


class _EmptyError(IgnitionError):
    """There is no config where one should be."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """A systemd unit as the config wants it; ``enabled`` is None where it says nothing about that."""

    name: str
    contents: str = ""
    enabled: bool | None = None
    masked: bool = False
    dropins: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Provisioned:
    """The disk after Ignition: every path that was written, units' files and SSH keys among them."""

    files: dict[str, disk.File]
    directories: dict[str, disk.Directory]
    links: dict[str, disk.Link]
    units: dict[str, Unit]
    users: dict[str, accounts.User]
    kernel_arguments: tuple[str, ...] = ()
    unwanted_kernel_arguments: tuple[str, ...] = ()


async def provision(
    user_data: bytes,
    fetch: fetching.Fetch,
    log: fetching.Log,
    *,
    clock: clocks.Clock,
    present: Mapping[str, disk.File | disk.Directory | disk.Link] | None = None,
) -> Provisioned:
    """Set a machine up from its user data; ``present`` is what its image brings to the paths that matter."""

    def say(line: str) -> None:
        log(_PREFIX + line)

    say(_VERSION)
    say("Stage: fetch")
    fetcher = fetching.Fetcher(fetch, say, clock)
    try:
        config = await _acquired(user_data, fetcher, say)
        say("fetch: fetch passed")
        say("Stage: files")
        done = await _write(config, fetcher, disk.Disk(present))
    except IgnitionError as problem:
        say(f"Ignition failed: {problem}")
        raise
    say("files: files passed")
    say("Ignition finished successfully")
    return done


async def _acquired(user_data: bytes, fetcher: fetching.Fetcher, say: fetching.Log) -> specs.Config:
    try:
        raw = resources.gunzipped(user_data) if user_data.startswith(_GZIP_MAGIC) else user_data
        config = _parsed(raw, say)
        await fetcher.configure(config["ignition"])
        config = await _rendered(config, fetcher, say)
        await fetcher.configure(config["ignition"])
        # Two configs that are each in order may not be so together.
        validation.check(config, as_said=False)
    except _EmptyError as problem:
        # One empty config among those referred to has the engine forget the others too.
        say(f"{problem}: provider config was empty, continuing with empty cache config")
        return {"ignition": {"version": specs.written(specs.NEWEST)}}
    except IgnitionError as problem:
        say(f"failed to fetch config: {problem}")
        raise
    return config


def _parsed(raw: bytes, say: fetching.Log) -> specs.Config:
    if not raw:
        raise _EmptyError("not a config (empty)")
    config, warnings = _checked(raw)
    for warning in warnings:
        say(warning)
    return config


# A thousand machines of one pool are given the same config. It is merged and written from, but never changed.
@functools.lru_cache(maxsize=16)
def _checked(raw: bytes) -> tuple[specs.Config, tuple[str, ...]]:
    config, warnings = specs.read(raw)
    validation.check(config)
    return config, tuple(warnings)


async def _rendered(config: specs.Config, fetcher: fetching.Fetcher, say: fetching.Log, depth: int = 0) -> specs.Config:
    """The config with all that it refers to."""
    if depth > _DEEPEST:
        raise IgnitionError(f"configs refer to each other more than {_DEEPEST} levels deep")
    references = config["ignition"].get("config") or {}
    if (references.get("replace") or {}).get("source") is not None:
        instead = await _referenced(references["replace"], fetcher, say)
        await fetcher.configure(instead["ignition"])
        return await _rendered(instead, fetcher, say, depth + 1)
    whole = config
    for reference in references.get("merge") or []:
        child = await _referenced(reference, fetcher, say)
        # The child may itself refer to more, which is fetched with its settings laid over ours.
        await fetcher.configure(merging.merged(whole, child)["ignition"])
        whole = merging.merged(whole, await _rendered(child, fetcher, say, depth + 1))
    return whole


async def _referenced(reference: specs.Config, fetcher: fetching.Fetcher, say: fetching.Log) -> specs.Config:
    return _parsed(await fetcher.contents(reference), say)


async def _write(config: specs.Config, fetcher: fetching.Fetcher, target: disk.Disk) -> Provisioned:
    users = accounts.made(config.get("passwd") or {}, target)
    await _write_storage(config.get("storage") or {}, fetcher, target, users)
    units = _write_units((config.get("systemd") or {}).get("units") or [], target)
    arguments = config.get("kernelArguments") or {}
    return Provisioned(
        {path: entry for path, entry in target.entries.items() if isinstance(entry, disk.File)},
        {path: entry for path, entry in target.entries.items() if isinstance(entry, disk.Directory)},
        {path: entry for path, entry in target.entries.items() if isinstance(entry, disk.Link)},
        units,
        users.users,
        tuple(arguments.get("shouldExist") or ()),
        tuple(arguments.get("shouldNotExist") or ()),
    )


async def _write_storage(
    storage: specs.Config, fetcher: fetching.Fetcher, target: disk.Disk, users: accounts.Accounts
) -> None:
    kinds = ("directories", "files", "links")
    entries = [(kind, node) for kind in kinds for node in storage.get(kind) or [] if not node.get("hard")]
    entries.sort(key=lambda entry: entry[1]["path"].rstrip("/").count("/"))
    # Hard links come last: what they lead to may lie deeper than they do.
    hard = [("links", node) for node in storage.get("links") or [] if node.get("hard")]
    for kind, node in [*entries, *hard]:
        if node.get("overwrite"):
            target.remove(node["path"])
        if kind == "directories":
            _write_directory(node, target, users)
        elif kind == "files":
            await _write_file(node, fetcher, target, users)
        else:
            _write_link(node, target, users)


def _write_directory(node: specs.Config, target: disk.Disk, users: accounts.Accounts) -> None:
    path = node["path"]
    there = target.at(path) or disk.Directory()
    if not isinstance(there, disk.Directory):
        raise IgnitionError(f"error creating directory {path}: A non-directory already exists and overwrite is false")
    uid, gid = users.owner(node, there.uid, there.gid)
    target.put(path, disk.Directory(_mode(node, there.mode), uid, gid))


async def _write_file(
    node: specs.Config, fetcher: fetching.Fetcher, target: disk.Disk, users: accounts.Accounts
) -> None:
    path = node["path"]
    there, contents = target.at(path), node.get("contents") or {}
    if there is not None and not isinstance(there, disk.File):
        what = "A non regular file exists there already and overwrite is false"
        raise IgnitionError(f'error creating file "{path}": {what}')
    if there is not None and contents.get("source") is not None:
        raise IgnitionError(f'error creating file "{path}": A file exists there already and overwrite is false')
    if there is None:
        there = disk.File(await _file_contents(contents, path, fetcher))
    content = there.content + b"".join(
        [await _file_contents(each, path, fetcher) for each in node.get("append") or [] if each.get("source")]
    )
    uid, gid = users.owner(node, there.uid, there.gid)
    target.put(path, disk.File(content, _mode(node, there.mode), uid, gid))


async def _file_contents(resource: specs.Config, path: str, fetcher: fetching.Fetcher) -> bytes:
    try:
        return await fetcher.contents(resource)
    except IgnitionError as problem:
        raise IgnitionError(f'failed to create file "{path}": {problem}') from problem


def _mode(node: specs.Config, otherwise: int) -> int:
    # The bits above 0777 mean something from spec 3.6 on only.
    return otherwise if node.get("mode") is None else int(node["mode"]) & 0o777


def _write_link(node: specs.Config, target: disk.Disk, users: accounts.Accounts) -> None:
    path, there = node["path"], target.at(node["path"])
    if node.get("hard"):
        linked = target.at(validation.cleaned("/" + node["target"]))
        if not isinstance(linked, disk.File):
            raise IgnitionError(f'failed to create link "{path}": link {node["target"]}: no such file or directory')
        if there is not None and there is not linked:
            raise IgnitionError(
                f"error creating hard link {path}: a file already exists at that path and overwrite is false"
            )
        target.put(path, linked)
        return
    if isinstance(there, disk.Link) and posixpath.normpath(there.target) == posixpath.normpath(node["target"]):
        return
    if there is not None:
        raise IgnitionError(f"error creating symlink {path}: something else exists at that path and overwrite is false")
    target.put(path, disk.Link(node["target"], *users.owner(node, 0, 0)))


def _write_units(said: list[specs.Config], target: disk.Disk) -> dict[str, Unit]:
    found = {}
    for each in said:
        name, contents = each["name"], each.get("contents") or ""
        dropins = {drop["name"]: drop["contents"] for drop in each.get("dropins") or [] if "contents" in drop}
        for dropin, text in dropins.items():
            target.put(f"{UNITS}/{name}.d/{dropin}", disk.File(text.encode()))
        if contents:
            target.put(f"{UNITS}/{name}", disk.File(contents.encode()))
        _write_mask(each, f"{UNITS}/{name}", target)
        found[name] = Unit(name, contents, each.get("enabled"), bool(each.get("mask")), dropins)
    _write_presets(found.values(), target)
    return found


def _write_mask(unit: specs.Config, path: str, target: disk.Disk) -> None:
    there = target.at(path)
    if unit.get("mask"):
        target.remove(path)
        target.put(path, disk.Link("/dev/null"))
    elif unit.get("mask") is False and isinstance(there, disk.Link) and there.target == "/dev/null":
        target.remove(path)


def _write_presets(units: Iterable[Unit], target: disk.Disk) -> None:
    """Say what systemd shall enable. Instances of one template share a line, as the engine writes them."""
    lines: dict[str, list[str]] = {}
    for unit in units:
        if unit.enabled is None:
            continue
        verb = "enable" if unit.enabled else "disable"
        template, at, instance = unit.name.partition("@")
        if at:
            instance, _, kind = instance.rpartition(".")
            lines.setdefault(f"{template}@.{kind}-{verb}d", [f"{verb} {template}@.{kind}"]).append(instance)
        else:
            lines[f"{unit.name}-{verb}d"] = [f"{verb} {unit.name}"]
    if lines:
        there = target.at(PRESETS)
        before = there.content if isinstance(there, disk.File) else b""
        written = "".join(f"{' '.join(lines[key])}\n" for key in sorted(lines))
        target.put(PRESETS, disk.File(before + written.encode()))
