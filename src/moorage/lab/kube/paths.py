"""The paths that are no resources: health, version, discovery, OpenAPI and a few numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from moorage.lab.kube import discovery, openapi, openapi_v2, problem, store, views

if TYPE_CHECKING:
    from moorage.lab.kube import server as servers

Reply = tuple[bytes, str, int]

TEXT = "text/plain; charset=utf-8"
_VERSION = {
    "major": "1",
    "minor": "33",
    "emulationMajor": "1",
    "emulationMinor": "33",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "32",
    "gitVersion": "v1.33.0",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_AGGREGATED = re.compile(r"application/json;(?=[^,]*as=APIGroupDiscoveryList)[^,]*v=(v2beta1|v2)\b")


def answer(server: servers.Server, request: web.Request) -> Reply:
    """The answer to a path that is no resource."""
    path = "/" + request.path.strip("/")
    for prefix, act in _PATHS:
        if path == prefix or path.startswith(prefix + "/"):
            if request.method != "GET":
                raise problem.method_not_allowed()
            found = act(server, request, path.removeprefix(prefix).strip("/"))
            if found is not None:
                return found
    if path == "/" and request.method == "GET":
        return _json({"paths": _known(server)})
    if path.startswith("/api/"):
        raise problem.no_such_path()
    return nothing()


def nothing() -> Reply:
    """The answer to a path that means nothing."""
    return b"404 page not found\n", TEXT, 404


def _json(document: Any, status: int = 200) -> Reply:
    return store.encoded(document), views.JSON, status


def _known(server: servers.Server) -> list[str]:
    kinds = list(server.api.kinds)
    groups = {f"/apis/{kind.group}" for kind in kinds if kind.group}
    versions = {f"/apis/{kind.group}/{kind.version}" for kind in kinds if kind.group}
    plain = {"/api", "/api/v1", "/apis", *(prefix for prefix, _ in _PATHS)}
    return sorted(groups | versions | plain)


def _health(server: servers.Server, request: web.Request, rest: str, name: str) -> Reply | None:
    why = server.api.available()
    checks = {"ping": True, "log": True, "etcd": not why, "poststarthook/start-apiserver": True}
    if name == "readyz":
        checks = {**checks, "shutdown": server.ready}
    if rest:
        if rest not in checks:
            return nothing()
        checks = {rest: checks[rest]}
    fine = all(checks.values())
    if fine and "verbose" not in request.query:
        return b"ok", TEXT, 200
    lines = [f"[+]{each} ok" if good else f"[-]{each} failed: reason withheld" for each, good in checks.items()]
    lines.append(f"{name} check {'passed' if fine else 'failed'}")
    return ("\n".join(lines) + "\n").encode(), TEXT, 200 if fine else 500


def _healthz(server: servers.Server, request: web.Request, rest: str) -> Reply | None:
    return _health(server, request, rest, "healthz")


def _livez(server: servers.Server, request: web.Request, rest: str) -> Reply | None:
    return _health(server, request, rest, "livez")


def _readyz(server: servers.Server, request: web.Request, rest: str) -> Reply | None:
    return _health(server, request, rest, "readyz")


def _version(_server: servers.Server, _request: web.Request, rest: str) -> Reply | None:
    return None if rest else _json(_VERSION)


def _metrics(server: servers.Server, _request: web.Request, rest: str) -> Reply | None:
    if rest:
        return None
    lines = [
        "# HELP apiserver_storage_objects Number of stored objects at the time of last check split by kind.",
        "# TYPE apiserver_storage_objects gauge",
    ]
    for group, plural in sorted(server.api.store.keys()):
        resource = problem.qualified(plural, group)
        lines.append(f'apiserver_storage_objects{{resource="{resource}"}} {server.api.store.count((group, plural))}')
    lines += [
        "# HELP apiserver_longrunning_requests Gauge of all active long-running apiserver requests.",
        "# TYPE apiserver_longrunning_requests gauge",
        f'apiserver_longrunning_requests{{verb="WATCH"}} {len(server.streams)}',
    ]
    return ("\n".join(lines) + "\n").encode(), "text/plain; version=0.0.4; charset=utf-8", 200


def _api(server: servers.Server, request: web.Request, rest: str) -> Reply | None:
    if rest:
        found = discovery.resource_list(server.api.kinds, "", rest) if "/" not in rest else None
        return None if found is None else _json(found)
    return _aggregated(server, request, core=True) or _json(
        discovery.api_versions(server.api.kinds, f"{server.host}:{server.port}")
    )


def _apis(server: servers.Server, request: web.Request, rest: str) -> Reply | None:
    kinds = server.api.kinds
    if not rest:
        return _aggregated(server, request, core=False) or _json(discovery.group_list(kinds))
    group, _, version = rest.partition("/")
    found = discovery.resource_list(kinds, group, version) if version else discovery.group(kinds, group)
    return None if found is None else _json(found)


def _aggregated(server: servers.Server, request: web.Request, *, core: bool) -> Reply | None:
    wanted = _AGGREGATED.search(request.headers.get("Accept", "").replace(" ", ""))
    if wanted is None:
        return None
    media = f"application/json;g=apidiscovery.k8s.io;v={wanted[1]};as=APIGroupDiscoveryList"
    return store.encoded(discovery.aggregated(server.api.kinds, core, wanted[1])), media, 200


def _openapi(server: servers.Server, request: web.Request, rest: str) -> Reply | None:
    kinds = server.api.kinds
    if rest == "v2":
        protobuf = _PROTOBUF_V2 in request.headers.get("Accept", "")
        return openapi_v2.document(kinds, protobuf), openapi_v2.ANSWERED if protobuf else views.JSON, 200
    if rest == "v3":
        return _json(openapi.index(kinds))
    part, _, path = rest.partition("/")
    root, _, group_version = path.partition("/")
    if part != "v3" or root not in ("api", "apis"):
        return None
    group, _, version = group_version.rpartition("/")
    found = openapi.document(kinds, group, version)
    return None if found is None else (found, views.JSON, 200)


_PATHS: tuple[tuple[str, Callable[[Any, web.Request, str], Reply | None]], ...] = (
    ("/apis", _apis),
    ("/api", _api),
    ("/healthz", _healthz),
    ("/livez", _livez),
    ("/readyz", _readyz),
    ("/version", _version),
    ("/metrics", _metrics),
    ("/openapi", _openapi),
)
