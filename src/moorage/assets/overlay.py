"""Whose file wins: the rules by which generated files meet what is on disk.

Three versions of each file are compared by digest: what was generated last time (*base*), what lies there now, and what
would be generated today. A file the user touched stays as long as today's version says nothing new; if it does, the
new one replaces it, a copy is kept, and a note says so. What the user added or deleted on purpose is respected.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Literal

from moorage.assets import values

Verdict = Literal["yours", "edited", "deleted", "restored", "replaced", "obsolete"]


@dataclasses.dataclass(frozen=True)
class Note:
    """A word to the user about one file that was not simply written."""

    path: str
    verdict: Verdict


@dataclasses.dataclass(frozen=True)
class Overlay:
    """What is in force after the user's files were taken into account.

    ``base`` is what the next run compares with; ``write`` and ``remove`` bring the disk in line, if the asset is
    written at all.
    """

    effective: dict[str, bytes]
    base: dict[str, str]
    write: dict[str, bytes]
    remove: tuple[str, ...]
    notes: tuple[Note, ...]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def lay(generated: values.Files, disk: values.Files, base: Mapping[str, str]) -> Overlay:
    """Put the user's files over the generated ones. ``base`` holds only paths of this asset."""
    effective: dict[str, bytes] = {}
    remember: dict[str, str] = {}
    write: dict[str, bytes] = {}
    remove: list[str] = []
    notes: list[Note] = []
    # One file missing among others was deleted on purpose; all of them missing means the folder was swept.
    whole_set_gone = not any(path in disk for path in base if path in generated)
    for path in sorted({*generated, *disk}):
        new, have, old = generated.get(path), disk.get(path), base.get(path)
        if have is None:
            if new is None:  # pragma: no cover - the union has one of both
                continue
            if old is not None and not whole_set_gone:
                notes.append(Note(path, "deleted"))
                remember[path] = digest(new)
                continue
            if old is not None:
                notes.append(Note(path, "restored"))
            effective[path] = write[path] = new
            remember[path] = digest(new)
            continue
        if new is None:
            if old == digest(have):
                remove.append(path)
                notes.append(Note(path, "obsolete"))
            else:
                effective[path] = have
            continue
        effective[path], verdict = _both(new, have, old)
        if verdict is not None:
            notes.append(Note(path, verdict))
        if effective[path] != have:
            write[path] = effective[path]
        if verdict != "yours":
            remember[path] = digest(new)
    return Overlay(effective, remember, write, tuple(remove), tuple(notes))


def _both(new: bytes, have: bytes, old: str | None) -> tuple[bytes, Verdict | None]:
    if have == new:
        return new, None
    if old is None:
        return have, "yours"
    if digest(have) == old:
        return new, None
    if digest(new) == old:
        return have, "edited"
    return new, "replaced"
