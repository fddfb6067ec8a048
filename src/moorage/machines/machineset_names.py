"""What the next machine of a set is called.

The name follows from the set and from the machines that it has and had: whoever has seen the same comes to the same
name. So a create whose reply was lost, or that is still on its way while another process takes over, is not made twice:
the second finds the name taken. A set that has changed, or has other machines, gives other names, so that a new machine
is not mistaken for one that was there before.
"""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from moorage.machines import objects

Object = Mapping[str, Any]

# As Kubernetes' own: no vowels, so that no word comes out, and nothing that looks like something else.
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX: Final = 5
#: The name becomes the node's host name.
_LONGEST: Final = 63


@dataclasses.dataclass(frozen=True)
class Crew:
    """The machines of a set as a sum that does not depend on their order and costs nothing to add to."""

    total: int = 0

    @classmethod
    def of(cls, machines: Iterable[Object]) -> Crew:
        found = cls()
        for machine in machines:
            found = found.joined_by(machine)
        return found

    def joined_by(self, machine: Object) -> Crew:
        return Crew(self.total ^ _number(objects.uid(machine)))

    def together_with(self, others: Crew) -> Crew:
        """Both, where none is in both."""
        return Crew(self.total ^ others.total)


class Departed:
    """The machines that were seen to go, by the uid of their set. Shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._crews: dict[str, Crew] = {}

    def note(self, set_uid: str, machine: Object) -> None:
        with self._lock:
            self._crews[set_uid] = self._crews.get(set_uid, Crew()).joined_by(machine)

    def of(self, set_uid: str) -> Crew:
        with self._lock:
            return self._crews.get(set_uid, Crew())

    def forget(self, set_uid: str) -> None:
        """The set is gone."""
        with self._lock:
            self._crews.pop(set_uid, None)


def next_name(machine_set: Object, crew: Crew, attempt: int = 0) -> str:
    """The name of the machine to be made next; ``attempt`` counts those that turned out to be somebody else's."""
    meta = objects.metadata(machine_set)
    number = _number(meta.get("uid"), meta.get("generation"), crew.total, attempt)
    letters = ""
    for _ in range(_SUFFIX):
        number, place = divmod(number, len(_LETTERS))
        letters += _LETTERS[place]
    stem = objects.name(machine_set)[: _LONGEST - _SUFFIX - 1]
    return f"{stem}-{letters}"


def _number(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest(), "big")
