"""A small cluster for stories about controllers: an API, an index, nodes that run pods at once, and time that flies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from moorage.engine import clock as clocks
from moorage.lab.kube import api as apis
from moorage.lab.kube import builtin_kinds, indexes, kinds, options, problem, store

Object = dict[str, Any]

# Cloud seconds per real second: fast enough that nobody waits, slow enough that seconds can be told apart.
SPEED = 200
PATIENCE = 8.0
WIDGETS = kinds.Kind(
    "example.com",
    "v1",
    "Widget",
    "widgets",
    custom=True,
    schema={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
)
CLUSTER_WIDGETS = kinds.Kind(
    "example.com",
    "v1",
    "ClusterWidget",
    "clusterwidgets",
    namespaced=False,
    custom=True,
    schema={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
)


class World:
    """An API with the namespace ``default`` and two custom kinds."""

    def __init__(self, speed: float = SPEED) -> None:
        self.clock = clocks.Clock(speed)
        self.store = store.Store()
        self.kinds = kinds.Kinds()
        for kind in (*builtin_kinds.kinds(), WIDGETS, CLUSTER_WIDGETS):
            self.kinds.add(kind)
        self.api = apis.Api(self.store, self.kinds, self.clock)
        self.index = indexes.Index(self.api)
        self.put("v1", "Namespace", "default")
        self._changed = asyncio.Event()
        self.store.on_write.append(lambda key, event: self._changed.set())

    def kind(self, name: str) -> kinds.Kind:
        return next(kind for kind in self.kinds if kind.name == name)

    def put(self, api_version: str, kind: str, name: str, namespace: str = "default", **content: Any) -> Object:
        """Write an object as the lab itself would; ``metadata`` may hold more of it."""
        meta = {"name": name, **content.pop("metadata", {})}
        if self.kinds.named(api_version, kind).namespaced:
            meta["namespace"] = namespace
        return self.api.put({"apiVersion": api_version, "kind": kind, "metadata": meta, **content}).object

    def widget(self, name: str, *owners: Object, blocks: bool = True, **meta: Any) -> Object:
        references = [owned_by(owner, blocks=blocks) for owner in owners]
        return self.put("example.com/v1", "Widget", name, metadata={**meta, "ownerReferences": references})

    def find(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        found = self.kind(kind)
        entry = self.store.get(found.key, (namespace if found.namespaced else "", name))
        return None if entry is None else entry.object

    def get(self, kind: str, name: str) -> Object:
        found = self.find(kind, name)
        assert found is not None, f"there is no {kind} {name}"
        return found

    def names(self, kind: str, namespace: str = "") -> list[str]:
        return [name for _, name in self.store.names(self.kind(kind).key, namespace)]

    def pods(self) -> list[Object]:
        return [entry.object for entry in self.store.entries(indexes.PODS)]

    def delete(self, kind: str, name: str, propagation: str = "", **how: Any) -> None:
        found = self.kind(kind)
        namespace = "default" if found.namespaced else ""
        self.api.delete(found, namespace, name, options.DeleteOptions(propagation=propagation, **how))

    def change(self, kind: str, name: str, change: Callable[[Object], Any]) -> Object:
        found = self.kind(kind)
        namespace = "default" if found.namespaced else ""
        return self.api.apply_status(found, namespace, name, change).object

    def client(self, kind: str, name: str, change: Callable[[Object], Any]) -> Object:
        """Change the main part of an object as a client would: by reading it and putting it back."""
        content = store.copied(self.api.get(self.kind(kind), "default" if self.kind(kind).namespaced else "", name))
        change(content)
        return self.api.update(self.kind(kind), content["metadata"].get("namespace", ""), name, content).object

    def node(self, name: str, *, ready: bool = True, taints: list[Object] | None = None, **labels: str) -> Object:
        node = self.put("v1", "Node", name, metadata={"labels": {"kubernetes.io/hostname": name, **labels}})
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]

        def change(content: Object) -> None:
            content["status"] |= {"conditions": conditions, "allocatable": {"pods": "250"}}
            content["spec"]["taints"] = (taints or []) + ([] if ready else content["spec"].get("taints", []))

        self.change("Node", node["metadata"]["name"], change)
        return node

    def run(self, pod: Object, *, ready: bool = True) -> None:
        """Do to a bound pod what a kubelet does when its containers run."""
        since = self.api.time()

        def change(content: Object) -> None:
            conditions = [each for each in content["status"].get("conditions", []) if each["type"] != "Ready"]
            state = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": since}
            content["status"] |= {"phase": "Running", "podIP": "10.1.2.3", "conditions": [*conditions, state]}

        self.change("Pod", pod["metadata"]["name"], change)

    async def until(self, true: Callable[[], Any], what: str = "") -> Any:
        """Wait until something is so; fail if it never is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not (found := true()):
                    self._changed.clear()
                    await self._changed.wait()
                return found
        raise AssertionError(f"never: {what or true}")

    async def rest(self, *controllers: Any) -> None:
        """Wait until these controllers have nothing to do: what has not happened by then will not happen."""
        async with asyncio.timeout(PATIENCE):
            quiet = 0
            while quiet < 3:
                await asyncio.sleep(2 / SPEED)
                quiet = quiet + 1 if all(each.loop.idle for each in controllers) else 0


def owned_by(owner: Object, *, blocks: bool = True, controller: bool = False) -> Object:
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "blockOwnerDeletion": blocks,
        "controller": controller,
    }


class Kubelets:
    """Nodes that bind what they are told, run pods as soon as they are bound, and end them when they are deleted."""

    def __init__(self, world: World, *, binds: bool = True) -> None:
        self._world = world
        self._binds = binds
        self._task: asyncio.Task[None] | None = None
        # Which pods are never ready.
        self.broken: Callable[[Object], bool] = lambda pod: False
        # Whether deleted pods take for ever to end.
        self.clinging = False

    async def _run(self) -> None:
        watch = self._world.store.watch(indexes.PODS, 0)
        while True:
            await watch.wait()
            for event in watch.ready():
                if event.type != store.DELETED:
                    self._look(event.name)
            await asyncio.sleep(0)

    def _look(self, name: store.Name) -> None:
        entry = self._world.store.get(indexes.PODS, name)
        if entry is None:
            return
        pod = entry.object
        if pod["metadata"].get("deletionTimestamp"):
            if self.clinging:
                return
            self._world.delete("Pod", name[1], grace_seconds=0)
        elif not pod["spec"].get("nodeName") and self._binds:
            self._world.change("Pod", name[1], lambda content: content["spec"].update(nodeName="n1"))
        elif pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
            self._world.run(pod, ready=not self.broken(pod))

    def let_go(self) -> None:
        """End what was deleted after all."""
        self.clinging = False
        for name in self._world.store.names(indexes.PODS):
            self._look(name)

    async def __aenter__(self) -> Kubelets:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


@contextlib.asynccontextmanager
async def working(*controllers: Any) -> AsyncIterator[None]:
    """Let controllers work within the block."""
    for controller in controllers:
        controller.loop.start()
    try:
        yield
    finally:
        for controller in controllers:
            await controller.loop.stop()


def story(told: Coroutine[Any, Any, None]) -> None:
    """Run a story in an event loop of its own."""
    asyncio.run(told)


def refused(act: Callable[[], Any]) -> problem.Problem:
    """What the API says to something it must refuse."""
    try:
        act()
    except problem.Problem as refusal:
        return refusal
    raise AssertionError("it was not refused")


def template(**labels: str) -> Object:
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}}
