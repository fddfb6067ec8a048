"""A controller: workers that take keys from a queue and reconcile each, one worker to a key.

Reconciling says when it wants to look again; one that raises is tried again after a pause that grows. A failure is told
when its words change, not each time: a platform that is away for an hour would fill the log with one sentence.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable

from moorage import errors as top
from moorage.engine import errors as engine_errors
from moorage.machines.runtime import errors, metrics
from moorage.machines.runtime import queue as queues

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Result:
    """What reconciling wants: to be called again in ``requeue_after`` seconds, or when something changes."""

    requeue_after: float | None = None


DONE = Result()
Reconcile = Callable[[str], Result]


class Controller:
    """``reconcile`` is called with one key at a time by each of ``workers`` threads."""

    def __init__(self, name: str, reconcile: Reconcile, queue: queues.Queue, workers: int = 1) -> None:
        self.name = name
        self.queue = queue
        self.workers = workers
        self._reconcile = reconcile
        self._told: dict[str, str] = {}
        self._threads: list[threading.Thread] = []
        self._seconds = metrics.RECONCILE_SECONDS.labels(name)
        self._counts = {
            result: metrics.RECONCILES.labels(name, result) for result in ("success", "requeue_after", "error")
        }

    def start(self) -> None:
        """Let the workers begin."""
        for number in range(self.workers):
            thread = threading.Thread(target=self._work, name=f"{self.name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, patience: float = 30.0) -> list[str]:
        """End: what is being reconciled is finished, nothing else is begun.

        Returns the workers that have not finished within ``patience`` real seconds.
        """
        self.queue.shut_down()
        deadline = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def run(self, stop: threading.Event) -> None:
        """Work until told to stop, and return when what was under way is finished."""
        self.start()
        stop.wait()
        self.stop()

    @property
    def alive(self) -> bool:
        """Whether every worker works; they end with the queue alone."""
        return all(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while (key := self.queue.get()) is not None:
            try:
                self.step(key)
            finally:
                self.queue.done(key)

    def step(self, key: str) -> None:
        """Reconcile one key that was taken from the queue, and see to when it comes again."""
        began = time.monotonic()
        try:
            result = self._reconcile(key)
        except engine_errors.Interrupted:
            # The process is told to stop; the next one to lead finds the key by itself.
            self._count("error", began)
        except errors.NotLeader as late:
            self._count("error", began)
            _log.debug("%s: %s: %s", self.name, key, late)
            self.queue.add_rate_limited(key)
        except Exception as failure:  # noqa: BLE001 - whatever one key does, the others have to go on
            self._count("error", began)
            self._failed(key, failure)
        else:
            self._succeeded(key, result, began)

    def _succeeded(self, key: str, result: Result, began: float) -> None:
        if self._told.pop(key, None):
            _log.info("%s: %s works again", self.name, key)
        self.queue.forget(key)
        if result.requeue_after is None:
            self._count("success", began)
            return
        self._count("requeue_after", began)
        self.queue.add_after(key, result.requeue_after)

    def _failed(self, key: str, failure: Exception) -> None:
        told = failure.told() if isinstance(failure, engine_errors.PlatformFailure) else str(failure)
        words = f"{type(failure).__name__}: {told}"
        after = getattr(failure, "retry_after", None)
        pause = self.queue.add_rate_limited(key, at_least=after or 0.0)
        if isinstance(failure, errors.Conflict):
            # Somebody else was quicker; the next look sees what they did. It is no failure to be told of, nor its end.
            _log.debug("%s: %s: %s", self.name, key, words)
            return
        if self._told.get(key) == words:
            return
        self._told[key] = words
        # A bug needs its trace; an error that was raised for people says all there is in its words.
        trace = None if isinstance(failure, top.MoorageError) else failure
        remedy = f"; next: {failure.remedy}" if isinstance(failure, top.MoorageError) and failure.remedy else ""
        _log.warning("%s: %s: %s (again in %.3g s)%s", self.name, key, words, pause, remedy, exc_info=trace)

    def _count(self, result: str, began: float) -> None:
        self._counts[result].inc()
        self._seconds.observe(time.monotonic() - began)
