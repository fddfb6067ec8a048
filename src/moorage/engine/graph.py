"""The shape of a flow: who needs whom, in what order, and whether a journal was written by the same shape.

Names and needs are checked before anything runs, so that a typing error costs a second and not half an installation.
The recorded shape is compared with today's: new resources are welcome, but a recorded one may not change or vanish
unnoticed, since its thing exists out there.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from moorage.engine import errors, resource

Needs = Mapping[str, Sequence[str]]
Things = Sequence[resource.Resource[Any]]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


def check(flow: str, things: Things) -> None:
    """Raise `InvalidGraph`, with all that is wrong, unless the resources make a graph."""
    names = [thing.name for thing in things]
    problems = [
        f"{name!r} is declared {names.count(name)} times" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    problems += [
        f"{name!r} is no name: letters, digits and . _ : / - only, at most 128"
        for name in names
        if not _NAME.fullmatch(name)
    ]
    for thing in things:
        for need in thing.needs:
            if need not in names:
                near = difflib.get_close_matches(need, names, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                problems.append(f"{thing.name!r} needs {need!r}, which is not in the flow{hint}")
    if not problems:
        circle = _cycle(needs_of(things))
        if circle:
            problems.append("these wait for each other: " + " → ".join(circle))
    if problems:
        raise errors.InvalidGraph(f"flow {flow!r} is not a graph: " + "; ".join(problems))


def needs_of(things: Things) -> dict[str, tuple[str, ...]]:
    """Who needs whom."""
    return {thing.name: tuple(dict.fromkeys(thing.needs)) for thing in things}


def reverse(needs: Needs) -> dict[str, tuple[str, ...]]:
    """The graph in which everything waits for those that need it: the order of removal."""
    found: dict[str, list[str]] = {name: [] for name in needs}
    for name, wanted in needs.items():
        for need in wanted:
            found[need].append(name)
    return {name: tuple(users) for name, users in found.items()}


def order(needs: Needs) -> list[str]:
    """All names, every one after what it needs; names caught in a cycle are left out."""
    missing = {name: len(wanted) for name, wanted in needs.items()}
    users = reverse(needs)
    ready = [name for name, count in missing.items() if not count]
    for name in ready:
        for user in users[name]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return ready


def _cycle(needs: Needs) -> list[str]:
    """The names of one cycle, the first repeated at the end; empty if there is none."""
    stuck = set(needs) - set(order(needs))
    if not stuck:
        return []
    # What is stuck may merely hang below a cycle; following needs that are stuck too must enter the cycle itself.
    trail = [min(stuck)]
    while trail.count(trail[-1]) == 1:
        trail.append(min(need for need in needs[trail[-1]] if need in stuck))
    circle = trail[trail.index(trail[-1]) :]
    return circle[::-1]


def above(names: Iterable[str], needs: Needs) -> set[str]:
    """The names and everything that directly or indirectly needs them."""
    users = reverse(needs)
    found: set[str] = set()
    waiting = [name for name in names if name in users]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += users[name]
    return found


def shape(things: Things) -> dict[str, object]:
    """The graph as the journal keeps it."""
    return {thing.name: {"kind": thing.kind, "needs": sorted(set(thing.needs))} for thing in things}


def changes(recorded: Mapping[str, object], today: Mapping[str, object], touched: Collection[str]) -> dict[str, str]:
    """Why each touched resource of the recorded graph is no longer what it was; empty if all are."""
    found: dict[str, str] = {}
    for name in sorted(touched):
        before, now = recorded.get(name), today.get(name)
        if before is None or before == now:
            continue
        if now is None:
            heirs = sorted(other for other in today if other not in recorded and today[other] == before)
            found[name] = f"{name} is gone" + (f" (renamed to {heirs[0]}?)" if len(heirs) == 1 else "")
        else:
            found[name] = f"{name} was {_words(before)} and is {_words(now)}"
    return found


def _words(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return repr(entry)
    needs = ", ".join(map(str, entry.get("needs", ()))) or "nothing"
    return f"a {entry.get('kind')} that needs {needs}"
