"""The journal is private, durable, and honest about files that it cannot read."""

from __future__ import annotations

import datetime
import os
import pathlib
import sqlite3
import stat
import threading

import pytest
import toycloud

from moorage.engine import errors, flow, progress, secret
from moorage.engine import journal as journals

AT = datetime.datetime(2026, 1, 1, 12, 30, tzinfo=datetime.UTC)


def test_it_is_readable_by_its_owner_only_whatever_the_umask(tmp_path):
    former = os.umask(0)
    try:
        with journals.Journal(tmp_path / "journal.db") as journal:
            journal.begin("infra", AT)
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(former)

    assert modes == {"journal.db": 0o600, "journal.db-wal": 0o600, "journal.db-shm": 0o600}


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path):
    path = tmp_path / "journal.db"
    journals.Journal(path).close()
    path.chmod(0o644)

    journals.Journal(path).close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_commit_is_on_disk_before_it_returns(journal):
    connection = journal._db

    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_journal_of_a_later_version_is_left_alone(tmp_path):
    path = tmp_path / "journal.db"
    journals.Journal(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version={journals.SCHEMA + 1}")
    connection.close()

    with pytest.raises(errors.JournalError, match="written by a later version") as refused:
        journals.Journal(path)

    assert "use the version that wrote it" in refused.value.remedy


def overwrite(path: pathlib.Path, start: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(b"\xff" * size)


def someone_elses(path: pathlib.Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipes (name)")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        pytest.param(lambda path: path.write_text("hello, world! " * 300), "is damaged", id="not a database"),
        pytest.param(lambda path: overwrite(path, 4096, 4096), "is damaged", id="a torn page"),
        pytest.param(lambda path: os.truncate(path, 6000), "is damaged", id="cut short"),
        pytest.param(someone_elses, "is not a journal", id="someone else's database"),
    ],
)
def test_a_file_that_is_no_journal_is_named_with_the_way_on(tmp_path, damage, words):
    path = tmp_path / "journal.db"
    with journals.Journal(path) as journal:
        journal.remember("infra", {"a": {}}, phase="forward")
    damage(path)

    with pytest.raises(errors.JournalError, match=words) as refused:
        journals.Journal(path).known("infra")

    assert str(path) in refused.value.message
    assert "move" in refused.value.remedy


@pytest.mark.parametrize("table", ["items", "flows"])
def test_a_record_that_is_no_longer_json_is_named_as_damage(tmp_path, cloud, clock, table):
    path = tmp_path / "journal.db"
    with journals.Journal(path) as journal:
        flow.run(flow.Flow("infra", toycloud.harbour(cloud)), journal=journal, clock=clock)
    connection = sqlite3.connect(path)
    column = {"items": "value", "flows": "graph"}[table]
    connection.execute(f"UPDATE {table} SET {column} = substr({column}, 1, 20) WHERE {column} IS NOT NULL")  # noqa: S608
    connection.commit()
    connection.close()

    with journals.Journal(path) as journal, pytest.raises(errors.JournalError, match="is damaged"):
        flow.run(flow.Flow("infra", toycloud.harbour(cloud)), journal=journal, clock=clock)


def test_a_missing_folder_is_said_so(tmp_path):
    with pytest.raises(errors.JournalError, match="cannot open the journal") as refused:
        journals.Journal(tmp_path / "nowhere" / "journal.db")

    assert "nowhere" in refused.value.remedy


def test_a_reader_does_not_make_a_journal(tmp_path):
    with pytest.raises(errors.JournalError, match="there is no journal"):
        journals.Journal(tmp_path / "journal.db", create=False)

    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_left_by_a_process_that_died_at_once_is_a_new_journal(tmp_path):
    (tmp_path / "journal.db").touch()

    with journals.Journal(tmp_path / "journal.db") as journal:
        assert journal.flows() == []


def test_a_reader_sees_what_a_writer_has_committed_meanwhile(tmp_path):
    path = tmp_path / "journal.db"
    with journals.Journal(path) as writer, journals.Journal(path, create=False) as reader:
        writer.append(1, progress.Waiting("infra", "a", AT, "the tide"))
        first = reader.events("infra")
        writer.append(1, progress.Waiting("infra", "a", AT, "the wind"))
        news = reader.events("infra", after=first[-1].id)

    assert [(entry.state, entry.waiting_for, entry.at) for entry in first] == [("waiting", "the tide", AT)]
    assert [entry.waiting_for for entry in news] == ["the wind"]


def test_an_event_that_can_wait_goes_to_disk_with_the_next_commit_and_in_its_order(tmp_path):
    path = tmp_path / "journal.db"
    with journals.Journal(path) as writer, journals.Journal(path, create=False) as reader:
        writer.append(1, progress.Started("infra", "a", AT))
        before = reader.events("infra")
        writer.append(1, progress.Creating("infra", "a", AT))
        after = reader.events("infra")

    assert before == []
    assert [entry.state for entry in after] == ["started", "creating"]


@pytest.mark.parametrize("last_act", [lambda journal: journal.close(), lambda journal: journal.events("infra")])
def test_no_event_is_lost_on_the_way_out(tmp_path, last_act):
    writer = journals.Journal(tmp_path / "journal.db")
    writer.append(1, progress.Started("infra", "a", AT))

    last_act(writer)

    with journals.Journal(tmp_path / "journal.db", create=False) as reader:
        assert [entry.state for entry in reader.events("infra")] == ["started"]
    writer.close()


def test_events_of_a_failed_commit_are_kept_for_the_next(journal, monkeypatch):
    def disk_full() -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "_commit", disk_full)
        with pytest.raises(errors.JournalError, match="disk is full"):
            journal.append(1, progress.Creating("infra", "a", AT))

    journal.append(1, progress.Waiting("infra", "a", AT, "the tide"))

    assert [entry.state for entry in journal.events("infra")] == ["creating", "waiting"]


def test_a_transaction_is_all_or_nothing(journal):
    def half() -> None:
        with journal.transaction():
            journal.put_item("/a", {"x": 1})
            with journal.transaction():
                journal.put_item("/b", {"x": 2})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()

    for path in ("/a", "/b"):
        with pytest.raises(KeyError):
            journal.item(path)


def test_items_form_a_tree(journal):
    for path in ("/books/1", "/books/10", "/books/1/x"):
        journal.put_item(path, {"path": path})

    assert journal.children("/books") == ["1", "10"]
    journal.drop_tree("/books/1")
    assert journal.children("/books") == ["10"]
    assert journal.item("/books/10") == {"path": "/books/10"}


def test_attempts_are_numbered_and_a_death_leaves_them_open(journal):
    first, second = journal.begin("infra", AT), journal.begin("infra", AT)
    journal.end("infra", second, "finished", AT + datetime.timedelta(minutes=5))

    seen = [(attempt.attempt, attempt.outcome, attempt.finished) for attempt in journal.attempts("infra")]
    assert seen == [(first, "running", None), (second, "finished", AT + datetime.timedelta(minutes=5))]
    assert (first, second) == (1, 2)


def test_why_a_flow_turned_back_is_remembered_without_secrets(tmp_path):
    with journals.Journal(tmp_path / "journal.db", secrets=[secret.Secret("hunter2")]) as journal:
        cause = errors.Failure("a", "thing", "login with hunter2 refused", remedy="renew hunter2")
        journal.remember("infra", {"a": {}}, phase="rollback", causes=[cause])
        known = journal.known("infra")

    assert known is not None
    assert known.phase == "rollback"
    assert known.causes == (errors.Failure("a", "thing", "login with (secret) refused", remedy="renew (secret)"),)


def test_many_threads_may_write_at_once(journal):
    def writer(name: str) -> None:
        for _ in range(25):
            journal.append(1, progress.Started("infra", name, AT))

    threads = [threading.Thread(target=writer, args=(f"r{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    counts = [entry.resource for entry in journal.events("infra")]
    assert {name: counts.count(name) for name in counts} == {f"r{number}": 25 for number in range(8)}
