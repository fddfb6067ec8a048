"""A copy of the store in a file, so that a cluster outlives the process that serves it.

Writes are gathered for a moment and then committed together by a thread, so that a thousand a second cost little. The
file is sqlite's, with a write-ahead log: a process that is killed loses the last moment, never the rest. As no
revision may be given out twice, even if the write that had it was lost, the file always names one that is yet to come,
and a store that was not closed goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import pathlib
import sqlite3

from moorage import errors
from moorage.lab.kube import kinds, store

Row = tuple[str, str, str, str, int, bytes]

_log = logging.getLogger(__name__)
_FORMAT = 1
# Real seconds in which writes are gathered.
_GATHERED = 0.05
# So many revisions are reserved ahead; what a killed process has used of them is never used again.
_RESERVED = 100_000

_TABLES = """
CREATE TABLE IF NOT EXISTS objects (
    "group" TEXT NOT NULL, plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY ("group", plural, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
_PUT = "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?)"
_REMOVE = 'DELETE FROM objects WHERE "group" = ? AND plural = ? AND namespace = ? AND name = ?'
_SET = "INSERT OR REPLACE INTO state VALUES (?, ?)"


class Unreadable(errors.MoorageError):
    """The file does not hold a store, or one of another format."""


class Unwritable(errors.MoorageError):
    """The file could not be brought up to date."""


class Copy:
    """Keeps a store's objects in a file. `load` first, then `start`; `stop` writes the rest."""

    def __init__(self, objects: store.Store, path: pathlib.Path) -> None:
        self._store = objects
        self._path = path
        self._pending: dict[tuple[kinds.Key, store.Name], store.Entry | None] = {}
        self._ceiling = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        # How many commits were made; for whoever measures.
        self.commits = 0
        try:
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._prepare()
        except sqlite3.DatabaseError as wrong:
            raise Unreadable(f"{path} does not hold a cluster: {wrong}", remedy="remove it, or name another") from wrong

    def _prepare(self) -> None:
        # A file is made by one process at a time; a second one would overwrite what the first writes.
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(_TABLES)
        found = self._state("format")
        if found is None:
            self._database.execute(_SET, ("format", _FORMAT))
        elif found != _FORMAT:
            self._database.close()
            raise Unreadable(f"{self._path} has format {found}, not {_FORMAT}", remedy="remove it, or name another")

    def _state(self, name: str) -> int | None:
        row = self._database.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return None if row is None else int(row[0])

    def load(self) -> int:
        """Put what the file holds into the (empty) store, and gather its writes from now on; the number of objects."""
        count = 0
        for group, plural, namespace, name, revision, data in self._database.execute("SELECT * FROM objects"):
            self._store.load((group, plural), (namespace, name), json.loads(data), revision)
            count += 1
        self._store.restore(self._state("revision") or 0)
        self._ceiling = self._store.revision
        self._store.on_write.append(self._written)
        return count

    def start(self) -> None:
        """Write what was gathered, and what will be, in a task of the running event loop."""
        if self._task is not None:
            return
        self._wake = asyncio.Event()
        self._wake.set()
        self._task = asyncio.create_task(self._run(), name="persistence")

    async def stop(self) -> None:
        """Write what has not been written, and close the file."""
        with contextlib.suppress(ValueError):
            self._store.on_write.remove(self._written)
        self._stopping = True
        self._wake.set()
        # A commit that is under way has to end first, for what it fails to write comes back to be written here.
        if self._task is not None:
            await self._task
            self._task = None
        try:
            self._commit(*self._taken(), self._store.revision)
        except sqlite3.Error as wrong:
            raise Unwritable(f"{self._path} misses the last writes: {wrong}", remedy="make room for it") from wrong
        finally:
            self._database.close()

    def _written(self, key: kinds.Key, event: store.Event) -> None:
        self._pending[key, event.name] = None if event.type == store.DELETED else event.entry
        self._wake.set()

    def _taken(self) -> tuple[list[Row], list[tuple[str, str, str, str]]]:
        pending, self._pending = self._pending, {}
        rows = [
            (*key, *name, entry.revision, entry.data) for (key, name), entry in pending.items() if entry is not None
        ]
        gone = [(*key, *name) for (key, name), entry in pending.items() if entry is None]
        return rows, gone

    async def _run(self) -> None:
        while not self._stopping:
            await self._wake.wait()
            await asyncio.sleep(0 if self._stopping else _GATHERED)
            self._wake.clear()
            rows, gone = self._taken()
            if self._ceiling - self._store.revision < _RESERVED // 2:
                self._ceiling = self._store.revision + _RESERVED
            try:
                await asyncio.to_thread(self._commit, rows, gone, self._ceiling)
            except sqlite3.Error:
                # A full disk: nothing is lost while the process lives, so it is tried again.
                _log.exception("the copy in %s could not be written", self._path)
                self._give_back(rows, gone)

    def _give_back(self, rows: list[Row], gone: list[tuple[str, str, str, str]]) -> None:
        for group, plural, namespace, short in (*(row[:4] for row in rows), *gone):
            key, name = (group, plural), (namespace, short)
            if (key, name) not in self._pending:
                self._pending[key, name] = self._store.get(key, name)
        asyncio.get_running_loop().call_later(1.0, self._wake.set)

    def _commit(self, rows: list[Row], gone: list[tuple[str, str, str, str]], revision: int) -> None:
        self._database.execute("BEGIN")
        try:
            self._database.executemany(_PUT, rows)
            self._database.executemany(_REMOVE, gone)
            self._database.execute(_SET, ("revision", revision))
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")
        self.commits += 1
