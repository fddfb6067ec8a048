"""What a node's agent last told about itself, and the virtual addresses that are on the node right now."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from moorage import errors
from moorage.network import host


def read(node: host.Host | None = None) -> dict[str, Any]:
    """The agent's own account, with what can be seen without it."""
    node = node or host.Host()
    path = node.at(host.STATUS_PATH)
    try:
        found = json.loads(path.read_bytes())
    except OSError as problem:
        raise errors.MoorageError(
            f"the agent of this node has told nothing yet: {path}: {problem.strerror}",
            remedy="run it in the container network-monitor of the pod moorage-network, and look at that one's log",
        ) from problem
    except ValueError as problem:
        raise errors.MoorageError(f"{path} cannot be read: {problem}") from problem
    try:
        found["carries"] = [address for _, address, _ in node.carried(node.read_settings())]
    except (OSError, ValueError, subprocess.SubprocessError, errors.MoorageError) as problem:
        found["carries"], found["carries_unknown"] = [], str(problem)
    return dict(found)


def text(found: dict[str, Any]) -> str:
    """The same for people."""
    seen = found.get("view") or {}
    me = seen.get("self") or {}
    nodes = [f"{each['name']} ({each['role']}, {', '.join(each['addresses'])})" for each in seen.get("nodes") or ()]
    keepalived = found["keepalived"]
    place = f"{me['address']} on {me['interface']}" if me else "no address yet"
    lines = [
        f"{me.get('name', 'this node')}: {found['role']}, {place}",
        f"carries     {', '.join(found['carries']) or 'no virtual address'}",
        f"keepalived  {'runs' if keepalived['runs'] else 'does not run'}"
        + (f": {keepalived['halted']}" if keepalived["halted"] else ""),
        f"redirect    {'in place' if found['redirect'] else 'none'}",
        f"cluster     {'answers' if found['cluster']['answers'] else found['cluster']['why'] or 'not asked yet'}",
        f"nodes       {'; '.join(nodes) or 'none seen'}",
        f"resolvers   {', '.join(seen.get('resolvers') or ()) or 'none'}",
    ]
    if found.get("pending"):
        lines.append(f"pending     another view was seen {found['pending']} times in a row")
    lines += [f"file        {path}: {fact['why']}, {fact['at']}" for path, fact in sorted(found["files"].items())]
    lines += [f"refused     {path}: {why}" for path, why in sorted(found["refused"].items())]
    return "\n".join(lines)
