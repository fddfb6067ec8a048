"""Who may act: of several processes the one that holds a Lease, and only as long as it knows that it does.

Every candidate writes its name into the Lease when nobody has renewed it for its duration, as seen on the candidate's
own clock; the server lets one writer through. Who leads renews it, and trusts itself for less time than the others
wait: `Leading.check` compares the clock with the last renewal that surely succeeded, so that a process which was
stopped and goes on later knows at once, before any thread of it has had time to find out.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import logging
import threading
from collections.abc import Callable

from moorage.engine import clock as clocks
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import errors, kinds, metrics, pauses
from moorage.machines.runtime.errors import NotLeader as NotLeader

# Cloud seconds, as OpenShift's operators have them: a Lease outlives an API server that restarts.
DURATION, RENEW, RETRY = 137.0, 107.0, 26.0
# The least real seconds that a Lease lasts, however fast the clock runs: to renew it takes two calls, each of which may
# take seconds where a whole cluster lives on one busy machine. A leader that loses it for that reason ends and begins
# anew, which is right, and helps nobody.
SHORTEST = 10.0

_log = logging.getLogger(__name__)


class Leading:
    """The leadership of this process, from when it was won on."""

    def __init__(self, clock: clocks.Clock, trusted: float, renewed: float) -> None:
        self._clock = clock
        self._trusted = trusted
        self._renewed = renewed
        self._why = "its lease was not renewed in time"
        # Set when it is known to be over; it may be over before.
        self.lost = threading.Event()

    def check(self) -> None:
        """Raise `NotLeader` unless this process surely leads: to be called before each write to a platform."""
        if self.lost.is_set() or self._clock.now() - self._renewed >= self._trusted:
            self.lost.set()
            raise NotLeader(f"this process leads no longer: {self._why}")

    def end(self, why: str) -> None:
        """Lead no longer, whatever the lease says."""
        if not self.lost.is_set():
            self._why = why
            self.lost.set()

    @property
    def remaining(self) -> float:
        """Cloud seconds for which it is still sure."""
        return 0.0 if self.lost.is_set() else max(0.0, self._renewed + self._trusted - self._clock.now())

    def renewed(self, began: float) -> None:
        """A renewal that was sent at ``began`` has succeeded. What was lost meanwhile stays lost."""
        self.check()
        self._renewed = began


class Always:
    """The leadership of a process that is alone by its operator's word, until it ends it itself."""

    def __init__(self) -> None:
        self._over = ""

    def check(self) -> None:
        """Nothing while it lasts: there is nobody else."""
        if self._over:
            raise NotLeader(f"this process leads no longer: {self._over}")

    def end(self, why: str) -> None:
        self._over = why


@dataclasses.dataclass(frozen=True)
class _Seen:
    """A Lease as this process saw it first with that version, and when."""

    lease: clients.Object
    at: float

    @property
    def version(self) -> str:
        return str(self.lease["metadata"]["resourceVersion"])

    @property
    def holder(self) -> str:
        return str(self.lease["spec"].get("holderIdentity") or "")

    @property
    def duration(self) -> float:
        return float(self.lease["spec"].get("leaseDurationSeconds") or 0)


class Election:
    """A candidate. ``identity`` must be its alone; the three times are in cloud seconds and grow together if the clock
    is so fast that a lease would last for less than ``shortest`` real seconds."""

    def __init__(
        self,
        client: clients.Client,
        name: str,
        namespace: str,
        identity: str,
        clock: clocks.Clock,
        duration: float = DURATION,
        renew: float = RENEW,
        retry: float = RETRY,
        *,
        shortest: float = SHORTEST,
    ) -> None:
        if not retry < renew < duration:
            raise ValueError("a lease is retried before it must be renewed, and renewed before it is over")
        longer = max(1.0, shortest * clock.speed / duration)
        self.identity = identity
        self.duration, self.renew, self.retry = duration * longer, renew * longer, retry * longer
        self._client = client
        self._clock = clock
        self._name = name
        self._namespace = namespace
        self._seen: _Seen | None = None
        self._gauge = metrics.LEADING.labels(name)
        self._words = ""

    def run(self, lead: Callable[[Leading], None], stop: threading.Event) -> None:
        """Wait to be elected, then ``lead``, which has to return soon after ``leading.lost`` or ``stop`` is set.

        Returns after that, with the lease given back; raises `NotLeader` if leadership was lost or ended by ``lead``,
        for the process to end and begin anew. The lease ends by itself then.
        """
        leading = self._elected(stop)
        if leading is None:
            return
        _log.info("%s leads by the lease %s/%s", self.identity, self._namespace, self._name)
        self._gauge.set(1)
        ended = threading.Event()
        renewing = threading.Thread(target=self._keep_on, args=(leading, ended), name="lease", daemon=True)
        renewing.start()
        try:
            lead(leading)
        finally:
            ended.set()
            self._gauge.set(0)
        leading.check()
        # A renewal under way must not come after the release.
        renewing.join()
        leading.end("it has given its lease back")
        self._release()

    def stand(self) -> Leading | None:
        """Try once to be elected."""
        began = self._clock.now()
        # Trusted from before the call: the server may have written it then.
        return Leading(self._clock, self.renew, began) if self._tried() else None

    def keep(self, leading: Leading) -> None:
        """Try once to renew; raise `NotLeader` if it is known to be too late."""
        began = self._clock.now()
        if self._tried():
            leading.renewed(began)
        elif self._seen is not None and self._seen.holder != self.identity:
            leading.lost.set()
        leading.check()

    def _elected(self, stop: threading.Event) -> Leading | None:
        told = ""
        while not stop.is_set():
            leading = self.stand()
            if leading is not None:
                return leading
            holder = self._seen.holder if self._seen is not None else ""
            if holder not in ("", told):
                told = holder
                _log.info("%s waits: %s leads by the lease %s/%s", self.identity, holder, self._namespace, self._name)
            # A little apart from the others, who saw the lease end at the same moment.
            pauses.pause(self._clock, stop, self.retry * (1 + 0.2 * _spread(self.identity)), floor=0.05)
        return None

    def rest(self, leading: Leading, began: float) -> float:
        """How long to wait for the next renewal after one that ``began`` then: where calls are slow, not for long."""
        due = max(self.retry / 10, began + self.retry - self._clock.now())
        return min(due, leading.remaining / 2)

    def _keep_on(self, leading: Leading, ended: threading.Event) -> None:
        began = self._clock.now()
        while not pauses.pause(self._clock, ended, self.rest(leading, began), floor=0.02):
            began = self._clock.now()
            try:
                self.keep(leading)
            except NotLeader as over:
                holder = self._seen.holder if self._seen is not None else ""
                _log.warning("%s: %s (the lease %s is held by %s)", self.identity, over, self._name, holder or "nobody")
                return

    def _tried(self) -> bool:
        """Whether the Lease is ours now; a failure is told when its words change."""
        try:
            ours = self._try()
        except errors.ApiError as failure:
            if self._words != str(failure):
                self._words = str(failure)
                _log.warning("the lease %s/%s: %s", self._namespace, self._name, failure)
            return False
        self._words = ""
        return ours

    def _try(self) -> bool:
        try:
            lease = self._client.get(kinds.LEASE, self._name, self._namespace)
        except errors.NotFound:
            # Somebody has deleted it, perhaps; who held it does not know that yet.
            if self._seen is not None and self._another_leads(self._seen):
                return False
            self._saw(self._client.create(kinds.LEASE, self._first()))
            return True
        if self._another_leads(self._saw(lease)):
            return False
        self._saw(self._client.replace(kinds.LEASE, self._mine(lease)))
        return True

    def _saw(self, lease: clients.Object) -> _Seen:
        """Another version is another sign of life, however old its date: the clocks of two processes may differ.

        It is dated by when the answer is here, for it may have been written as late as that.
        """
        if self._seen is None or self._seen.version != lease["metadata"]["resourceVersion"]:
            self._seen = _Seen(lease, self._clock.now())
        return self._seen

    def _another_leads(self, seen: _Seen) -> bool:
        held = seen.holder not in ("", self.identity)
        return held and self._clock.now() - seen.at < max(seen.duration, self.duration)

    def _first(self) -> clients.Object:
        metadata = {"name": self._name, "namespace": self._namespace}
        spec = {**self._spec(), "acquireTime": self._moment(), "leaseTransitions": 0}
        return {"metadata": metadata, "spec": spec}

    def _mine(self, lease: clients.Object) -> clients.Object:
        changed = copy.deepcopy(lease)
        spec = changed["spec"]
        if spec.get("holderIdentity") != self.identity:
            spec["acquireTime"] = self._moment()
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        spec.update(self._spec())
        return changed

    def _spec(self) -> clients.Object:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self.duration)),
            "renewTime": self._moment(),
        }

    def _moment(self) -> str:
        return self._clock.wall().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _release(self) -> None:
        """Let the next one lead without waiting; if that fails, it waits."""
        if self._seen is None:
            return
        free = copy.deepcopy(self._seen.lease)
        free["spec"].update({"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._moment()})
        try:
            self._client.replace(kinds.LEASE, free)
        except errors.ApiError as failure:
            _log.info("the lease %s/%s could not be released: %s", self._namespace, self._name, failure)


def _spread(identity: str) -> float:
    """A number from 0 to 1 that differs between candidates."""
    return (hash(identity) % 1000) / 1000
