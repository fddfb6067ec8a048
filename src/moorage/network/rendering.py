"""All files of a node's network services, from settings, role and view: the one function that everybody uses.

A node's agent writes what it returns; `moorage node-network render --batch` answers with it, a line of JSON for a line
of JSON, for programs that want to know what a node would do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from moorage import errors
from moorage.network import checks, corefile, haproxy, keepalived, settings, view


def files(wanted: settings.Settings, role: str, seen: view.View) -> dict[str, str]:
    """Texts by path on the node."""
    if role not in view.ROLES:
        raise errors.ConfigError(f"{role!r} is no role of a node", remedy=f"use one of {', '.join(view.ROLES)}")
    found = {
        keepalived.PATH: keepalived.render(wanted, role, seen),
        corefile.PATH: corefile.render(wanted, seen),
        corefile.HOSTS_PATH: corefile.hosts(wanted, seen),
    }
    if role == view.MASTER:
        found[haproxy.PATH] = haproxy.render(wanted, seen)
    for router in keepalived.routers(wanted, role, seen):
        for check in router.checks:
            found[checks.path(check.name)] = checks.script(check.name)
    return found


def answer(line: str) -> str:
    """The reply to one request of the batch: the files, or why there are none. It never raises."""
    try:
        return json.dumps({"files": _requested(json.loads(line))})
    except errors.MoorageError as problem:
        return json.dumps({"error": problem.message})
    except ValueError as problem:
        return json.dumps({"error": f"the request is not JSON: {problem}"})


def _requested(request: object) -> dict[str, str]:
    if not isinstance(request, Mapping):
        raise errors.ConfigError("the request must be an object with settings, role, self, nodes and resolvers")
    wanted = settings.from_mapping(request.get("settings"), "settings")
    return files(wanted, str(request.get("role", "")), view.from_data(request))
