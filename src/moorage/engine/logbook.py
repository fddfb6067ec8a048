"""TaskFlow's memory, kept in the journal.

TaskFlow's own stores were measured: one re-ran finished tasks, one tore a file in a kill, and both cost more. This one
puts TaskFlow's documents into the journal's transactions, under ids made from names, so a later process finds them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from taskflow import exceptions, states  # type: ignore[import-untyped]
from taskflow.persistence import models, path_based  # type: ignore[import-untyped]

from moorage.engine import journal as journals


def details(book: Backend, flow: str, unfinished: Collection[str]) -> models.FlowDetail:
    """TaskFlow's record of a flow, in which everything unfinished is to be done (again).

    A task that was running when its process died is simply run again: it looks before it creates.
    """
    ident = journals.stable_id(flow)
    with contextlib.closing(book.get_connection()) as connection, book.journal.transaction():
        connection.upgrade()
        logbook = models.LogBook(flow, uuid=ident)
        detail = models.FlowDetail(flow, ident)
        for name in unfinished:
            atom = models.TaskDetail(name, journals.stable_id(flow, name))
            atom.reset(states.PENDING)
            detail.add(atom)
        logbook.add(detail)
        connection.save_logbook(logbook)
    return detail


class Backend(path_based.PathBasedBackend):  # type: ignore[misc]
    """A TaskFlow store inside a journal."""

    # The root of TaskFlow's paths is the empty string, so that they begin with one slash.
    DEFAULT_PATH = ""

    def __init__(self, journal: journals.Journal) -> None:
        super().__init__({})
        self.journal = journal

    def get_connection(self) -> Connection:
        return Connection(self)

    def close(self) -> None:
        """The journal belongs to the caller, who closes it."""


class Connection(path_based.PathBasedConnection):  # type: ignore[misc]
    """TaskFlow's view of the journal's items. Links are folders: a child of the same name is the same thing."""

    def _journal(self) -> journals.Journal:
        found: journals.Journal = self.backend.journal
        return found

    def _join_path(self, *parts: str) -> str:
        return "/".join(parts)

    def _get_item(self, path: str) -> object:
        try:
            return self._journal().item(path)
        except KeyError:
            raise exceptions.NotFound(f"no item at {path}") from None

    def _set_item(self, path: str, value: dict[str, object], transaction: None) -> None:
        atom = value.get("atom")
        if isinstance(atom, dict):
            # A later run does again whatever is not finished, so RUNNING and FAILURE are not worth an fsync; nor is
            # the "100 %" that TaskFlow notes by a write of its own.
            if atom["state"] not in (states.PENDING, states.SUCCESS):
                return
            self._journal().refuse_secrets(atom["results"], str(atom["name"]))
            value = {**value, "atom": {**atom, "meta": {}}}
        self._journal().put_item(path, value)

    def _del_tree(self, path: str, transaction: None) -> None:
        self._journal().drop_tree(path)

    def _get_children(self, path: str) -> list[str]:
        return self._journal().children(path)

    def _ensure_path(self, path: str) -> None:
        self._journal().put_folder(path)

    def _create_link(self, src_path: str, dest_path: str, transaction: None) -> None:
        self._journal().put_folder(dest_path)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._journal().transaction():
            yield

    def validate(self) -> None:
        """The journal was checked when it was opened."""
