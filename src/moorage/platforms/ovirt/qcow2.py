"""What a disk image says of itself: its format, and how large a disk it holds.

The engine wants to know the size before the first byte arrives, and refuses an image that builds upon another one only
when the last byte has arrived. So the header is read here, beforehand.
"""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path
from typing import Final, Literal

from moorage.engine import errors

_MAGIC: Final = b"QFI\xfb"
_SECTOR: Final = 512
#: A data file apart from the image: its bytes would not be uploaded.
_EXTERNAL_DATA: Final = 1 << 2
_OTHERS: Final = {
    b"\x1f\x8b": "compressed by gzip",
    b"\xfd7zXZ": "compressed by xz",
    b"BZh": "compressed by bzip2",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"PK\x03\x04": "a ZIP archive",
    b"KDMV": "a VMDK image",
    b"# Disk DescriptorFile": "a VMDK image",
    b"vhdxfile": "a VHDX image",
    b"conectix": "a VHD image",
    b"<": "a web page or another text",
}


@dataclasses.dataclass(frozen=True)
class Image:
    """An image on this machine's disk."""

    path: Path
    format: Literal["cow", "raw"]
    """In the engine's words: cow is qcow2."""
    size: int
    """Bytes of the file."""
    virtual_size: int
    """Bytes of the disk that it holds."""


def inspect(path: Path) -> Image:
    """The image in a file; `Terminal` if it is none that the engine can take as it is."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(104)
    except OSError as problem:
        raise errors.Terminal(
            f"the boot image {path} cannot be read: {problem.strerror}", remedy="correct its path or its permissions"
        ) from problem
    if head.startswith(_MAGIC):
        return Image(path, "cow", size, _virtual_size(path, head))
    kind = next((kind for magic, kind in _OTHERS.items() if head.startswith(magic)), "")
    if kind or size < _SECTOR:
        raise _refused(path, kind or f"{size} bytes long")
    return Image(path, "raw", size, -(-size // _SECTOR) * _SECTOR)


def _virtual_size(path: Path, head: bytes) -> int:
    if len(head) < 72:
        raise _refused(path, "cut off within its header")
    version, backing, _, _, size, encryption = struct.unpack(">IQIIQI", head[4:36])
    if version not in (2, 3):
        raise _refused(path, f"a qcow2 image of version {version}")
    if backing:
        raise _refused(path, "an image that builds upon another one")
    if encryption:
        raise _refused(path, "an encrypted image")
    if version == 3 and len(head) >= 80 and struct.unpack(">Q", head[72:80])[0] & _EXTERNAL_DATA:
        raise _refused(path, "an image whose data is in another file")
    if not size:
        raise _refused(path, "an image of no size")
    return int(size)


def _refused(path: Path, what: str) -> errors.Terminal:
    return errors.Terminal(
        f"the boot image {path} is {what}",
        remedy="name a qcow2 or raw image (also .gz) that stands by itself in OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE",
    )
