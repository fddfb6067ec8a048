"""The asset directory under bad weather: full disks, foreign states, two processes, a commit cut in half."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moorage import errors
from moorage.assets import overlay, store

KEPT = {"marks": {"suffix": "abcde", "uuid": "u"}}


def tree(root: Path) -> dict[str, bytes]:
    """All files but the lock."""
    found = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if name != ".moorage.lock"}


def test_a_commit_is_on_disk_and_secret(tmp_path: Path) -> None:
    with store.opened(tmp_path / "new") as directory:
        directory.commit(store.State(kept=KEPT, base={"auth/key": "x"}), {"auth/key": b"secret"})

    assert (tmp_path / "new/auth/key").read_bytes() == b"secret"
    assert store.load(tmp_path / "new").kept == KEPT
    modes = {path.relative_to(tmp_path).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes["new"] == modes["new/auth"] == 0o700
    assert modes["new/auth/key"] == modes["new/.moorage_state.json"] == 0o600


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.opened(tmp_path) as directory:
        directory.commit(store.State(kept=KEPT, base={"a": "1"}), {"a": b"old", "b": b"old"})
    before = tree(tmp_path)
    real, left = os.fsync, [2]

    def full(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with store.opened(tmp_path) as directory, pytest.raises(errors.StoreError, match="No space left") as problem:
        directory.commit(store.State(base={"a": "2"}), {"a": b"new", "b": b"new"})

    assert tree(tmp_path) == before
    assert "--dir" in problem.value.remedy


class Killed(BaseException):
    """Stands for SIGKILL between two system calls: no handler of ours may catch it."""


@pytest.mark.parametrize("survives", range(8))
def test_a_commit_cut_in_half_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: int) -> None:
    old, new = {"f": b"f1", "g": b"g1"}, {"f": b"f2", "g": b"g2", "h": b"h2"}
    with store.opened(tmp_path) as directory:
        directory.commit(_state(old), old)
    _dies_after(monkeypatch, survives)
    try:
        with store.opened(tmp_path) as directory:
            directory.commit(_state(new), new, ["gone"])
    except Killed:
        pass
    monkeypatch.undo()

    with store.opened(tmp_path) as directory:
        disk = directory.read(["?"])
        base = directory.base(disk, sorted({*directory.state.base, *directory.state.pending}))
        laid = overlay.lay(new, disk, base)
        directory.commit(dataclasses.replace(directory.state, base=laid.base, pending={}), laid.write)

    assert not laid.notes, "an interrupted run was taken for the user's doing"
    assert {name: content for name, content in tree(tmp_path).items() if len(name) == 1} == new


def _state(files: dict[str, bytes]) -> store.State:
    return store.State(kept=KEPT, base={path: overlay.digest(content) for path, content in files.items()})


def _dies_after(monkeypatch: pytest.MonkeyPatch, survives: int) -> None:
    left = [survives]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr(Path, "replace", counted(Path.replace))
    monkeypatch.setattr(Path, "unlink", counted(Path.unlink))
    monkeypatch.setattr(store, "_write", counted(store._write))


def test_a_newer_state_is_refused(tmp_path: Path) -> None:
    text = json.dumps({"schema": 99, "moorage": "7.0", "kept": {}, "base": {}, "pending": {}, "causes": {}})
    (tmp_path / store.STATE).write_text(text)

    with pytest.raises(errors.StoreError, match=r"written by moorage 7\.0, which is newer"), store.opened(tmp_path):
        pass

    assert (tmp_path / store.STATE).read_text() == text


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"[]", b"{}", b'{"schema": "x"}', b'{"schema": 1}'])
def test_a_state_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / store.STATE).write_bytes(content)

    with pytest.raises(errors.StoreError, match="is not a state file of moorage"), store.opened(tmp_path):
        pass


def test_a_file_instead_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(errors.StoreError, match="is not a directory"), store.opened(tmp_path / "file"):
        pass


def test_a_second_process_is_told_who_is_there(tmp_path: Path) -> None:
    with (
        store.opened(tmp_path),
        pytest.raises(errors.StoreError, match=f"process {os.getpid()} "),
        store.opened(tmp_path),
    ):
        pass


def test_write_alone_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "install-config.yaml"
    target.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(errors.StoreError):
        store.write_alone(target, b"new")

    assert tree(tmp_path) == {"install-config.yaml": b"old"}
