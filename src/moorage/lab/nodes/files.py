"""The files of a running machine as its programs see them: what Ignition wrote, and over it what they wrote.

Both survive a reboot, which is how a service that was killed half-way knows what it had done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from moorage.lab.nodes import disk


class _Provisioned(Protocol):
    @property
    def files(self) -> Mapping[str, disk.File]: ...


class Machine(Protocol):
    """What has a disk: see `instance.Instance`."""

    kept: dict[str, bytes]

    @property
    def provisioned(self) -> _Provisioned | None: ...


class Files:
    """A machine's files by their paths."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def find(self, path: str) -> bytes | None:
        """A file's content, or None."""
        written = self._machine.kept.get(path)
        if written is not None:
            return written
        provisioned = self._machine.provisioned
        file = provisioned.files.get(path) if provisioned is not None else None
        return None if file is None else file.content

    def read(self, path: str) -> bytes:
        """A file's content; FileNotFoundError in the words of the programs on the machine."""
        found = self.find(path)
        if found is None:
            raise FileNotFoundError(f"open {path}: no such file or directory")
        return found

    def write(self, path: str, content: bytes = b"") -> None:
        self._machine.kept[path] = content

    def remove(self, path: str) -> None:
        """Remove what a program wrote; removing what is not there changes nothing."""
        self._machine.kept.pop(path, None)

    def exists(self, path: str) -> bool:
        return self.find(path) is not None

    def below(self, folder: str) -> dict[str, bytes]:
        """The files in a folder, by their paths from there, in order."""
        start = f"{folder.rstrip('/')}/"
        provisioned = self._machine.provisioned
        paths = {*self._machine.kept, *(provisioned.files if provisioned is not None else ())}
        return {path.removeprefix(start): self.read(path) for path in sorted(paths) if path.startswith(start)}
