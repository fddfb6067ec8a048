"""Running a graph of task bodies on TaskFlow.

TaskFlow schedules and keeps the books; all judgement stays with the bodies. Its revert is not used, because it stops at
the first revert that raises and leaves the rest behind, nor its retry, nor its thread pool, which adds a second to
every run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent import futures

from taskflow import exceptions, task  # type: ignore[import-untyped]
from taskflow.engines.action_engine import engine as engines  # type: ignore[import-untyped]
from taskflow.patterns import graph_flow  # type: ignore[import-untyped]

from moorage.engine import errors, graph, journal, logbook, outputs

# A failed task is an ordinary end here, told once and properly by FlowFailed; TaskFlow would log it as a crash of its
# own, with a page of traceback.
logging.getLogger("taskflow.engines.action_engine.engine").setLevel(logging.CRITICAL)

Body = Callable[[str], outputs.Record]


class _Task(task.Task):  # type: ignore[misc]
    """One body under TaskFlow; it provides its name's output and requires those of its needs."""

    def __init__(self, name: str, needs: Collection[str], body: Body, priority: float) -> None:
        super().__init__(name=name, provides=name, requires=sorted(needs))
        self.priority = priority
        self._body = body

    def execute(self, **_inputs: object) -> outputs.Record:
        return self._body(self.name)


def run(
    name: str,
    needs: graph.Needs,
    body: Body,
    *,
    book: journal.Journal,
    workers: int,
    priorities: Mapping[str, float],
) -> None:
    """Run the body for every name, each after its needs, ``workers`` at a time.

    Returns when nothing more can be done: every body has returned, or one was halted and those beside it have ended.
    """
    backend = logbook.Backend(book)
    detail = logbook.details(backend, name, needs)
    pattern = graph_flow.Flow(name)
    pattern.add(*(_Task(each, wanted, body, priorities.get(each, 0.0)) for each, wanted in needs.items()))
    with futures.ThreadPoolExecutor(max_workers=workers, thread_name_prefix="flow") as pool:
        engine = engines.ParallelActionEngine(pattern, detail, backend, {"executor": pool, "never_resolve": True})
        try:
            engine.run()
        except errors.Halted:
            return
        except exceptions.WrappedFailure as several:
            for failure in several:
                if failure.check(errors.Halted) is None:
                    failure.reraise()
