"""The stand-in for an operating system's image: what a reader of qcow2 headers finds in it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from moorage.lab import boot_image


def test_the_header_claims_a_large_disk_and_the_file_is_small(tmp_path: Path) -> None:
    boot_image.write(tmp_path / "image.qcow2")

    content = (tmp_path / "image.qcow2").read_bytes()
    magic, version, _, _, bits, size = struct.unpack(">4sIQIIQ", content[:32])
    assert (magic, version, bits, size) == (b"QFI\xfb", 3, 16, 16 * 1024**3)
    assert 8 * 1024**2 < len(content) < 10 * 1024**2


def test_it_is_the_same_every_time() -> None:
    assert boot_image.content(4) == boot_image.content(4)


def test_more_data_than_its_one_table_can_lead_to_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 8192"):
        boot_image.content(8193)
