"""What a kubelet tells of a container that is really run: waiting, running, ended, how often, and whether it is ready.

The last word counts: it is written as soon as the node can reach the API, and again if somebody has overwritten it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from moorage.lab.kube import problem, store
from moorage.lab.nodes import cluster as clusters
from moorage.lab.nodes import conditions

Object = dict[str, Any]

CREATING: Object = {"waiting": {"reason": "ContainerCreating"}}

_log = logging.getLogger(__name__)


def fresh(container: Object) -> Object:
    """A container of a pod that was only just told of."""
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": CREATING,
    }


class Reporter:
    """The state of one container of one pod, and the way to where it is told."""

    def __init__(
        self, cluster: clusters.Cluster, pod: store.Name, uid: str, container: str, heard: Callable[[], bool]
    ) -> None:
        """``heard``: whether what the node says reaches anybody."""
        self._cluster = cluster
        self._pod = pod
        self._uid = uid
        self._container = container
        self._heard = heard
        self._told: Object = {}
        self._address = ""
        self._news = asyncio.Event()

    @property
    def now(self) -> str:
        return self._cluster.api.time()

    def waits(self, reason: str, message: str) -> None:
        self._say(state={"waiting": {"reason": reason, "message": message}}, ready=False, started=False)

    def runs(self, address: str, restarts: int, *, ready: bool) -> None:
        self._address = address
        state = {"running": {"startedAt": self.now}}
        self._say(state=state, ready=ready, started=True, restartCount=restarts)

    def is_ready(self, *, ready: bool) -> None:
        if self._told.get("ready") != ready:
            self._say(ready=ready)

    def has_ended(self, began: str, code: int, message: str = "") -> None:
        """It is told as what was before, with its last words if there are any; what is now follows."""
        status = code if code >= 0 else 128 - code
        reason = "Completed" if status == 0 else "Error"
        past = {"exitCode": status, "reason": reason, "startedAt": began, "finishedAt": self.now}
        past |= {"message": message} if message else {}
        self._say(lastState={"terminated": past}, state={"terminated": past}, ready=False, started=False)

    def again(self) -> None:
        """Say once more what was said last."""
        if self._told:
            self._news.set()

    async def run(self) -> None:
        """Tell it, for as long as there is news."""
        while True:
            await self._news.wait()
            self._news.clear()
            while not (self._cluster.alive and self._heard()):
                await self._cluster.tick()
            try:
                self._cluster.change("", "Pod", *self._pod, self._edit)
            except problem.Problem as refusal:
                # A pod that is just being removed; if it is not, it is written again with the next news of it.
                _log.info("%s/%s: %s", *self._pod, refusal.message)

    def _say(self, **parts: object) -> None:
        self._told = {**self._told, **parts}
        self._news.set()

    def _edit(self, pod: Object) -> None:
        status, now = pod.get("status") or {}, self.now
        if pod["metadata"]["uid"] != self._uid or status.get("phase") != "Running":
            return
        for each in status.get("containerStatuses") or ():
            if each["name"] == self._container:
                each |= self._told
        if self._address:
            status |= {"podIP": self._address, "podIPs": [{"ip": self._address}]}
        unready = [each["name"] for each in status.get("containerStatuses") or () if not each["ready"]]
        why = ("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]") if unready else ("", "")
        for kind in ("ContainersReady", "Ready"):
            conditions.put(pod, now, kind, "False" if unready else "True", *why)
