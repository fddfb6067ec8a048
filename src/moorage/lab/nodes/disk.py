"""A machine's file system, as far as provisioning is concerned: paths with contents, modes and owners.

Directories on the way to a path come into being with it, owned by root and open to read. Nothing is ever written over
what is there already, unless the config asked for that, because that is how the engine treats a machine's disk.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Mapping

from moorage.lab.nodes import specs

FILE_MODE, DIRECTORY_MODE = 0o644, 0o755


@dataclasses.dataclass(frozen=True)
class File:
    """A regular file."""

    content: bytes
    mode: int = FILE_MODE
    uid: int = 0
    gid: int = 0


@dataclasses.dataclass(frozen=True)
class Directory:
    """A directory that was asked for, not one that merely came with a file."""

    mode: int = DIRECTORY_MODE
    uid: int = 0
    gid: int = 0


@dataclasses.dataclass(frozen=True)
class Link:
    """A symbolic link; hard links are files, the same as their target."""

    target: str
    uid: int = 0
    gid: int = 0


class Disk:
    """What is on the disk; starts with what the operating system's image brings."""

    def __init__(self, present: Mapping[str, File | Directory | Link] | None = None) -> None:
        self.entries: dict[str, File | Directory | Link] = dict(present or {})
        self._parents = {parent for path in self.entries for parent in _above(path)}

    def at(self, path: str) -> File | Directory | Link | None:
        """What is there; a directory also where one came along with a file."""
        return self.entries.get(path) or (Directory() if path in self._parents else None)

    def put(self, path: str, entry: File | Directory | Link) -> None:
        """Write an entry, with the directories that lead to it."""
        for parent in _above(path):
            if not isinstance(self.at(parent) or Directory(), Directory):
                raise specs.IgnitionError(f'failed to create "{path}": mkdir {parent}: not a directory')
        self.entries[path] = entry
        self._parents.update(_above(path))

    def remove(self, path: str) -> None:
        """Remove whatever is there, with everything below it."""
        self.entries.pop(path, None)
        if path in self._parents:
            for each in [each for each in self.entries if each.startswith(path + "/")]:
                del self.entries[each]
            self._parents -= {each for each in self._parents if each == path or each.startswith(path + "/")}


def _above(path: str) -> list[str]:
    found = []
    while (path := posixpath.dirname(path)) != "/":
        found.append(path)
    return found
