"""The asset directory: the user's files, our state, and a commit that is whole or not at all.

A commit first writes every new content beside the old (a full disk shows here, when nothing has changed yet), then
renames. The state is renamed in first, with the list of files about to follow, so a run killed in between knows on
its return which files are ours and merely late. Everything is 0600 in folders of 0700: nearly all of it is secret.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import moorage
from moorage import errors
from moorage.assets import overlay, values
from moorage.engine import lock

STATE = ".moorage_state.json"
SCHEMA = 1
_STAGING = ".moorage_tmp"
_ABSENT = "absent"


@dataclasses.dataclass(frozen=True)
class State:
    """What a run leaves for the next one.

    ``kept`` holds the values that cannot be computed again, ``base`` the digest of each file as last generated,
    ``pending`` those a killed run had still to put in place, ``causes`` the digests of the inputs: to say why
    something changed.
    """

    kept: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    base: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pending: Mapping[str, str] = dataclasses.field(default_factory=dict)
    causes: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Store:
    """An asset directory that this process has locked."""

    root: Path
    state: State

    def read(self, patterns: Sequence[str]) -> dict[str, bytes]:
        """The files that match, by path relative to the directory."""
        found: dict[str, bytes] = {}
        with _explained(self.root):
            for pattern in patterns:
                for path in self.root.glob(pattern):
                    if path.is_file():
                        found[path.relative_to(self.root).as_posix()] = path.read_bytes()
        return found

    def base(self, disk: values.Files, paths: Sequence[str]) -> dict[str, str]:
        """Digests of the files as last put in place, an interrupted commit taken into account."""
        known = {path: self.state.base[path] for path in paths if path in self.state.base}
        for path in paths:
            late = self.state.pending.get(path)
            if late is None:
                continue
            if path in disk and overlay.digest(disk[path]) == late:
                known[path] = late
            elif path not in disk:
                known.pop(path, None)  # not deleted by the user: never put there
        return known

    def commit(self, state: State, write: values.Files, remove: Sequence[str] = ()) -> None:
        """Put ``write`` in place, take ``remove`` away, and remember ``state``. All or nothing, also under kill -9."""
        with _explained(self.root):
            _clear(self.root)
            if write or remove:
                self._exchange(state, write, remove)
            elif state != self.state:
                _staged(self.root, {STATE: _dump(state)})[0].replace(self.root / STATE)
                _sync(self.root)
            _clear(self.root)

    def _exchange(self, state: State, write: values.Files, remove: Sequence[str]) -> None:
        late = {path: overlay.digest(content) for path, content in write.items()}
        # The old base of a file about to change must survive the announcement: it tells an unedited file.
        before = {path: self.state.base[path] for path in (*write, *remove) if path in self.state.base}
        settled = {path: old for path, old in state.base.items() if path not in late}
        announced = dataclasses.replace(
            state, base={**settled, **before}, pending={**late, **dict.fromkeys(remove, _ABSENT)}
        )
        contents = {STATE: _dump(announced), **write, f"{STATE}.final": _dump(state)}
        first, *files, last = _staged(self.root, contents)
        first.replace(self.root / STATE)
        _sync(self.root)
        for path, staged in zip(write, files, strict=True):
            target = self.root / path
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            staged.replace(target)
        for path in remove:
            (self.root / path).unlink(missing_ok=True)
        for folder in {(self.root / path).parent for path in (*write, *remove)}:
            _sync(folder)
        last.replace(self.root / STATE)
        _sync(self.root)


@contextlib.contextmanager
def opened(root: Path) -> Iterator[Store]:
    """The asset directory, made if need be, locked against other runs for as long as the block lasts."""
    with _explained(root):
        if root.exists() and not root.is_dir():
            raise errors.StoreError(f"{root} is not a directory", remedy="name another one with --dir")
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The block itself is not explained: a whole installation may happen in it, and its broken connections are
    # no trouble with this directory.
    with lock.held(root):
        yield Store(root, load(root))


def load(root: Path) -> State:
    """The state in ``root``; an empty one if there is none yet."""
    path = root / STATE
    with _explained(root):
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return State()
    try:
        data = json.loads(text)
        schema = data["schema"]
        if schema > SCHEMA:
            raise errors.StoreError(
                f"{path} was written by moorage {data.get('moorage', '(unknown)')}, which is newer than this "
                f"{moorage.__version__}; its state format {schema} is not known here",
                remedy="use that version, or start in a fresh directory: moorage --dir NEW create …",
            )
        return State(kept=data["kept"], base=data["base"], pending=data["pending"], causes=data["causes"])
    except (ValueError, KeyError, TypeError) as problem:
        raise errors.StoreError(
            f"{path} is not a state file of moorage ({problem})",
            remedy="put the original back from a backup, or move it away to start anew: keys and infraID will be new",
        ) from problem


def refuse_unwritable(folder: Path) -> None:
    """Say now, before a person answers a dozen questions, that their answers could not be written."""
    with _explained(folder):
        there = folder
        while not there.exists():
            there = there.parent
        if not os.access(there, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(there))


def write_alone(path: Path, content: bytes) -> None:
    """One file, whole or not at all, 0600: for what is written outside the graph."""
    with _explained(path.parent):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = path.with_name(f".{path.name}.moorage_tmp")
        try:
            _write(staged, content)
            staged.replace(path)
        except OSError:
            staged.unlink(missing_ok=True)
            raise
        _sync(path.parent)


def _dump(state: State) -> bytes:
    data = {"schema": SCHEMA, "moorage": moorage.__version__, **dataclasses.asdict(state)}
    return json.dumps(data, sort_keys=True).encode()


def _staged(root: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Every content in a file of its own below the staging folder, flushed to the disk."""
    folder = root / _STAGING
    folder.mkdir(mode=0o700)
    staged = [folder / str(number) for number in range(len(contents))]
    try:
        for path, content in zip(staged, contents.values(), strict=True):
            _write(path, content)
    except OSError:
        _clear(root)
        raise
    return staged


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _clear(root: Path) -> None:
    shutil.rmtree(root / _STAGING, ignore_errors=True)


@contextlib.contextmanager
def _explained(place: Path) -> Iterator[None]:
    """Turn the operating system's refusal into an error that says where and what to do."""
    try:
        yield
    except OSError as problem:
        where = problem.filename or place
        raise errors.StoreError(
            f"cannot use {where}: {problem.strerror or problem}",
            remedy="nothing was changed; check space and permissions, or name another directory with --dir",
        ) from problem
