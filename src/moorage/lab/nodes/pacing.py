"""How often machines do what they do again and again, where cloud time runs fast or many machines share a process.

Times are the cloud's, as on real nodes, but never so short that the machines of a lab together ask for more than the
one processor that they share can answer. At the world's own speed nothing here makes a difference.
"""

from __future__ import annotations

import collections
import contextlib
import weakref
from collections.abc import Iterator

from moorage.lab import site as sites

LEASE_SECONDS, HEARTBEAT = 40, 10.0
_REPORT_SECONDS = 300.0

# However fast the cloud's time runs, a heart does not beat faster than this in real seconds; and all hearts together
# do not beat more often in one than the second number, though none need beat slower than a real one.
_FASTEST_HEARTBEAT = 1.0
_BEATS_PER_SECOND = 50.0
# Questions that machines repeat until they like the answer, of all together in a real second; and how many machines
# can be let in meanwhile.
_QUESTIONS_PER_SECOND = 100.0
_LET_IN_PER_SECOND = 10.0

_crowds: weakref.WeakKeyDictionary[sites.Site, collections.Counter[str]] = weakref.WeakKeyDictionary()


def heartbeat(site: sites.Site) -> float:
    """Cloud seconds between two renewals of a node's lease."""
    real = min(HEARTBEAT, max(_FASTEST_HEARTBEAT, len(site.instances) / _BEATS_PER_SECOND))
    return max(HEARTBEAT, real * site.clock.speed)


def report(site: sites.Site) -> float:
    """Cloud seconds between two reports of a status in which nothing has changed."""
    return max(_REPORT_SECONDS, 10 * heartbeat(site))


def silence(site: sites.Site, seconds: float) -> float:
    """Cloud seconds of silence that mean as much as ``seconds`` do where hearts beat as they should."""
    return seconds / HEARTBEAT * heartbeat(site)


def question(site: sites.Site, real_seconds: float, asking: int) -> float:
    """Cloud seconds before a question is asked again, where so many ask; ``real_seconds`` if they are few."""
    return max(real_seconds, asking / _QUESTIONS_PER_SECOND) * site.clock.speed


def patience(site: sites.Site, seconds: float, real_seconds: float) -> float:
    """Cloud seconds after which a machine gives up waiting to be let in: later where many wait with it."""
    return max(seconds, max(real_seconds, len(site.instances) / _LET_IN_PER_SECOND) * site.clock.speed)


@contextlib.contextmanager
def among(site: sites.Site, kind: str) -> Iterator[None]:
    """Be one of those who do the same thing again and again: see `turn`."""
    crowd = _crowds.setdefault(site, collections.Counter())
    crowd[kind] += 1
    try:
        yield
    finally:
        crowd[kind] -= 1


def turn(site: sites.Site, kind: str, seconds: float, real_seconds: float, per_second: float) -> float:
    """Cloud seconds until it is one's turn again: ``seconds``, if that is no more than all of a kind can do.

    Nobody has a turn more often than once in ``real_seconds``, and all of that kind together not more often than
    ``per_second`` in a real second.
    """
    many = _crowds.get(site, collections.Counter())[kind]
    return max(seconds, max(real_seconds, many / per_second) * site.clock.speed)
