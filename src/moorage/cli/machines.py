"""`moorage machines`: a cluster's machines as they are; on a terminal redrawn as they change, until Ctrl-C.

Anywhere else, and with ``--once``, it is a plain table that is printed once; ``-o json`` is for scripts.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from moorage.cli import cluster_access, talk

if TYPE_CHECKING:
    from rich import console

    from moorage.engine import clock as clocks
    from moorage.machines import overview
    from moorage.machines.runtime import client as clients
    from moorage.machines.runtime import informer

HEADINGS = ("SET", "MACHINE", "PHASE", "NODE", "INSTANCE", "AGE", "WAITS FOR")
#: What a narrow screen does without, in this order: a node is called like its machine, and a machine like its set.
_DISPENSABLE = ("NODE", "SET", "AGE", "INSTANCE")
_NAME = "MACHINE"
#: Letters that the last column has at least, where names need not be broken.
_LEAST = 20
_NAMESPACE = "openshift-machine-api"
_PER_SECOND = 2
_STYLES = {"Running": "green", "Failed": "red", "Deleting": "yellow"}


def add(command: argparse.ArgumentParser, _: argparse.ArgumentParser) -> None:
    command.description = "Shows every machine with its set, phase, node, instance and age, and what it waits for."
    cluster_access.add_flag(command)
    command.add_argument("-o", "--output", choices=("text", "json"), default="text")
    command.add_argument("--once", action="store_true", help="print once, even on a terminal")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, _: talk.Voice) -> int:
    from moorage.engine import clock as clocks

    clock = clocks.from_environment()
    with cluster_access.connected(arguments, clock) as client:
        if arguments.output == "text" and not arguments.once and sys.stdout.isatty():
            _live(client, clock)
            return 0
        found = _looked(client, clock)
    if arguments.output == "json":
        print(json.dumps(dataclasses.asdict(found), indent=1))
    else:
        print("\n".join(lines(found)))
    return 0


def lines(found: overview.Overview) -> list[str]:
    """The plain table, below a line for each set."""
    table = [HEADINGS, *(cells(row) for row in found.machines)]
    # The last column is as long as what it says.
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS) - 1)]
    drawn = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in table
    ]
    return [*(set_line(each) for each in found.sets), *(drawn if found.machines else ["there are no machines"])]


def set_line(row: overview.SetRow) -> str:
    """One set in words."""
    return f"{row.name}: {row.wanted} wanted, {row.present} there, {row.ready} ready"


def cells(row: overview.Row) -> tuple[str, ...]:
    """One machine in the order of `HEADINGS`."""
    from moorage.installer import durations

    age = durations.words(row.seconds)
    words = (row.set or "-", row.machine, row.phase or "-", row.node or "-", row.instance or "-", age, row.why)
    return tuple(_in_a_line(each) for each in words)


def _in_a_line(text: str) -> str:
    """What others wrote, without that which would tear the table: breaks of lines, and words to the terminal."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def _looked(client: clients.Client, clock: clocks.Clock) -> overview.Overview:
    """One look at everything."""
    from moorage import errors
    from moorage.machines import overview
    from moorage.machines.runtime import errors as api_errors
    from moorage.machines.runtime import kinds

    def listed(kind: kinds.Kind, namespace: str = "") -> list[dict[str, Any]]:
        try:
            return client.list(kind, namespace)[0]
        except api_errors.NotFound as missing:
            raise errors.MoorageError(
                f"this cluster has no {kind}: it is no OpenShift or OKD, or was installed without the machine-api",
                remedy="give the kubeconfig of another cluster by --kubeconfig",
            ) from missing

    return overview.overview(
        listed(kinds.MACHINE, _NAMESPACE),
        listed(kinds.MACHINE_SET, _NAMESPACE),
        listed(kinds.NODE),
        listed(kinds.CSR),
        clock.wall(),
    )


def _live(client: clients.Client, clock: clocks.Clock) -> None:
    """Follow the cluster on the screen until the user has seen enough."""
    import logging

    from rich import console, live

    from moorage.machines import overview
    from moorage.machines.runtime import informer, kinds

    _looked(client, clock)  # says at once if there is no such cluster, or nobody to show it to
    # The caches tell of their troubles by logging; the screen is the table's, which says for itself that it is old.
    logging.getLogger("moorage").addHandler(logging.NullHandler())
    logging.getLogger("moorage").propagate = False
    screen = console.Console()
    caches = [
        informer.Informer(client, kinds.MACHINE, namespace=_NAMESPACE),
        informer.Informer(client, kinds.MACHINE_SET, namespace=_NAMESPACE),
        informer.Informer(client, kinds.NODE),
        informer.Informer(client, kinds.CSR),
    ]

    def draw() -> console.RenderableType:
        machines, sets, nodes, requests = (cache.list() for cache in caches)
        found = overview.overview(machines, sets, nodes, requests, clock.wall())
        return drawn(found, silence(caches), screen.width)

    for cache in caches:
        cache.start()
    try:
        for cache in caches:
            cache.wait_synced()
        with _silent_keys(), live.Live(console=screen, get_renderable=draw, refresh_per_second=_PER_SECOND):
            _until_interrupted()
    except KeyboardInterrupt:
        pass  # the user has seen enough
    finally:
        for cache in caches:
            cache.stop()


@contextlib.contextmanager
def _silent_keys() -> Iterator[None]:
    """What is typed meanwhile, Ctrl-C included, is not shown: it would push the table out of its place."""
    import termios

    if not sys.stdin.isatty():
        yield  # nobody types there
        return
    before = termios.tcgetattr(sys.stdin)
    silent = before.copy()
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def _until_interrupted() -> None:
    import threading

    # The system may give a signal to any thread; this one only hears of it when it wakes.
    never = threading.Event()
    while not never.wait(0.5):
        pass


def silence(caches: Sequence[informer.Informer]) -> float:
    """Seconds since the cluster was last heard of; 0 while it is."""
    return max((cache.silent_for for cache in caches), default=0.0)


def fitting(rows: Sequence[tuple[str, ...]], width: int) -> list[int]:
    """The columns that a screen of this width has room for: what a machine waits for is seen on every one."""
    left = list(range(len(HEADINGS)))
    for heading in ("", *_DISPENSABLE):
        left = [column for column in left if HEADINGS[column] != heading]
        if _taken(rows, left[:-1]) + _LEAST <= width:
            break
    return left


def _taken(rows: Sequence[tuple[str, ...]], columns: Sequence[int]) -> int:
    """Letters that these columns take, with the space behind each."""
    return sum(max(len(row[column]) for row in (HEADINGS, *rows)) + 1 for column in columns)


def _room_for_names(rows: Sequence[tuple[str, ...]], columns: Sequence[int], width: int) -> int | None:
    """Letters in a line for a machine's name on a screen that even the fewest columns do not fit; None on others."""
    if _taken(rows, columns[:-1]) + _LEAST <= width:
        return None
    others = [column for column in columns[:-1] if HEADINGS[column] != _NAME]
    return max(1, (width - _taken(rows, others) - 1) // 2)


def drawn(found: overview.Overview, silent: float = 0.0, width: int = 200) -> console.Group:
    """The table for a screen. What is shown after a long silence is old, and says so."""
    from rich import console, table, text

    from moorage.installer import durations

    rows = table.Table(box=None, pad_edge=False, expand=True)
    listed = [cells(row) for row in found.machines]
    columns = fitting(listed, width)
    room = _room_for_names(listed, columns, width)
    for heading in (HEADINGS[column] for column in columns):
        if room is not None and heading == _NAME:
            # In several lines, as names differ in their last letters.
            rows.add_column(heading, overflow="fold", max_width=room)
            continue
        is_last = heading == HEADINGS[-1]
        rows.add_column(heading, overflow="ellipsis", no_wrap=not is_last, ratio=1 if is_last else None)
    for row, words in zip(found.machines, listed, strict=True):
        style = "yellow" if row.why and row.phase not in _STYLES else _STYLES.get(row.phase, "")
        rows.add_row(*(text.Text(words[each], style=style if HEADINGS[each] == "PHASE" else "") for each in columns))
    above = [text.Text(set_line(each), style="bold") for each in found.sets]
    if silent > 10:
        above.append(text.Text(f"no word from the cluster for {durations.words(silent)}: this is old", style="red"))
    return console.Group(*above, rows if found.machines else text.Text("there are no machines"))
