"""The programs of pods that the lab really runs: `moorage machine-api run`, because the product brings it.

All other containers are only said to run. This one becomes a process, with the token of its pod's service account, the
API where its node finds it, and the lab's clock and names. It lives and dies with what it stands for: it is asked to
end when its pod is deleted, killed at once when its node is switched off or cut off, and started again, later each
time, when it ends by itself. Nothing of the product is read here but the words of the container.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import shutil
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from moorage.lab import site as sites
from moorage.lab.kube import store
from moorage.lab.nodes import cluster as clusters
from moorage.lab.nodes import instance, processes, program_life

Object = dict[str, Any]

PROGRAM = ("moorage", "machine-api", "run")
COMMAND: Sequence[str] = (sys.executable, "-P", "-m", "moorage")

_log = logging.getLogger(__name__)
_grounds: weakref.WeakKeyDictionary[sites.Site, Grounds] = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class Grounds:
    """What a site's programs are given: a folder for theirs, what tells them clock and names, and what is `moorage`."""

    folder: Path
    environment: Mapping[str, str]
    command: Sequence[str]


def allow(site: sites.Site, folder: Path, environment: Mapping[str, str], command: Sequence[str] = COMMAND) -> None:
    """Let the programs of a site's pods run; without it they are only said to. What others left there goes."""
    shutil.rmtree(folder, ignore_errors=True)
    _grounds[site] = Grounds(folder, dict(environment), tuple(command))


def words(container: Object) -> list[str]:
    """The command line of a container that is to be run; empty for all others."""
    said = [str(each) for each in (*(container.get("command") or ()), *(container.get("args") or ()))]
    named = (said[0].rpartition("/")[2], *said[1:3]) if said else ()
    return said if named == PROGRAM else []


class Programs:
    """The programs of one cluster's pods. ``changed`` is told of a pod whose programs have all ended."""

    def __init__(
        self,
        cluster: clusters.Cluster,
        machine: Callable[[str], instance.Instance | None],
        changed: Callable[[store.Name], None],
    ) -> None:
        self._cluster = cluster
        self._machine = machine
        self._changed = changed
        self._kept: dict[store.Name, tuple[str, list[program_life.Life]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def containers(self, pod: Object) -> Iterator[Object]:
        """The containers of a pod that are really run: none of most pods, and none where nobody has allowed it."""
        if self._cluster.site in _grounds and pod["spec"].get("restartPolicy", "Always") == "Always":
            yield from (each for each in pod["spec"]["containers"] if words(each))

    def keep(self, name: store.Name, pod: Object) -> None:
        """See to it that the programs of a pod run; kept already, nothing changes."""
        uid = pod["metadata"]["uid"]
        if name in self._kept and self._kept[name][0] != uid:
            # Another pod of that name, which is gone without a trace.
            self.abandon(name)
        if name not in self._kept:
            self._kept[name] = (uid, [self._life(name, pod, container) for container in self.containers(pod)])
        for life in self._kept[name][1]:
            life.status.again()

    def ended(self, name: store.Name, uid: str, grace: float) -> bool:
        """Whether a pod's programs have ended; if they have not, they are asked to, and ``changed`` is told later."""
        known, lives = self._kept.get(name, ("", []))
        if known != uid:
            return True
        for life in lives:
            life.end(grace)
        return all(life.over for life in lives)

    def abandon(self, name: store.Name) -> None:
        """Kill what runs for a pod that is not there any more."""
        for life in self._kept.pop(name, ("", ()))[1]:
            life.end(0.0)

    def log(self, namespace: str, name: str, container: str, *, previous: bool) -> str:
        """What a container of a pod has said, as ``kubectl logs`` shows it."""
        for life in self._kept.get((namespace, name), ("", ()))[1]:
            if container in ("", life.container):
                return life.log(previous=previous)
        return ""

    async def stop(self) -> None:
        """Kill all of them, and be sure that they are dead."""
        for name in list(self._kept):
            self.abandon(name)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _life(self, name: store.Name, pod: Object, container: Object) -> program_life.Life:
        grounds, uid = _grounds[self._cluster.site], pod["metadata"]["uid"]
        folder = grounds.folder / processes.folder_name(*name, uid) / processes.folder_name(container["name"])
        command = (*grounds.command, *words(container)[1:])
        program = program_life.Program(pod, container, command, grounds.environment)
        node = pod["spec"]["nodeName"]
        life = program_life.Life(self._cluster, program, processes.Folder(folder), lambda: self._machine(node))
        task = asyncio.get_running_loop().create_task(life.run(), name=f"program of {name[0]}/{name[1]}")
        life.task = task
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._over(name, done))
        return life

    def _over(self, name: store.Name, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("%s: the lab has a defect", task.get_name(), exc_info=task.exception())
        self._changed(name)
