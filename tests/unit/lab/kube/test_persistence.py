"""The copy in a file: what comes back after a stop, and after a process was killed in the midst of writing."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from moorage.lab.kube import persistence, store

KEY = ("example.com", "widgets")


def _widget(name: str, **content: object) -> store.Object:
    return {"kind": "Widget", "metadata": {"namespace": "default", "name": name, "uid": f"uid of {name}"}, **content}


def _opened(path: pathlib.Path) -> tuple[store.Store, persistence.Copy]:
    objects = store.Store()
    copy = persistence.Copy(objects, path)
    copy.load()
    return objects, copy


def test_a_store_comes_back_with_its_uids_and_versions(tmp_path: pathlib.Path) -> None:
    async def told() -> None:
        path = tmp_path / "kube.db"
        objects, copy = _opened(path)
        copy.start()
        objects.put(KEY, ("default", "a"), _widget("a", spec={"text": "Größe"}))
        objects.put(KEY, ("default", "b"), _widget("b"))
        objects.put(KEY, ("default", "a"), _widget("a", spec={"text": "größer"}))
        objects.remove(KEY, ("default", "b"))
        await copy.stop()
        again, copy = _opened(path)
        assert again.names(KEY) == [("default", "a")]
        before, after = objects.get(KEY, ("default", "a")), again.get(KEY, ("default", "a"))
        assert before is not None
        assert after is not None
        assert (after.object, after.data, after.revision) == (before.object, before.data, before.revision)
        # The last write was a deletion, which no object tells of.
        assert again.revision == objects.revision
        await copy.stop()

    asyncio.run(told())


def test_what_was_written_before_the_copying_began_is_kept_too(tmp_path: pathlib.Path) -> None:
    async def told() -> None:
        objects, copy = _opened(tmp_path / "kube.db")
        objects.put(KEY, ("default", "early"), _widget("early"))
        copy.start()
        await copy.stop()
        assert _opened(tmp_path / "kube.db")[0].names(KEY) == [("default", "early")]

    asyncio.run(told())


def test_history_from_before_a_restart_is_not_pretended(tmp_path: pathlib.Path) -> None:
    async def told() -> None:
        objects, copy = _opened(tmp_path / "kube.db")
        copy.start()
        seen = objects.put(KEY, ("default", "a"), _widget("a")).revision
        objects.remove(KEY, ("default", "a"))
        await copy.stop()
        again, copy = _opened(tmp_path / "kube.db")
        with pytest.raises(store.Compacted):
            again.watch(KEY, seen)
        again.watch(KEY, again.revision)
        await copy.stop()

    asyncio.run(told())


def test_many_writes_are_few_commits(tmp_path: pathlib.Path) -> None:
    async def told() -> None:
        objects, copy = _opened(tmp_path / "kube.db")
        copy.start()
        for turn in range(10):
            for number in range(200):
                objects.put(KEY, ("default", f"w{number}"), _widget(f"w{number}", spec={"turn": turn}))
            await asyncio.sleep(0)
        await copy.stop()
        assert copy.commits <= 5
        again, copy = _opened(tmp_path / "kube.db")
        assert {entry.object["spec"]["turn"] for entry in again.entries(KEY)} == {9}
        assert again.count(KEY) == 200
        await copy.stop()

    asyncio.run(told())


_KILLED = """
    import asyncio, pathlib, sys
    from moorage.lab.kube import persistence, store

    async def told():
        objects = store.Store()
        copy = persistence.Copy(objects, pathlib.Path(sys.argv[1]))
        copy.load()
        copy.start()
        number = 0
        while True:
            for _ in range(20):
                number += 1
                name = f"w{number:06}"
                objects.put(("example.com", "widgets"), ("default", name), {"metadata": {"name": name}, "n": number})
            print(number, objects.revision, flush=True)
            await asyncio.sleep(0.01)

    asyncio.run(told())
"""


def test_a_killed_process_loses_the_last_moment_only_and_no_revision_is_used_twice(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kube.db"
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(_KILLED), str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    told: list[tuple[int, int]] = []
    while len(told) < 60:
        number, revision = child.stdout.readline().split()
        told.append((int(number), int(revision)))
    child.send_signal(signal.SIGKILL)
    child.wait()
    last = [tuple(map(int, line.split())) for line in child.stdout.read().splitlines()] or told
    child.stdout.close()

    async def read() -> None:
        objects, copy = _opened(path)
        kept = [entry.object["n"] for entry in objects.entries(KEY)]
        # Half of what was told of is older than any moment in which writes are gathered.
        assert len(kept) >= told[len(told) // 2][0]
        # Whole moments are lost, from the end: there are no holes.
        assert kept == list(range(1, len(kept) + 1))
        assert all(entry.revision == entry.object["n"] + 1 for entry in objects.entries(KEY))
        assert objects.revision > last[-1][1]
        await copy.stop()

    asyncio.run(read())


def test_a_file_that_cannot_be_written_is_written_later(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def told() -> None:
        objects, copy = _opened(tmp_path / "kube.db")
        failed = asyncio.Event()
        loop, commit = asyncio.get_running_loop(), copy._commit

        def full(*_: object) -> None:
            loop.call_soon_threadsafe(failed.set)
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(copy, "_commit", full)
        copy.start()
        objects.put(KEY, ("default", "a"), _widget("a"))
        objects.put(KEY, ("default", "b"), _widget("b"))
        async with asyncio.timeout(5):
            await failed.wait()
        objects.remove(KEY, ("default", "b"))
        monkeypatch.setattr(copy, "_commit", commit)
        await copy.stop()
        assert _opened(tmp_path / "kube.db")[0].names(KEY) == [("default", "a")]

    asyncio.run(told())


def test_a_file_that_stays_unwritable_is_named_when_it_is_closed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def told() -> None:
        objects, copy = _opened(tmp_path / "kube.db")

        def full(*_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(copy, "_commit", full)
        copy.start()
        objects.put(KEY, ("default", "a"), _widget("a"))
        with pytest.raises(persistence.Unwritable, match=r"kube\.db misses the last writes: .* full"):
            await copy.stop()

    asyncio.run(told())


def test_a_file_that_is_something_else_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and long enough to be taken for one by nobody " * 50)
    with pytest.raises(persistence.Unreadable, match=r"notes\.txt"):
        persistence.Copy(store.Store(), path)


def test_a_file_of_another_format_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kube.db"
    _, copy = _opened(path)
    asyncio.run(copy.stop())
    with sqlite3.connect(path) as database:
        database.execute("UPDATE state SET value = 99 WHERE name = 'format'")
    database.close()
    with pytest.raises(persistence.Unreadable, match="format 99"):
        persistence.Copy(store.Store(), path)


def test_two_processes_cannot_share_a_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kube.db"
    _, copy = _opened(path)
    probe = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0.1).execute('SELECT * FROM state')"
    found = subprocess.run([sys.executable, "-c", probe, str(path)], capture_output=True, text=True, check=False)
    assert "locked" in found.stderr
    asyncio.run(copy.stop())
