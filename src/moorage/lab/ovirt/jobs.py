"""Jobs: what the engine does in the background, found by the correlation id that the caller chose.

The engine looks at its tasks every ten seconds, so a job ends up to that much after its work: a disk may say that it is
OK while its job goes on. Jobs that went well are forgotten after ten minutes, the others after an hour.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from aiohttp import web

from moorage import lab
from moorage.lab.ovirt import documents, faults, timing

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

STARTED, FINISHED, FAILED = "started", "finished", "failed"
_KEPT = {FINISHED: 10 * 60.0, FAILED: 60 * 60.0}
_LONGEST_CORRELATION = 50

_log = logging.getLogger(__name__)


def correlation(request: web.Request) -> str:
    """The id by which the caller will look for what it started; one is made up for who gives none."""
    given = request.query.get("correlation_id") or request.headers.get("Correlation-Id") or ""
    if len(given) > _LONGEST_CORRELATION:
        raise faults.plain("Size must be between 1 and 50. Attribute: correlationId", 400)
    return given or str(uuid.uuid4())


class Jobs:
    """The engine's jobs; their entities are in the inventory."""

    def __init__(self, engine: engines.Engine) -> None:
        self._engine = engine

    def start(self, correlation_id: str, description: str, work: Coroutine[Any, Any, None]) -> documents.Doc:
        """Do some work in the background, as a job that can be watched."""
        now = self._engine.clock.wall()
        job = self._engine.inventory.add(
            "jobs",
            {
                "description": description,
                "status": STARTED,
                "external": False,
                "auto_cleared": True,
                "start_time": now,
                "last_updated": now,
                "_correlation_id": correlation_id,
            },
        )
        self._step(job, "validating", "Validating", FINISHED)
        self._step(job, "executing", "Executing", STARTED)
        self._engine.spawn(self._run(job, work)).add_done_callback(lambda _: work.close())
        return job

    async def _run(self, job: documents.Doc, work: Coroutine[Any, Any, None]) -> None:
        clock = self._engine.clock
        try:
            await work
            status = FINISHED
        except faults.Fault as wrong:
            _log.info("job %s: %s", job["description"], wrong)
            status = FAILED
        except Exception:  # noqa: BLE001 - a job that breaks must be seen to have failed, not to go on for ever
            _log.exception("job %s", job["description"])
            status = FAILED
        now = clock.now()
        await lab.sleep(clock, math.ceil(now / timing.ASYNC_POLL) * timing.ASYNC_POLL - now)
        self._end(job, status)
        await lab.sleep(clock, _KEPT[status])
        for step in self._engine.inventory.find("steps", job=job["id"]):
            self._engine.inventory.remove("steps", step["id"])
        self._engine.inventory.remove("jobs", job["id"])

    def _end(self, job: documents.Doc, status: str) -> None:
        now = self._engine.clock.wall()
        for step in self._engine.inventory.find("steps", job=job["id"], status=STARTED):
            step |= {"status": status, "end_time": now}
        self._step(job, "finalizing", "Finalizing", status)
        job |= {"status": status, "last_updated": now, "end_time": now}

    def _step(self, job: documents.Doc, kind: str, description: str, status: str) -> None:
        now = self._engine.clock.wall()
        step = {"type": kind, "description": description, "status": status, "start_time": now, "external": False}
        if status != STARTED:
            step["end_time"] = now
        number = len(self._engine.inventory.find("steps", job=job["id"])) + 1
        self._engine.inventory.add("steps", {**step, "number": number, "job": {"id": job["id"]}})


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    inventory = engine.inventory

    async def listed(request: web.Request) -> documents.Reply:
        return documents.collection("jobs", reversed(inventory.all("jobs")))

    async def one(request: web.Request) -> documents.Reply:
        return documents.entity("job", inventory.get("jobs", request.match_info["job"]))

    async def steps(request: web.Request) -> documents.Reply:
        job = inventory.get("jobs", request.match_info["job"])
        return documents.collection("steps", inventory.find("steps", job=job["id"]))

    return [web.get("/jobs", listed), web.get("/jobs/{job}", one), web.get("/jobs/{job}/steps", steps)]
