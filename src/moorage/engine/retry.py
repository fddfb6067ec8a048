"""Repeating what may work later, and waiting for what is not there yet.

Delays grow exponentially with jitter, follow the platform's Retry-After where there is one, and never reach past a
deadline; all of it on the flow's clock. Repetition happens here, inside a task: a TaskFlow retry controller would
revert and re-run the whole subflow for one lost packet.
"""

from __future__ import annotations

import dataclasses
import datetime
import email.utils
import random
from collections.abc import Callable
from typing import TypeVar

from moorage.engine import clock as clocks
from moorage.engine import errors

T = TypeVar("T")
OnRetry = Callable[[errors.PlatformFailure, float, int], None]

_chance = random.SystemRandom()


@dataclasses.dataclass(frozen=True)
class Backoff:
    """How long to wait before try 2, 3, …: ``first`` seconds, growing by ``factor`` up to ``most``.

    Each delay is shortened by a random part of at most ``jitter``, so that many clients refused together do not
    return together. A Retry-After is a floor: it is lengthened, never shortened, and only slightly.
    """

    first: float = 1.0
    factor: float = 2.0
    most: float = 60.0
    jitter: float = 0.5

    def delay(self, tries: int, retry_after: float | None = None, chance: Callable[[], float] | None = None) -> float:
        """Seconds to wait after ``tries`` failed tries; ``chance`` gives numbers in [0, 1)."""
        luck = (chance or _chance.random)()
        if retry_after is not None:
            return max(0.0, retry_after) * (1 + 0.1 * luck)
        # The exponent is bounded because a day of retries would overflow a float long before min() could help.
        grown = min(self.most, self.first * self.factor ** min(tries - 1, 64))
        return grown * (1 - self.jitter * luck)


def seconds_from(retry_after: str | None, now: datetime.datetime) -> float | None:
    """Read a Retry-After header, in seconds or as an HTTP date; None if there is none or it makes no sense.

    ``now`` is best taken from the same reply's Date header: the two then agree even if our clocks do not.
    """
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return max(0.0, (moment - now).total_seconds())


def classify(error: Exception) -> errors.PlatformFailure | None:
    """The platform failure an exception amounts to: a broken connection is `Ambiguous`; a bug is None."""
    if isinstance(error, errors.PlatformFailure):
        return error
    if isinstance(error, TimeoutError | ConnectionError):
        return errors.Ambiguous("the connection to the platform broke", words=str(error) or type(error).__name__)
    return None


def pause(
    failure: errors.PlatformFailure,
    tries: int,
    *,
    deadline: clocks.Deadline,
    backoff: Backoff,
    on_retry: OnRetry | None = None,
) -> None:
    """Wait before the next try; raise `DeadlineExceeded` at once if the deadline would pass meanwhile."""
    delay = backoff.delay(tries, failure.retry_after if isinstance(failure, errors.Transient) else None)
    if delay >= deadline.remaining():
        raise deadline.exceeded(resource=failure.resource, words=failure.told()) from failure
    if on_retry is not None:
        on_retry(failure, delay, tries)
    deadline.clock.sleep(delay)


def retry(
    call: Callable[[], T],
    *,
    deadline: clocks.Deadline,
    seconds: float | None = None,
    backoff: Backoff | None = None,
    on_retry: OnRetry | None = None,
) -> T:
    """Call until it works; for calls that may be repeated safely.

    `Transient`, `Ambiguous` and broken connections are repeated until ``seconds`` for this call or the stage's
    ``deadline`` are over; everything else is raised as it is.
    """
    limit = deadline if seconds is None else deadline.within(seconds)
    backoff = backoff or Backoff()
    tries = 0
    while True:
        tries += 1
        deadline.clock.check()
        try:
            return call()
        except (errors.Transient, errors.Ambiguous, TimeoutError, ConnectionError) as error:
            failure = classify(error)
            if failure is None:  # pragma: no cover - the except clause names exactly what classify knows
                raise
            pause(failure, tries, deadline=limit, backoff=backoff, on_retry=on_retry)


def poll(
    check: Callable[[], T | None],
    *,
    every: float,
    deadline: clocks.Deadline,
    backoff: Backoff | None = None,
    on_retry: OnRetry | None = None,
) -> T:
    """Check every so often until something other than None comes back; `DeadlineExceeded` when time is over."""
    while True:
        found = retry(check, deadline=deadline, backoff=backoff, on_retry=on_retry)
        if found is not None:
            return found
        if deadline.expired:
            raise deadline.exceeded()
        # The last look falls on the deadline itself, not up to a whole interval before it.
        deadline.clock.sleep(min(every, deadline.remaining()))
