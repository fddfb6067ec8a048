"""A stand-in for an operating system's image: a sound, small qcow2 file that claims a large disk.

Platforms take images and look at their headers; the lab's machines boot without reading them. So the lab needs a file
that real tools accept as an image and that nobody has to download.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

GIB = 1024**3
VIRTUAL_SIZE = 16 * GIB
_CLUSTER_BITS = 16
_CLUSTER = 1 << _CLUSTER_BITS
_HEADER_LENGTH = 104
_COPIED = 1 << 63
_ENTRIES = _CLUSTER // 8
# Header, refcount table, refcount block, L1 table and one L2 table, a cluster each; the data follows.
_REFERENCES, _BLOCK, _L1, _L2, _DATA = range(1, 6)


def write(path: Path, data_clusters: int = 128) -> None:
    """Write the image; the same bytes every time."""
    path.write_bytes(content(data_clusters))


def content(data_clusters: int = 128, virtual_size: int = VIRTUAL_SIZE) -> bytes:
    """A qcow2 image (version 3) of ``virtual_size`` bytes, of which the first ``data_clusters`` clusters hold data."""
    if not 0 < data_clusters <= _ENTRIES:
        raise ValueError(f"one L2 table leads to at most {_ENTRIES} clusters")
    l1_entries = -(-virtual_size // (_ENTRIES * _CLUSTER))
    places = [(_DATA + number) * _CLUSTER for number in range(data_clusters)]
    clusters = [
        _header(virtual_size, l1_entries),
        struct.pack(">Q", _BLOCK * _CLUSTER),
        struct.pack(f">{_DATA + data_clusters}H", *[1] * (_DATA + data_clusters)),
        struct.pack(f">{l1_entries}Q", _L2 * _CLUSTER | _COPIED, *[0] * (l1_entries - 1)),
        struct.pack(f">{data_clusters}Q", *(place | _COPIED for place in places)),
    ]
    filler = random.Random(0).randbytes(data_clusters * _CLUSTER)  # noqa: S311 - the same in every image
    return b"".join(cluster.ljust(_CLUSTER, b"\0") for cluster in clusters) + filler


def _header(virtual_size: int, l1_entries: int) -> bytes:
    return struct.pack(
        ">4sIQIIQIIQQIIQQQQII",
        b"QFI\xfb",
        3,  # version
        0,  # no backing file
        0,
        _CLUSTER_BITS,
        virtual_size,
        0,  # not encrypted
        l1_entries,
        _L1 * _CLUSTER,
        _REFERENCES * _CLUSTER,
        1,  # clusters of the refcount table
        0,  # no snapshots
        0,
        0,  # features: incompatible, compatible, autoclear
        0,
        0,
        4,  # refcounts of 16 bits
        _HEADER_LENGTH,
    )
