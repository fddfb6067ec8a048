"""What becomes of a cluster's files once it is destroyed: they are set aside, never deleted.

Everything that was made for the cluster goes to `destroyed/<infraID>-<time>/`, so that a later create starts afresh and
cannot mistake an old record for a thing that exists. A note of what is being moved is written first; whoever comes next
after a kill ends the move.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection
from pathlib import Path

from moorage import errors
from moorage.assets import store
from moorage.engine import lock

FOLDER = "destroyed"
METADATA = "metadata.json"
JOURNAL = ".moorage_journal.sqlite"
_NOTE = ".moorage_setting_aside.json"


def set_aside(directory: store.Store, infra_id: str, moment: datetime.datetime) -> Path | None:
    """Move all that was made for a destroyed cluster out of the way; the user's own files stay where they are.

    What we generated goes even if it was edited: a manifest of the old cluster names the old cluster. None if that was
    done before: what lies there now belongs to the next cluster.
    """
    root = directory.root
    if not (root / METADATA).exists():
        return None
    ours = [*directory.state.base, *directory.state.pending, METADATA, store.STATE]
    ours += [JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm"]
    folder = f"{FOLDER}/{infra_id}-{moment:%Y%m%dT%H%M%SZ}"
    note = {
        "folder": folder,
        "paths": sorted({path for path in ours if (root / path).exists()}),
    }
    store.write_alone(root / _NOTE, json.dumps(note).encode())
    _move(root)
    return root / folder


def finish(root: Path) -> None:
    """End what a killed run had begun to set aside.

    Whoever is about to read state or journal calls this first: half of a destroyed cluster must not be taken for one.
    """
    if (root / _NOTE).exists():
        with lock.held(root):
            _move(root)


def _move(root: Path) -> None:
    try:
        note = json.loads((root / _NOTE).read_bytes())
        _rename(root, root / note["folder"], note["paths"])
        (root / _NOTE).unlink()
    except FileNotFoundError:
        return  # somebody else has just ended it
    except OSError as problem:
        raise errors.StoreError(
            f"the cluster is destroyed, but its files cannot be set aside: {problem.strerror}: {problem.filename}",
            remedy="check space and permissions, then run the same command again",
        ) from problem


def _rename(root: Path, folder: Path, paths: Collection[str]) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in paths:
        target = folder / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (root / path).exists():
            (root / path).rename(target)
    for emptied in sorted({(root / path).parent for path in paths} - {root}):
        if emptied.is_dir() and not any(emptied.iterdir()):
            emptied.rmdir()
