"""What can go wrong while a flow runs, in types the engine acts on.

A platform's client translates every reply it does not like into one `PlatformFailure`; the type decides whether the
engine waits and repeats, looks again, or stops. The platform's own words travel along unchanged to the person.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from moorage import errors

GO_ON = "correct the cause, then run the same command again: it goes on from here"


def _counted(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return f"{len(names)} ({shown}{', …' if len(names) > 8 else ''})" if names else "0"


class PlatformFailure(errors.MoorageError):
    """The platform did not do what was asked. ``words`` is what it said itself, ``resource`` what it was about."""

    exit_code = errors.INFRASTRUCTURE

    def __init__(self, message: str, *, resource: str = "", words: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.resource = resource
        self.words = words

    def told(self) -> str:
        """The message with the platform's own words behind it, if they say more."""
        return f"{self.message}: {self.words}" if self.words and self.words not in self.message else self.message


class Transient(PlatformFailure):
    """It may work later: overload, rate limit, a lock held by another operation. ``retry_after`` is in seconds."""

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        resource: str = "",
        words: str = "",
        remedy: str = "",
    ) -> None:
        super().__init__(message, resource=resource, words=words, remedy=remedy)
        self.retry_after = retry_after


class Ambiguous(PlatformFailure):
    """No one can tell whether the call took effect: the connection broke, or time ran out before the reply."""


class Terminal(PlatformFailure):
    """It will never work as asked: a refused value, an exhausted quota, a resource in an error state."""


class Exhausted(Terminal):
    """There is not enough of something: hosts, space. An install ends with it; a controller waits for more."""

    #: Seconds until it is worth a call to ask again.
    retry_after: float = 60.0


class NotFound(PlatformFailure):
    """What was asked for does not exist (or not yet, or no longer)."""


class Conflict(PlatformFailure):
    """Something is in the way: a thing of that name, or the state of the thing itself."""


class AlreadyExists(Conflict):
    """A thing of that name exists. If it bears our mark the next look-up finds it and it is adopted."""


class Unauthorized(PlatformFailure):
    """The credentials are refused, or may not do this."""


class Unusable(Unauthorized):
    """What the credentials say of the platform is wrong: its address, or who vouches for it. Nobody was asked."""


class DeadlineExceeded(PlatformFailure):
    """The time allowed is over. ``words`` is the last thing the platform said meanwhile, if anything."""


class Interrupted(errors.MoorageError):
    """The user asked to stop. What was under way is journaled."""

    exit_code = errors.INTERRUPT

    def __init__(self, message: str = "stopped at your request", *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy or "run the same command again: it goes on from here")


class InvalidGraph(errors.MoorageError):
    """The resources of a flow do not make a graph: a duplicate name, an unknown need, a cycle."""


class GraphChanged(errors.MoorageError):
    """The journal records resources that this flow no longer has, or has with another shape."""

    def __init__(self, flow: str, changes: Sequence[str]) -> None:
        lines = "; ".join(changes)
        super().__init__(
            f"the journal of flow {flow!r} was written by a different graph: {lines}",
            remedy="destroy the cluster and start again, run the version that wrote the journal, "
            "or accept the changes: what exists is then looked up again and adopted",
        )
        self.flow = flow
        self.changes = tuple(changes)


class JournalError(errors.StoreError):
    """The journal cannot be read or written."""


class SecretInJournal(errors.MoorageError):
    """A resource tried to record a secret. The journal keeps ids and addresses; secrets stay in the asset store."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where} holds a secret, and secrets are never journaled",
            remedy="record an id or a path in the output, and fetch the secret again where it is used",
        )
        self.where = where


class Locked(errors.StoreError):
    """Another process works on the same directory."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """One resource's failure, as shown and as journaled."""

    resource: str
    kind: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.resource} ({self.kind}): {self.message}"


class FlowFailed(errors.MoorageError):
    """The flow stopped. Says what failed, what exists, what never started and what a roll-back could not remove."""

    exit_code = errors.INFRASTRUCTURE

    def __init__(
        self,
        flow: str,
        failures: Sequence[Failure],
        *,
        exists: Sequence[str] = (),
        unfinished: Sequence[str] = (),
        never_started: Sequence[str] = (),
        rolled_back: bool = False,
        left: Sequence[Failure] = (),
    ) -> None:
        self.flow = flow
        self.failures = tuple(failures)
        self.exists = tuple(exists)
        self.unfinished = tuple(unfinished)
        self.never_started = tuple(never_started)
        self.rolled_back = rolled_back
        self.left = tuple(left)
        super().__init__(self._sentence(), remedy=self._next())

    def _sentence(self) -> str:
        what = "; ".join(map(str, self.failures))
        if self.left:
            return f"{what}. Rolled back, but these could not be removed: {'; '.join(map(str, self.left))}"
        if self.rolled_back:
            return f"{what}. Rolled back: nothing is left"
        state = f"{_counted(self.exists)} exist, {_counted(self.never_started)} never started"
        return f"{what}. {state}; nothing was removed"

    def _next(self) -> str:
        if self.left:
            return "destroy the cluster: it finds what is left by its mark"
        causes = [failure.remedy for failure in self.failures if failure.remedy]
        after = "run the same command again to start afresh" if self.rolled_back else GO_ON
        return "; ".join([*dict.fromkeys(causes), after])


class Halted(Exception):  # noqa: N818 - not an error: the body has said already why it ends
    """Raised by a body that ended without an output, so that nothing that needs it starts.

    It carries no words: TaskFlow journals what is raised, and the platform's words may hold what must not be kept.
    """
