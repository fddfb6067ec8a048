"""What every `create` does before anything else: keys start being made on threads while the rest is still imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from moorage.cli import talk

if TYPE_CHECKING:
    from moorage.assets import keys

_STATE = ".moorage_state.json"


def key_source(root: Path, voice: talk.Voice) -> keys.KeySource:
    """The cluster's keys in the making, unless its state has them or there is no install-config; the log is opened."""
    from moorage.assets import keys

    wanted = _there(root / "install-config.yaml")
    source = keys.KeySource(len(keys.NAMES) if wanted and not _there(root / _STATE) else 0)
    if wanted:
        voice.log_to(root)
    return source


def _there(path: Path) -> bool:
    """Whether it can be seen; what cannot be looked at will be refused, with the reason, by whoever reads it."""
    try:
        return path.exists()
    except OSError:
        return False
