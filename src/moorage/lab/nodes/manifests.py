"""Creating the manifests of a bootstrap node the way cluster-bootstrap does: all of them, until none is refused.

What exists already is left as it is; what is refused (its namespace or its kind is not there yet, or never will be) is
tried again and again. Everything is asked of the API over TLS, so that it is judged as any client's request would be.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

import yaml

from moorage import lab
from moorage.engine import clock as clocks
from moorage.lab.nodes import api_client

Object = dict[str, Any]
Say = Callable[[str], None]

AGAIN_SECONDS = 5.0
# A manifest that is refused for ever is complained about at every change, and now and then.
REMINDER_SECONDS = 60.0


class _Loader(yaml.CSafeLoader):
    """YAML as Go's JSON conversion reads it: what looks like a date stays text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


class Unloadable(Exception):  # noqa: N818 - a finding about files
    """Some manifests cannot even be read; names all of them."""


@dataclasses.dataclass(frozen=True)
class Resource:
    """Where objects of a kind are found."""

    group: str
    version: str
    plural: str
    namespaced: bool

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        parts = [part for part in (quote(name, safe=""), subresource) if part]
        return "/".join([f"{root}{within}/{self.plural}", *parts])


def load(files: Iterable[tuple[str, bytes]]) -> dict[str, Object]:
    """The manifests by file name, in order."""
    found: dict[str, Object] = {}
    troubles: dict[str, str] = {}
    for name, content in sorted(files):
        try:
            document = _parsed(content)
        except (yaml.YAMLError, ValueError) as problem:
            told = " ".join(str(problem).split())
            troubles[name] = f'unable to convert asset "{name}" from YAML to JSON: {told}'
            continue
        if not isinstance(document, dict) or not document.get("kind"):
            troubles[name] = f"unable to decode asset \"{name}\": Object 'Kind' is missing"
        elif not document.get("apiVersion"):
            troubles[name] = f"unable to decode asset \"{name}\": Object 'apiVersion' is missing"
        else:
            found[name] = document
    if troubles:
        raise Unloadable(_together("failed to load some manifests", troubles))
    return found


def _parsed(content: bytes) -> object:
    """The first document of a file, which is all that the real one reads."""
    with contextlib.suppress(ValueError):
        return json.loads(content)  # many are JSON, which is read a hundred times faster as such
    return next(iter(yaml.load_all(content, _Loader)), None)


async def ensure_created(client: api_client.Client, found: dict[str, Object], say: Say, clock: clocks.Clock) -> None:
    """Return when every manifest exists in the cluster."""
    left = dict(found)
    mapper = Mapper(client)
    count, told, told_at = 0, "", 0.0
    while True:
        count += 1
        troubles = await create(client, mapper, left, say)
        if not troubles:
            return
        words = _together("failed to create some manifests", troubles)
        if words != told or clock.now() - told_at >= REMINDER_SECONDS:
            say(f"[#{count}] {words}")
            told, told_at = words, clock.now()
        mapper.forget()
        await lab.sleep(clock, AGAIN_SECONDS)


async def create(client: api_client.Client, mapper: Mapper, left: dict[str, Object], say: Say) -> dict[str, str]:
    """Try each manifest once, and take those that exist now out of ``left``; the complaints about the others."""
    troubles: dict[str, str] = {}
    for name, manifest in sorted(left.items()):
        try:
            resource = await mapper.resource(manifest)
            await _create(client, resource, name, manifest, say)
        except _NoMatch as missing:
            troubles[name] = f'unable to get REST mapping for "{name}": {missing}'
        except _Failed as failed:
            troubles[name] = str(failed)
        except (OSError, TimeoutError) as problem:
            # Nobody answers: asking for the others would only say the same again.
            return {name: f"failed to fetch discovery: {client.words(problem)}"}
        else:
            del left[name]
        for warning in client.warnings:
            say(f"warnings.go:70] {warning} (in {name})")
        client.warnings.clear()
    return troubles


class _NoMatch(Exception):  # noqa: N818 - the mapper's answer
    """The API has no such kind."""


class _Failed(Exception):  # noqa: N818 - the API's answer
    """A manifest was refused."""


class Mapper:
    """Which resource a manifest's kind is, from the API's own discovery."""

    def __init__(self, client: api_client.Client) -> None:
        self._client = client
        self._known: dict[str, dict[str, Resource]] = {}

    def forget(self) -> None:
        """Ask anew: kinds may have come."""
        self._known.clear()

    async def resource(self, manifest: Object) -> Resource:
        version, kind = str(manifest["apiVersion"]), str(manifest["kind"])
        known = self._known.get(version) or await self._discover(version)
        if kind not in known and version in self._known:
            known = await self._discover(version)
        if kind not in known:
            raise _NoMatch(f'no matches for kind "{kind}" in version "{version}"')
        return known[kind]

    async def _discover(self, api_version: str) -> dict[str, Resource]:
        group, _, version = api_version.rpartition("/")
        path = f"/apis/{api_version}" if group else f"/api/{api_version}"
        try:
            listed = (await self._client.get(path)).get("resources") or []
        except api_client.Refused as refused:
            if refused.status != 404:
                raise _Failed(f"failed to fetch discovery: {refused}") from refused
            listed = []
        found = {
            str(each["kind"]): Resource(group, version, str(each["name"]), bool(each["namespaced"]))
            for each in listed
            if "/" not in each["name"]
        }
        self._known[api_version] = found
        return found


async def _create(client: api_client.Client, resource: Resource, name: str, manifest: Object, say: Say) -> None:
    metadata = manifest.get("metadata") or {}
    namespace, own = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    told = f"{resource.plural}.{resource.version}.{resource.group}/{own} -n {namespace}"
    live = await _asked(_find(client, resource.path(namespace, own)), f"failed to get {told}")
    if live is not None:
        say(f'Skipped "{name}" {told} as it already exists')
    else:
        live = await _asked(client.create(resource.path(namespace), manifest), f"failed to create {told}")
        say(f'Created "{name}" {told}')
    if live is None or "status" not in manifest or "status" in live:
        return
    try:
        await client.replace(resource.path(namespace, own, "status"), {**live, "status": manifest["status"]})
    except api_client.Refused as refused:
        if refused.status != 404:
            raise _Failed(f"failed to update status for {told}: {refused}") from refused
    else:
        say(f'Updated status for "{name}" {told}')


async def _find(client: api_client.Client, path: str) -> Object | None:
    try:
        return await client.get(path)
    except api_client.Refused as refused:
        if refused.status == 404:
            return None
        raise


async def _asked(answer: Any, failing: str) -> Object | None:
    try:
        found: Object | None = await answer
    except api_client.Refused as refused:
        raise _Failed(f"{failing}: {refused}") from refused
    return found


def _together(prefix: str, troubles: dict[str, str]) -> str:
    return f"{prefix}:\n" + "\n".join(f'"{name}": {words}' for name, words in sorted(troubles.items()))
