"""The agent of a node: looks at the cluster, renders, and lets programs know; with patience, and without surprises.

What it sees is believed when it has stayed so for a while (`steady`). While the API does not answer, the last good view
stays in force. A node that is new waits with keepalived until the others know it as a peer: before that it would hear
no adverts, take itself for the only one, and answer for addresses that another node holds.
"""

from __future__ import annotations

import datetime
import hashlib
import subprocess
from collections.abc import Callable
from typing import Any

from moorage import errors
from moorage.engine import clock as clocks
from moorage.network import cluster_view, host, programs, rendering, settings, steady, view

Say = Callable[[str], None]

LOOK_SECONDS = 10.0
SIGHTINGS, STEADY_SECONDS = 3, 20.0
# Others see a new node as late as it sees itself plus one look, and take as long to believe it.
JOIN_SECONDS = 30.0
RETRY_SECONDS = 60.0

TROUBLE = (OSError, ValueError, subprocess.SubprocessError, errors.MoorageError)
"""What may happen on a node at any time, and must not end the agent."""


class Agent:
    """The view in force, and the files that follow from it. ``step`` is called again and again."""

    seconds = LOOK_SECONDS

    def __init__(self, wanted: settings.Settings, role: str, node: host.Host, clock: clocks.Clock, say: Say) -> None:
        self._wanted = wanted
        self._role = role
        self._node = node
        self._clock = clock
        self._say = say
        self._view = steady.Steady(node.known_view(), sightings=SIGHTINGS, seconds=STEADY_SECONDS)
        self._begun = False
        self._unanswered: str | None = None
        self._refused: dict[str, str] = {}
        self._rendered: dict[str, dict[str, str]] = {}
        self._again_at = 0.0
        self._member_since: float | None = None

    @property
    def in_force(self) -> view.View | None:
        """The view that the files follow."""
        return self._view.value

    def step(self) -> None:
        before = self._view.value
        seen = self._look()
        if seen is not None:
            now = self._clock.now()
            if self._view.saw(seen, now):
                self._apply(seen, changes(before, seen))
                self._node.keep_view(seen)
            elif self._view.value is not None and (not self._begun or (self._refused and now >= self._again_at)):
                self._apply(self._view.value, "the agent began" if not self._begun else "refused before")
            self._begun = True
            self._join()
        self._node.keep_status(self.status())

    def end(self) -> None:
        """Files stay as they are."""

    # --- looking ---

    def _look(self) -> view.View | None:
        """What is seen now; what cannot be seen is as it was. None while the node does not even know its address."""
        known = self._view.value
        me = self._node.myself(self._wanted) or (known.me if known else None)
        if me is None:
            self._answered(f"no address in {', '.join(self._wanted.machine_networks) or 'any network'} yet")
            return None
        try:
            nodes = self._node.nodes(self._wanted, self._role)
            self._answered("")
        except cluster_view.Unanswered as problem:
            self._answered(str(problem))
            nodes = known.nodes if known else ()
        return view.View(me, nodes, self._node.resolvers() or (known.resolvers if known else ()))

    def _answered(self, why_not: str) -> None:
        if why_not and not self._unanswered:
            self._say(f"the nodes of the cluster cannot be seen, the last good view stays: {why_not}")
        elif not why_not and self._unanswered:
            self._say("the nodes of the cluster can be seen again")
        self._unanswered = why_not

    # --- files ---

    def _apply(self, seen: view.View, why: str) -> None:
        """Bring the files to what follows from a view, check scripts first: keepalived's own test looks for them."""
        found = rendering.files(self._wanted, self._role, seen)
        for path in sorted(found, key=lambda each: not each.endswith(".sh")):
            if self._node.text(path) != found[path]:
                self._replace(path, found[path], why)
            else:
                self._refused.pop(path, None)
                self._rendered.setdefault(path, _fact(found[path], "as it was", self._clock.wall()))
        self._again_at = self._clock.now() + RETRY_SECONDS

    def _replace(self, path: str, text: str, why: str) -> None:
        program = programs.PROGRAMS.get(path)
        if program is not None and (objection := self._node.objection(program, text)):
            if self._refused.get(path) != objection:
                self._say(f"{path}: {program.name} refuses the new config, the old one stays: {objection}")
            self._refused[path] = objection
            return
        self._refused.pop(path, None)
        self._node.write(path, text, 0o755 if path.endswith(".sh") else 0o644)
        self._rendered[path] = _fact(text, why, self._clock.wall())
        told = ""
        if program is not None:
            told = f", {program.name} told" if self._node.reload(program) else f", {program.name} does not run"
        self._say(f"{path}: written{told} ({why})")

    # --- taking part ---

    def begin(self) -> None:
        """Before keepalived starts for the first time since boot: may it?"""
        if self._role == view.BOOTSTRAP:
            return
        if _member(self._view.value):
            self._node.resume()
        else:
            self._node.halt("waits until the other nodes know this one")
            self._say("keepalived: waits until the other nodes know this one")

    def _join(self) -> None:
        if self._role == view.BOOTSTRAP or not self._node.halted:
            return
        if not _member(self._view.value):
            self._member_since = None
            return
        now = self._clock.now()
        if self._member_since is None:
            self._member_since = now
        if now - self._member_since >= JOIN_SECONDS:
            self._node.resume()
            self._say("keepalived: may start, the other nodes know this one")

    # --- telling ---

    def status(self) -> dict[str, Any]:
        """All of it, as plain data."""
        seen = self._view.value
        return {
            "role": self._role,
            "at": _stamp(self._clock.wall()),
            "view": seen.to_data() if seen else None,
            "pending": self._view.pending,
            "cluster": {"answers": self._unanswered == "", "why": self._unanswered or ""},
            "files": self._rendered,
            "refused": self._refused,
            "keepalived": {"runs": self._node.runs(programs.KEEPALIVED), "halted": self._node.halted_why()},
            "redirect": self._node.redirected,
        }


def changes(before: view.View | None, after: view.View) -> str:
    """The difference between two views in a person's words."""
    if before is None:
        return "first view"
    words = []
    old, new = {each.name: each for each in before.nodes}, {each.name: each for each in after.nodes}
    for names, what in ((new.keys() - old.keys(), "new"), (old.keys() - new.keys(), "gone")):
        if names:
            words.append(f"{what}: {', '.join(sorted(names))}")
    if other := sorted(name for name in new.keys() & old.keys() if new[name] != old[name]):
        words.append(f"changed: {', '.join(other)}")
    if before.me != after.me:
        words.append(f"this node is {after.me.address} on {after.me.interface}")
    if before.resolvers != after.resolvers:
        words.append(f"resolvers: {', '.join(after.resolvers) or 'none'}")
    return "; ".join(words)


def _member(seen: view.View | None) -> bool:
    return seen is not None and any(each.name == seen.me.name for each in seen.nodes)


def _fact(text: str, why: str, at: datetime.datetime) -> dict[str, str]:
    return {"sha256": hashlib.sha256(text.encode()).hexdigest(), "why": why, "at": _stamp(at)}


def _stamp(moment: datetime.datetime) -> str:
    return moment.isoformat(timespec="seconds")
