"""Tokens that clients get for a key and that run out: on the cloud's clock, or all at once when somebody orders it."""

from __future__ import annotations

import hmac
import secrets

from moorage.engine import clock as clocks

SECONDS = 3600.0


def same(shown: str, key: str) -> bool:
    """Whether a key is the right one; how long the answer takes does not tell how much of it is."""
    return hmac.compare_digest(shown.encode(errors="replace"), key.encode())


class Sessions:
    """The tokens of one API. ``key`` is what a client shows to get one."""

    def __init__(self, clock: clocks.Clock, key: str, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._clock = clock
        self._key = key
        self._ends: dict[str, float] = {}

    def open(self, key: str) -> str | None:
        """A new token, if the key is right."""
        if not same(key, self._key):
            return None
        self._forget_ended()
        token = secrets.token_urlsafe(24)
        self._ends[token] = self._clock.now() + self.seconds
        return token

    def valid(self, token: str) -> bool:
        return self._ends.get(token, 0.0) > self._clock.now()

    def expire(self) -> int:
        """End every token at once; how many there were."""
        self._forget_ended()
        count = len(self._ends)
        self._ends.clear()
        return count

    def _forget_ended(self) -> None:
        now = self._clock.now()
        self._ends = {token: end for token, end in self._ends.items() if end > now}
