"""User data for new machines: what the Secret that a machine's spec names has in it.

Machines of one set share a Secret, and a set that is scaled up by a hundred asks for it a hundred times at once: what
was read is kept for a moment. A Secret that is missing is waited for; it may be written after the machine.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Mapping
from typing import Any, Final

from moorage.engine import clock as clocks
from moorage.engine import errors
from moorage.machines import objects
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import errors as api_errors
from moorage.machines.runtime import kinds

KEY: Final = "userData"
#: Cloud seconds for which what was read is used again.
KEPT: Final = 30.0


class UserData:
    """Reads user data; shared by threads."""

    def __init__(self, client: clients.Client, clock: clocks.Clock) -> None:
        self._client = client
        self._clock = clock
        self._turn = threading.Lock()
        self._read: dict[tuple[str, str], tuple[float, bytes]] = {}

    def of(self, machine: Mapping[str, Any]) -> bytes:
        """A machine's user data; empty if its spec names no Secret, `Transient` if the Secret does not have it yet."""
        name = objects.user_data_secret(machine)
        if not name:
            return b""
        place = (objects.namespace(machine), name)
        with self._turn:
            at, found = self._read.get(place, (-KEPT, b""))
            if self._clock.now() - at >= KEPT or not found:
                found = self._get(*place)
                self._read[place] = (self._clock.now(), found)
            return found

    def _get(self, namespace: str, name: str) -> bytes:
        try:
            secret = self._client.get(kinds.SECRET, name, namespace)
        except api_errors.NotFound:
            raise errors.Transient(f"there is no Secret {name} with user data in {namespace}", resource=name) from None
        try:
            found = base64.b64decode((secret.get("data") or {}).get(KEY) or "", validate=True)
        except binascii.Error:
            found = b""
        if not found:
            raise errors.Transient(f"Secret {name} in {namespace} has no {KEY}", resource=name)
        return found
