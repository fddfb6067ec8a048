"""An instance that was there and is not found: when that is to be believed.

Lists lag, shards fail over, and credentials may be those of another place: one look that misses it proves nothing. So
the first is written down on the machine, where it outlives whoever looked, and counts only with a second one a while
later, by the word of the same platform. While the machine's node reports, neither does: an instance is at work there.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any, Final

from moorage.machines import conditions, machine_status, nodes, objects
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import errors, kinds

Object = Mapping[str, Any]

#: Cloud seconds for which an instance must have been missing until it counts as gone.
DOUBT: Final = 60.0
#: Until one whose node reports is looked for again: somebody has to see to the platform first.
AT_ODDS: Final = 120.0

_KIND, _REASON = conditions.INSTANCE_EXISTS, conditions.INSTANCE_MISSING
_IN_DOUBT: Final = "the instance is not found on the platform; it is looked for again before that is believed"
_TOLD_AT_ODDS: Final = (
    "the instance is not found on the platform, but its node {node} reports; "
    "see whether the platform's credentials are those of the cluster's own platform"
)


class Absences:
    """What was missed; shared by threads. ``source`` tells by whose word the platform answers at the moment."""

    def __init__(self, client: clients.Client, source: Callable[[], object]) -> None:
        self._client = client
        self._source = source
        #: By the machine's uid: who said so first, as far as this process was there.
        self._told_by: dict[str, object] = {}

    def miss(self, machine: Object, status: machine_status.Draft, now: datetime.datetime) -> float:
        """Note that the instance is not found. Returns for how long it is to be looked for yet; 0 if for no longer."""
        uid, source = objects.uid(machine), self._source()
        # New credentials may show another part of the platform, or another platform: they count anew.
        is_anew = self._told_by.get(uid, source) is not source
        self._told_by[uid] = source
        found = conditions.find(status.get("conditions"), _KIND) or {}
        since = None if is_anew else conditions.since(status.get("conditions"), _KIND, _REASON)
        if since is not None and found.get("status") == "False":
            return 0.0  # it has been given up for this already
        if since is None or since > now:  # the date was wrong, then or now: a wait for it might never end
            # Without the former one, which may say the same: what counts is the date.
            status["conditions"] = [each for each in status.get("conditions") or () if each.get("type") != _KIND]
            machine_status.set_condition(status, now, _KIND, "Unknown", _REASON, _IN_DOUBT)
            # A second more, as the moment is written down in whole ones.
            return DOUBT + 1.0
        if (rest := DOUBT - (now - since).total_seconds()) > 0:
            return rest + 1.0
        if not self._reports(machine):
            return 0.0
        told = _TOLD_AT_ODDS.format(node=objects.node_name(machine))
        machine_status.set_condition(status, now, _KIND, "Unknown", _REASON, told)
        return AT_ODDS

    def _reports(self, machine: Object) -> bool:
        """Whether its node is alive: then the platform is wrong, or another one, and all machines would be lost."""
        if not objects.node_name(machine):
            return False
        try:
            node = self._client.get(kinds.NODE, objects.node_name(machine))
        except errors.NotFound:
            return False
        is_its = objects.node_uid(machine) in ("", objects.uid(node))
        return is_its and not nodes.is_silent(node)

    def forget(self, machine: Object) -> None:
        """It is there, or nobody asks for it any more."""
        self._told_by.pop(objects.uid(machine), None)
