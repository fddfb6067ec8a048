"""`moorage machines`: a cluster's machines as they are; on a terminal redrawn as they change, until Ctrl-C.

Anywhere else, and with ``--once``, it is a plain table that is printed once; ``-o json`` is for scripts.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from moorage.cli import cluster_access, talk

if TYPE_CHECKING:
    from rich import console

    from moorage.engine import clock as clocks
    from moorage.machines import overview
    from moorage.machines.runtime import client as clients
    from moorage.machines.runtime import informer

HEADINGS = ("SET", "MACHINE", "PHASE", "NODE", "INSTANCE", "AGE", "WAITS FOR")
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
    return (row.set or "-", row.machine, row.phase or "-", row.node or "-", row.instance or "-", age, row.why)


def _looked(client: clients.Client, clock: clocks.Clock) -> overview.Overview:
    """One look at everything."""
    from moorage.machines import overview
    from moorage.machines.runtime import kinds

    def listed(kind: kinds.Kind, namespace: str = "") -> list[dict[str, Any]]:
        return client.list(kind, namespace)[0]

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

    from rich import live

    from moorage.machines import overview
    from moorage.machines.runtime import informer, kinds

    _looked(client, clock)  # says at once if there is no such cluster, or nobody to show it to
    # The caches tell of their troubles by logging; the screen is the table's, which says for itself that it is old.
    logging.getLogger("moorage").addHandler(logging.NullHandler())
    logging.getLogger("moorage").propagate = False
    caches = [
        informer.Informer(client, kinds.MACHINE, namespace=_NAMESPACE),
        informer.Informer(client, kinds.MACHINE_SET, namespace=_NAMESPACE),
        informer.Informer(client, kinds.NODE),
        informer.Informer(client, kinds.CSR),
    ]

    def draw() -> console.RenderableType:
        machines, sets, nodes, requests = (cache.list() for cache in caches)
        return drawn(overview.overview(machines, sets, nodes, requests, clock.wall()), silence(caches))

    for cache in caches:
        cache.start()
    try:
        for cache in caches:
            cache.wait_synced()
        with live.Live(get_renderable=draw, refresh_per_second=_PER_SECOND, screen=False):
            _until_interrupted()
    except KeyboardInterrupt:
        pass  # the user has seen enough
    finally:
        for cache in caches:
            cache.stop()


def _until_interrupted() -> None:
    import threading

    threading.Event().wait()


def silence(caches: Sequence[informer.Informer]) -> float:
    """Seconds since the cluster was last heard of; 0 while it is."""
    return max((cache.silent_for for cache in caches), default=0.0)


def drawn(found: overview.Overview, silent: float = 0.0) -> console.Group:
    """The table for a screen. What is shown after a long silence is old, and says so."""
    from rich import console, table, text

    from moorage.installer import durations

    rows = table.Table(box=None, pad_edge=False, expand=True)
    for heading in HEADINGS:
        is_last = heading == HEADINGS[-1]
        rows.add_column(heading, overflow="ellipsis", no_wrap=not is_last, ratio=1 if is_last else None)
    for row in found.machines:
        style = "yellow" if row.why and row.phase not in _STYLES else _STYLES.get(row.phase, "")
        rows.add_row(*(text.Text(cell, style=style if number == 2 else "") for number, cell in enumerate(cells(row))))
    above = [text.Text(set_line(each), style="bold") for each in found.sets]
    if silent > 10:
        above.append(text.Text(f"no word from the cluster for {durations.words(silent)}: this is old", style="red"))
    return console.Group(*above, rows if found.machines else text.Text("there are no machines"))
