"""What an administrator of many nodes does over a cluster's own API: let machines in, and watch who is Ready.

Everything is listed once and watched from then on, over few connections, as programs do that are made for large
clusters; so what is measured is the cluster, and not whoever looks at it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from moorage.installer import kubeconfig

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
NODES = "/api/v1/nodes"
_AT_ONCE = 8
_TRIES, _PAUSE = 20, 0.25
_LONGEST_LINE = 2**22

Object = dict[str, Any]


class Cluster:
    """The API over HTTP, with what a kubeconfig gives."""

    def __init__(self, access: kubeconfig.Access) -> None:
        self._access = access
        self._tls = ssl.create_default_context(cadata=access.authority)
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
            pair.write(f"{access.client_certificate}\n{access.client_key}")
            pair.flush()
            self._tls.load_cert_chain(pair.name)
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=30))

    async def ask(self, method: str, path: str, body: object = None) -> Object:
        """What the API answers; OSError if it refuses. A connection that breaks is tried again, as programs do."""
        for tries_left in reversed(range(_TRIES)):
            try:
                async with self._request(method, path, json=body) as reply:
                    found: Object = await reply.json()
            except aiohttp.ClientConnectionError:
                if not tries_left:
                    raise
                await asyncio.sleep(_PAUSE)
                continue
            break
        if reply.status >= 300:
            raise OSError(f"{method} {path}: {found.get('message')}")
        return found

    async def objects(self, path: str) -> AsyncIterator[Object]:
        """Every object there is, and every one that is written from then on; listed again when a watch ends."""
        while True:
            listed = await self.ask("GET", path)
            for each in listed["items"]:
                yield each
            version = listed["metadata"]["resourceVersion"]
            with contextlib.suppress(aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
                async with self._request("GET", f"{path}?watch=1&resourceVersion={version}") as reply:
                    async for line in reply.content:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            break
                        if event["type"] != "DELETED":
                            yield event["object"]

    async def close(self) -> None:
        await self._session.close()

    def _request(self, method: str, path: str, **more: Any) -> Any:
        url, name = f"https://{self._access.host}:{self._access.port}{path}", self._access.server_name
        return self._session.request(
            method, url, ssl=self._tls, server_hostname=name, read_bufsize=_LONGEST_LINE, **more
        )


@contextlib.asynccontextmanager
async def of(path: Path) -> AsyncIterator[Cluster]:
    """The cluster that a kubeconfig leads to."""
    cluster = Cluster(kubeconfig.read(path))
    try:
        yield cluster
    finally:
        await cluster.close()


async def approve(cluster: Cluster) -> None:
    """Let in whoever asks, for ever: an administrator who knows that all these machines are theirs."""
    pending: asyncio.Queue[Object] = asyncio.Queue()
    seen: set[str] = set()

    async def work() -> None:
        while True:
            request = await pending.get()
            path = f"{REQUESTS}/{request['metadata']['name']}"
            condition = {"type": "Approved", "status": "True", "reason": "Ours", "message": "It is one of ours."}
            request.setdefault("status", {})["conditions"] = [condition]
            try:
                await cluster.ask("PUT", f"{path}/approval", request)
            except OSError:
                # The reply to an approval that was heard may have been lost: asked again, it comes too late.
                if not (await cluster.ask("GET", path)).get("status", {}).get("conditions"):
                    raise

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(work())
        async for request in cluster.objects(REQUESTS):
            name = request["metadata"]["name"]
            if name not in seen and not (request.get("status") or {}).get("conditions"):
                seen.add(name)
                pending.put_nowait(request)


@dataclasses.dataclass
class Nodes:
    """What is known of the Nodes: since when each is Ready (nothing if it is not), and who was and ceased to be."""

    ready: dict[str, str] = dataclasses.field(default_factory=dict)
    flaps: list[str] = dataclasses.field(default_factory=list)
    _changed: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    @property
    def count(self) -> int:
        return sum(1 for since in self.ready.values() if since)

    async def follow(self, cluster: Cluster) -> None:
        """Keep up with the Nodes, for ever."""
        async for node in cluster.objects(NODES):
            name, since = node["metadata"]["name"], _ready_since(node)
            known = self.ready.get(name, "")
            if known and since != known:
                self.flaps.append(name)
            if since != known:
                self.ready[name] = since
                self._changed.set()

    async def until(self, count: int) -> None:
        """Return when so many are Ready."""
        while self.count < count:
            self._changed.clear()
            await self._changed.wait()


def _ready_since(node: Object) -> str:
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            return str(condition["lastTransitionTime"])
    return ""


@contextlib.asynccontextmanager
async def at_work(cluster: Cluster) -> AsyncIterator[Nodes]:
    """Let machines in and follow the Nodes meanwhile; if either fails, so does whoever waits for it."""
    nodes = Nodes()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in (approve(cluster), nodes.follow(cluster))]
        try:
            yield nodes
        finally:
            for task in tasks:
                task.cancel()
