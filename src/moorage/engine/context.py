"""What the engine gives to a resource's methods: the clock, the deadline, and a way to say what it waits for.

Everything that takes time inside a resource goes through here, so it can be interrupted, sped up, journaled and
shown. One context belongs to one resource in one attempt, and to one thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from moorage.engine import clock as clocks
from moorage.engine import errors, progress, retry

T = TypeVar("T")


def _unheard(_event: progress.Event) -> None:
    """Where no one listens, as in a platform's own unit tests."""


class Context:
    """The surroundings of one resource while it is brought up or taken down."""

    def __init__(
        self,
        *,
        resource: str,
        clock: clocks.Clock,
        deadline: clocks.Deadline,
        flow: str = "",
        intended: bool = False,
        created_id: str | None = None,
        backoff: retry.Backoff | None = None,
        emit: progress.Listener = _unheard,
    ) -> None:
        self.resource = resource
        self.clock = clock
        self.deadline = deadline
        #: True if some attempt, this one or an earlier one, may have sent the create call already.
        self.intended = intended
        #: What the platform called the thing when it was created, if it said so, in this attempt or an earlier one.
        self.created_id = created_id
        #: True while the first look after a create call of this attempt that succeeded is still to come.
        self.fresh = False
        self.backoff = backoff or retry.Backoff()
        self._flow = flow
        self._emit = emit
        self._waiting_for = ""

    def waiting(self, what: str) -> None:
        """Say what is being waited for; saying the same thing again costs nothing."""
        if what != self._waiting_for:
            self._waiting_for = what
            self._emit(progress.Waiting(self._flow, self.resource, self.clock.wall(), what))

    def sleep(self, seconds: float) -> None:
        """Let cloud seconds pass, but not beyond the deadline: then raise `DeadlineExceeded`."""
        if seconds > self.deadline.remaining():
            raise self.deadline.exceeded(resource=self.resource)
        self.clock.sleep(seconds)

    def retry(self, call: Callable[[], T], *, seconds: float | None = None) -> T:
        """Call until it works, for at most ``seconds``; only for calls that may be repeated safely."""
        return retry.retry(
            call, deadline=self.deadline, seconds=seconds, backoff=self.backoff, on_retry=self.report_retry
        )

    def poll(self, check: Callable[[], T | None], *, what: str, every: float = 5.0, seconds: float | None = None) -> T:
        """Say what is waited for, then check until something other than None comes back."""
        self.waiting(what)
        limit = self.deadline if seconds is None else self.deadline.within(seconds)
        limit = dataclasses.replace(limit, what=f"waiting for {what}")
        return retry.poll(check, every=every, deadline=limit, backoff=self.backoff, on_retry=self.report_retry)

    def report_retry(self, failure: errors.PlatformFailure, delay: float, tries: int) -> None:
        """Tell of a failed try that will be repeated."""
        self._waiting_for = ""
        self._emit(
            progress.Retrying(self._flow, self.resource, self.clock.wall(), failure.told(), delay=delay, tries=tries)
        )

    def report(self, event: Callable[..., progress.Event], **details: object) -> None:
        """Tell of an event of this resource, now."""
        self._emit(event(self._flow, self.resource, self.clock.wall(), **details))
