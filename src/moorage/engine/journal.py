"""The journal: one sqlite file that survives kill -9 and tells the next process where the last one stopped.

It holds what TaskFlow must remember (`logbook` speaks for it), the graph each flow was run with, and an append-only
list of events that `status` and `timeline` read. Every commit is on disk before it returns (WAL, synchronous=FULL), the
file is readable by its owner only, and no secret is ever written to it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import sqlite3
import threading
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

from moorage.engine import errors, outputs, progress, secret

SCHEMA = 1
APPLICATION = 0x4D4F4F52  # "MOOR", so that a sqlite file of someone else's is not taken for a journal

Phase = Literal["forward", "rollback"]

_TABLES = """
CREATE TABLE items (path TEXT PRIMARY KEY, parent TEXT NOT NULL, value TEXT) WITHOUT ROWID;
CREATE INDEX items_by_parent ON items (parent);
CREATE TABLE flows (name TEXT PRIMARY KEY, graph TEXT NOT NULL, phase TEXT NOT NULL, causes TEXT NOT NULL);
CREATE TABLE attempts (
    flow TEXT NOT NULL, attempt INTEGER NOT NULL, started TEXT NOT NULL, finished TEXT, outcome TEXT NOT NULL,
    pid INTEGER NOT NULL, PRIMARY KEY (flow, attempt)
);
CREATE TABLE events (
    id INTEGER PRIMARY KEY, flow TEXT NOT NULL, attempt INTEGER NOT NULL, resource TEXT NOT NULL, state TEXT NOT NULL,
    at TEXT NOT NULL, message TEXT NOT NULL, waiting_for TEXT NOT NULL, ident TEXT NOT NULL
);
CREATE INDEX events_by_flow ON events (flow, id);
"""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One journaled event."""

    id: int
    attempt: int
    resource: str
    state: str
    at: datetime.datetime
    message: str = ""
    waiting_for: str = ""
    ident: str = ""


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One run of a flow by one process. ``outcome`` stays ``running`` if the process died."""

    attempt: int
    started: datetime.datetime
    finished: datetime.datetime | None
    outcome: str
    pid: int


@dataclasses.dataclass(frozen=True)
class Known:
    """What the journal knows about a flow as a whole: its graph, which way it was going, and why it turned back."""

    graph: Mapping[str, object]
    phase: Phase
    causes: tuple[errors.Failure, ...]


def stable_id(*parts: str) -> str:
    """The same id for the same names in every process: ids are how a later run finds its records again."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "moorage:" + "/".join(parts)))


def _owner_only(path: pathlib.Path, *, create: bool) -> None:
    """Bring the file (and sqlite's companions, which take their mode from it) to 0600 before a byte is in it."""
    if create:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    for part in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        with contextlib.suppress(FileNotFoundError):
            part.chmod(0o600)


class Journal:
    """An open journal. Safe to share between threads; one process writes (see `lock`), others may read."""

    def __init__(self, path: pathlib.Path, *, secrets: Iterable[secret.Secret] = (), create: bool = True) -> None:
        self.path = path
        self.spellings = secret.forms(secrets)
        self._turn = threading.RLock()
        self._depth = 0
        self._queue = threading.Lock()
        self._pending: list[tuple[object, ...]] = []
        self._appended = 0
        self._written = 0
        try:
            _owner_only(path, create=create)
        except OSError as error:
            remedy = f"check that {path.parent} exists and that you may write there"
            raise errors.JournalError(f"cannot open the journal {path}: {error.strerror}", remedy=remedy) from error
        if not path.exists():
            raise errors.JournalError(f"there is no journal at {path}", remedy="nothing has been created from here yet")
        with self._translated():
            self._db = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._turn:
            try:
                self._flush(self._appended)
            finally:
                self._db.close()

    # -- the file ------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application != APPLICATION:
            raise self._unusable("is not a journal of moorage")
        if version > SCHEMA:
            raise errors.JournalError(
                f"the journal {self.path} was written by a later version (format {version}, this one reads {SCHEMA})",
                remedy="use the version that wrote it",
            )
        problem = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise self._unusable(f"is damaged ({problem})")
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        if not tables:
            with self.transaction():
                for statement in filter(str.strip, _TABLES.split(";")):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={SCHEMA}")
                self._db.execute(f"PRAGMA application_id={APPLICATION}")

    def _unusable(self, why: str) -> errors.JournalError:
        return errors.JournalError(
            f"the journal {self.path} {why}",
            remedy=f"move {self.path} away and run the same command again: what exists is found on the platform by "
            "its mark and adopted; destroy needs no journal",
        )

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise errors.JournalError(
                f"cannot use the journal {self.path}: {error}", remedy="check free space and permissions, then go on"
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._unusable(f"is damaged ({error})") from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. Nested transactions join the outer one."""
        with self._turn, self._translated():
            if self._depth:
                yield
                return
            self._db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
                self._write_pending()
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            finally:
                self._depth -= 1

    def _commit(self) -> None:
        self._db.execute("COMMIT")

    def _rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        with self._turn, self._translated():
            return self._db.execute(query, values).fetchall()

    # -- TaskFlow's items: a small tree of JSON documents ----------------------------------------------------------

    def item(self, path: str) -> object:
        """The document at a path; KeyError if there is none."""
        rows = self._rows("SELECT value FROM items WHERE path = ? AND value IS NOT NULL", path)
        if not rows:
            raise KeyError(path)
        return self._loads(str(rows[0][0]))

    def put_item(self, path: str, value: object) -> None:
        """Keep a document, unless it is kept already just so: an fsync for nothing would be paid twice per task."""
        text = json.dumps(value, sort_keys=True, allow_nan=False)
        if self._rows("SELECT 1 FROM items WHERE path = ? AND value = ?", path, text):
            return
        with self.transaction():
            self._db.execute(
                "INSERT INTO items VALUES (?, ?, ?) ON CONFLICT (path) DO UPDATE SET value = excluded.value",
                (path, path.rpartition("/")[0], text),
            )

    def put_folder(self, path: str) -> None:
        with self.transaction():
            self._db.execute("INSERT OR IGNORE INTO items VALUES (?, ?, NULL)", (path, path.rpartition("/")[0]))

    def children(self, path: str) -> list[str]:
        rows = self._rows("SELECT path FROM items WHERE parent = ? ORDER BY path", path)
        return [str(row[0]).rpartition("/")[2] for row in rows]

    def drop_tree(self, path: str) -> None:
        with self.transaction():
            below = path + "/"
            self._db.execute("DELETE FROM items WHERE path = ? OR substr(path, 1, ?) = ?", (path, len(below), below))

    def _loads(self, text: str) -> object:
        try:
            return json.loads(text)
        except ValueError as error:
            raise self._unusable(f"is damaged ({error})") from error

    # -- flows and attempts ----------------------------------------------------------------------------------------

    def flows(self) -> list[str]:
        """The names of all flows ever run, oldest first."""
        return [str(row[0]) for row in self._rows("SELECT name FROM flows ORDER BY rowid")]

    def known(self, flow: str) -> Known | None:
        """What is recorded about a flow, or None if it never ran."""
        rows = self._rows("SELECT graph, phase, causes FROM flows WHERE name = ?", flow)
        if not rows:
            return None
        graph, phase, causes = (str(value) for value in rows[0])
        loaded, reasons = self._loads(graph), self._loads(causes)
        if not isinstance(loaded, dict) or not isinstance(reasons, list) or phase not in ("forward", "rollback"):
            raise self._unusable(f"is damaged (flow {flow!r})")
        failures = tuple(errors.Failure(**reason) for reason in reasons)
        return Known(graph=loaded, phase="rollback" if phase == "rollback" else "forward", causes=failures)

    def remember(
        self, flow: str, graph: Mapping[str, object], *, phase: Phase, causes: Iterable[errors.Failure] = ()
    ) -> None:
        """Record the graph a flow is run with, which way it goes, and why it turned back."""
        reasons = [self._scrubbed(cause) for cause in causes]
        with self.transaction():
            self._db.execute(
                "INSERT INTO flows VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
                "graph = excluded.graph, phase = excluded.phase, causes = excluded.causes",
                (flow, json.dumps(graph, sort_keys=True), phase, json.dumps(reasons)),
            )

    def _scrubbed(self, cause: errors.Failure) -> dict[str, str]:
        return {key: secret.scrub(value, self.spellings) for key, value in dataclasses.asdict(cause).items()}

    def begin(self, flow: str, at: datetime.datetime) -> int:
        """Number a new attempt."""
        with self.transaction():
            rows = self._rows("SELECT coalesce(max(attempt), 0) + 1 FROM attempts WHERE flow = ?", flow)
            number = int(str(rows[0][0]))
            values = (flow, number, at.isoformat(), None, "running", os.getpid())
            self._db.execute("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?)", values)
        return number

    def end(self, flow: str, attempt: int, outcome: str, at: datetime.datetime) -> None:
        """Close an attempt."""
        with self.transaction():
            self._db.execute(
                "UPDATE attempts SET finished = ?, outcome = ? WHERE flow = ? AND attempt = ?",
                (at.isoformat(), outcome, flow, attempt),
            )

    def attempts(self, flow: str) -> list[Attempt]:
        rows = self._rows(
            "SELECT attempt, started, finished, outcome, pid FROM attempts WHERE flow = ? ORDER BY attempt", flow
        )
        return [
            Attempt(
                attempt=int(str(number)),
                started=datetime.datetime.fromisoformat(str(started)),
                finished=datetime.datetime.fromisoformat(str(finished)) if finished else None,
                outcome=str(outcome),
                pid=int(str(pid)),
            )
            for number, started, finished, outcome, pid in rows
        ]

    # -- events ----------------------------------------------------------------------------------------------------

    def append(self, attempt: int, event: progress.Event) -> None:
        """Keep an event: for good before returning if it is ``durable``, otherwise with the next commit."""
        words = (secret.scrub(text, self.spellings) for text in (event.message, event.waiting_for, event.ident))
        with self._queue:
            self._pending.append((event.flow, attempt, event.resource, event.state, event.at.isoformat(), *words))
            self._appended += 1
            mine = self._appended
        if event.durable:
            self._flush(mine)

    def _flush(self, number: int) -> None:
        """Have the first ``number`` events on disk.

        Workers that come together share one commit: the first through the door writes for all who queue behind it.
        """
        with self._turn:
            if self._written < number:
                with self.transaction():
                    pass  # every commit takes the waiting events along

    def _write_pending(self) -> None:
        with self._queue:
            rows, self._pending = self._pending, []
            number = self._appended
        try:
            self._db.executemany(
                "INSERT INTO events (flow, attempt, resource, state, at, message, waiting_for, ident) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
            self._commit()
        except BaseException:
            with self._queue:
                self._pending[:0] = rows
            raise
        self._written = number

    def events(self, flow: str, *, after: int = 0) -> list[Entry]:
        """The events of a flow in order; ``after`` an id for those who follow along."""
        self._flush(self._appended)
        rows = self._rows(
            "SELECT id, attempt, resource, state, at, message, waiting_for, ident FROM events "
            "WHERE flow = ? AND id > ? ORDER BY id",
            flow,
            after,
        )
        return [
            Entry(
                id=int(str(number)),
                attempt=int(str(attempt)),
                resource=str(resource),
                state=str(state),
                at=datetime.datetime.fromisoformat(str(at)),
                message=str(message),
                waiting_for=str(waiting_for),
                ident=str(ident),
            )
            for number, attempt, resource, state, at, message, waiting_for, ident in rows
        ]

    # -- results ---------------------------------------------------------------------------------------------------

    def finished(self, flow: str) -> dict[str, outputs.Record]:
        """The outputs of all finished resources of a flow, by name."""
        found: dict[str, outputs.Record] = {}
        for ident in self.children(f"/flow_details/{stable_id(flow)}"):
            document = self.item(f"/atom_details/{ident}")
            atom = document.get("atom") if isinstance(document, dict) else None
            if not isinstance(atom, dict):
                raise self._unusable(f"is damaged (record {ident})")
            if atom["state"] == "SUCCESS":
                found[atom["name"]] = atom["results"]
        return found

    def refuse_secrets(self, output: object, where: str) -> None:
        """Raise `SecretInJournal` if the value holds one of this run's secrets."""
        path = secret.find(output, self.spellings, where)
        if path is not None:
            raise errors.SecretInJournal(path)

    def forget(self, flow: str, names: Collection[str] | None = None) -> None:
        """Drop the records of some resources, or of all; the events stay. The next run finds what exists by looking."""
        ident = stable_id(flow)
        wanted = None if names is None else {stable_id(flow, name) for name in names}
        with self.transaction():
            for atom in self.children(f"/flow_details/{ident}"):
                if wanted is None or atom in wanted:
                    self.drop_tree(f"/atom_details/{atom}")
                    self.drop_tree(f"/flow_details/{ident}/{atom}")
