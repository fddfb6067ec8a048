"""The bytes of disks: each has a sparse file that no folder shows, so that gigabytes cost neither memory nor room.

A file is written by one upload and by nobody after that, so that disks copied from each other share it.
Zeros are never written where there is nothing yet. What was received is known as ranges, since clients may send an
image in any order, and send parts of it again.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import os
import struct
import tempfile
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

_BLOCK = 1024 * 1024
_ZEROS = bytes(_BLOCK)
QCOW2_MAGIC = b"QFI\xfb"
# Magic, version, offset and size of the backing file's name, cluster bits, virtual size.
_QCOW2_HEADER = struct.Struct(">4sIQIIQ")


class Ranges:
    """Bytes from here to there, laid together where they meet."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Take in the bytes from ``start`` up to, not including, ``end``."""
        if end <= start:
            return
        first = bisect.bisect_left(self._ends, start)
        after = bisect.bisect_right(self._starts, end)
        if first < after:
            start, end = min(start, self._starts[first]), max(end, self._ends[after - 1])
        self._starts[first:after] = [start]
        self._ends[first:after] = [end]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._ends, strict=True))

    @property
    def total(self) -> int:
        return sum(self._ends) - sum(self._starts)


@dataclasses.dataclass(frozen=True)
class Extent:
    """A part of an image that is data, or reads as zeros."""

    start: int
    length: int
    zero: bool


class Content:
    """What is on one disk."""

    def __init__(self) -> None:
        # It lives as long as any disk that has these bytes, and is gone with the last.
        self._file = tempfile.TemporaryFile(prefix="moorage-lab-disk-", buffering=0)  # noqa: SIM115
        self.size = 0

    def write(self, offset: int, data: bytes) -> None:
        """Put bytes there; zeros where nothing is yet leave a hole."""
        end = offset + len(data)
        if data == _ZEROS[: len(data)]:
            self.zero(offset, len(data))
            return
        written = 0
        while written < len(data):
            written += os.pwrite(self._file.fileno(), memoryview(data)[written:], offset + written)
        self.size = max(self.size, end)

    def zero(self, offset: int, size: int) -> None:
        """Let bytes read as zeros from now on."""
        end = offset + size
        for start, stop in self._data(offset, min(end, self.size)):
            for at in range(start, stop, _BLOCK):
                os.pwrite(self._file.fileno(), _ZEROS[: min(_BLOCK, stop - at)], at)
        if end > self.size:
            os.ftruncate(self._file.fileno(), end)
            self.size = end

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from there; beyond the end there is nothing but zeros."""
        found = os.pread(self._file.fileno(), size, offset)
        return found + bytes(size - len(found))

    def extents(self, size: int) -> list[Extent]:
        """Which parts of the first ``size`` bytes are data, and which are not."""
        found, at = list[Extent](), 0
        for start, stop in self._data(0, min(size, self.size)):
            if start > at:
                found.append(Extent(at, start - at, zero=True))
            found.append(Extent(start, stop - start, zero=False))
            at = stop
        return [*found, Extent(at, size - at, zero=True)] if at < size else found

    def sha256(self) -> str:
        """The digest of all of it. It takes a while: not for the event loop's thread."""
        digest = hashlib.sha256()
        for at in range(0, self.size, _BLOCK):
            digest.update(self.read(at, min(_BLOCK, self.size - at)))
        return digest.hexdigest()

    @property
    def allocated(self) -> int:
        """Bytes that the file really takes."""
        return os.fstat(self._file.fileno()).st_blocks * 512

    def _data(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Where the file has data between two offsets."""
        while start < end:
            try:
                start = os.lseek(self._file.fileno(), start, os.SEEK_DATA)
            except OSError:
                # There is no data from here to the end.
                return
            if start < end:
                stop = min(end, os.lseek(self._file.fileno(), start, os.SEEK_HOLE))
                yield start, stop
                start = stop


_contents: weakref.WeakKeyDictionary[engines.Engine, dict[str, Content]] = weakref.WeakKeyDictionary()


def contents(engine: engines.Engine) -> dict[str, Content]:
    """What is on the disks of an engine, by id; one that was never written is not among them."""
    found = _contents.setdefault(engine, {})
    for identity in [each for each in found if not engine.inventory.has("disks", each)]:
        del found[identity]
    return found


def objection(content: Content, disk_format: str, provisioned_size: int) -> str:
    """Why an uploaded image cannot be this disk, as the host finds when it looks at it; nothing if it can."""
    header = content.read(0, _QCOW2_HEADER.size)
    magic, version, backing, _, _, virtual_size = _QCOW2_HEADER.unpack(header)
    if disk_format != "cow":
        raw = magic != QCOW2_MAGIC or version not in (2, 3)
        return "" if raw else "Volume's format specified by QEMU is qcow2, while that in VDSM metadata is raw"
    if magic != QCOW2_MAGIC:
        return "Volume's format specified by QEMU is raw, while that in VDSM metadata is cow"
    if version not in (2, 3):
        return f"qcow2 compat version {version} is not supported"
    if backing:
        return "Volume's backing file is not the one in VDSM metadata"
    if virtual_size != provisioned_size:
        return f"Volume's virtual size is {virtual_size}, while the size of the disk is {provisioned_size}"
    return ""
