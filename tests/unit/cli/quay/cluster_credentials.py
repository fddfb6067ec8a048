"""Its credentials in a cluster: one password."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from moorage import errors

SECRET = "quay-credentials"


def environ(plain: Mapping[str, str], folder: Path) -> Mapping[str, str]:
    if not plain.get("password"):
        raise errors.ConfigError("the Secret has no password")
    path = folder / "password"
    path.touch(mode=0o600)
    path.write_text(plain["password"])
    return {"QUAY_PASSWORD": str(path)}
