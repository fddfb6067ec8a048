"""The lab's stand-in for an operating system's image, judged by the program that makes real ones."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from moorage.lab import boot_image


@pytest.mark.needs("qemu-img")
def test_qemu_finds_no_fault_with_the_image(tmp_path: Path) -> None:
    image = tmp_path / "image.qcow2"
    boot_image.write(image)

    checked = subprocess.run(["qemu-img", "check", str(image)], capture_output=True, text=True, check=False)
    told = subprocess.run(["qemu-img", "info", "--output=json", str(image)], capture_output=True, check=True)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    about = json.loads(told.stdout)
    assert (about["format"], about["virtual-size"]) == ("qcow2", boot_image.VIRTUAL_SIZE)
