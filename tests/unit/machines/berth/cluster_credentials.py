"""Its credentials in a cluster: one password."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SECRET = "berth-credentials"


def environ(plain: Mapping[str, str], folder: Path) -> Mapping[str, str]:
    path = folder / "password"
    path.touch(mode=0o600)
    path.write_text(plain["password"])
    return {"BERTH_PASSWORD": str(path)}
