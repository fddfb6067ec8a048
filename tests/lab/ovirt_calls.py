"""What was asked of the lab's engine, counted and judged: by whom, what about, and whether anybody was impatient.

Every program tells the engine who it is, and which process: the installer and the controllers of a cluster work on the
same machines at the same time, and each is held to account for its own calls.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
#: Cloud seconds in which the engine itself learns nothing new about a thing, by what is looked at.
PACE = {
    rf"/vms/{_ID}\?": 5.0,
    rf"/disks/{_ID}$": 5.0,
    rf"/templates/{_ID}$": 5.0,
    rf"/imagetransfers/{_ID}$": 3.0,
    r"/jobs\?": 10.0,
}
INSTALLER, CONTROLLERS = "moorage-installer", "moorage-machine-api"
_AGENT = re.compile(r"(moorage-[a-z-]+)/\S+ \(\S+; (pid \d+)\) ")


@dataclasses.dataclass(frozen=True)
class Call:
    """One call to the engine."""

    at: datetime.datetime
    method: str
    path: str
    status: int | None
    #: Cloud seconds until it was answered.
    seconds: float
    #: What the caller said it is, and which process of that.
    program: str = ""
    process: str = ""

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S} {self.program}, {self.process}: {self.method} {self.path} {self.status}"


def read(recorded: Iterable[Mapping[str, Any]]) -> list[Call]:
    """The lab's records, in the order in which the calls were made."""
    found = [
        Call(
            datetime.datetime.fromisoformat(each["at"]),
            each["method"],
            each["path"].removeprefix("/ovirt-engine/api"),
            each["status"],
            each["seconds"],
            *_caller(each["agent"]),
        )
        for each in recorded
    ]
    return sorted(found, key=lambda call: call.at)


def _caller(agent: str) -> tuple[str, str]:
    found = _AGENT.match(agent)
    assert found, f"somebody who does not say who it is: {agent!r}"
    return found[1], found[2]


def by_process(calls: Iterable[Call], program: str) -> dict[str, list[Call]]:
    """The calls of each process of a program, in order."""
    found: dict[str, list[Call]] = collections.defaultdict(list)
    for call in calls:
        if call.program == program:
            found[call.process].append(call)
    return dict(found)


def impatient(calls: Sequence[Call], watchers: int = 1) -> list[str]:
    """Looks at a thing that came before the engine could know more about it, and nobody had changed it meanwhile.

    Several ``watchers`` in one process that do not know of each other may each look once in that time.
    """
    problems = []
    for pattern, pace in PACE.items():
        looked_at = [call for call in calls if re.search(pattern, call.path)]
        for path in {call.path for call in looked_at if call.method == "GET"}:
            thing = path.partition("?")[0]
            about = [call for call in calls if call.path == path or (call.method != "GET" and thing in call.path)]
            for at, after in enumerate(about[watchers:]):
                before, looks = about[at], about[at : at + watchers + 1]
                gap = (after.at - before.at).total_seconds() - before.seconds
                if all(each.method == "GET" for each in looks) and gap < pace * 0.95:
                    problems.append(f"{after}: only {gap:.1f} s after the last look")
    return problems


def repeated_writes(calls: Iterable[Call]) -> list[str]:
    """Calls that were obeyed twice, though they name what they change, so that once is enough."""
    done = collections.Counter(
        f"{call.method} {call.path}"
        for call in calls
        if call.method != "GET"
        and call.status is not None
        and call.status < 300
        and (re.search(rf"{_ID}($|\?|/(start|stop|finalize)$|/diskattachments|/nics)", call.path))
    )
    return [f"{call}: {count} times" for call, count in done.items() if count > 1]


def seconds(calls: Sequence[Call]) -> float:
    """Cloud seconds from the first call to the last."""
    return (calls[-1].at - calls[0].at).total_seconds()


def sign_ins(calls: Iterable[Call]) -> tuple[int, int]:
    """How often somebody signed in, and out."""
    paths = [call.path for call in calls]
    return (
        sum("/sso/oauth/token" in path for path in paths),
        sum("/services/sso-logout" in path for path in paths),
    )


def per_machine(calls: Iterable[Call], machines: Mapping[str, str]) -> dict[str, int]:
    """How many calls were about each machine alone, by name; ``machines`` gives their ids."""
    found = dict.fromkeys(machines, 0)
    for call in calls:
        for name, identity in machines.items():
            found[name] += identity in call.path or f"%22{name}%22" in call.path or f"={name}-vm" in call.path
    return found
