"""What a machine finds on its configuration drive: the custom script, as the engine passes it on.

To a system that the engine knows to use Ignition the script goes as it is, with the version and the host's name added
where they are missing. To any other system it goes as a part of a cloud-init document, which Ignition cannot read: a
template of the wrong operating system makes machines that never get beyond their first boot.
"""

from __future__ import annotations

import json
from typing import Any

Doc = dict[str, Any]

IGNITION_SYSTEMS = frozenset({"rhcos_x64"})
_OLDEST_VERSION = "2.3.0"
# What a machine boots with that was given nothing: it starts, and idles.
IDLE = b'{"ignition": {"version": "3.2.0"}}'


class Unreadable(ValueError):  # noqa: N818 - what the engine finds when it starts a machine
    """The custom script is none that the engine can pass on."""


def of(vm: Doc) -> bytes:
    """The user data of a machine."""
    init = vm.get("initialization") or {}
    script, host = str(init.get("custom_script") or ""), str(init.get("host_name") or "")
    if vm.get("os", {}).get("type") not in IGNITION_SYSTEMS:
        if not script:
            return IDLE
        named = f"hostname: {host}\n" if host else ""
        return f"#cloud-config\n{named}{script}".encode()
    if not script and not host:
        return IDLE
    try:
        config = json.loads(script or "{}")
    except ValueError as problem:
        raise Unreadable(f"Failed to build ignition data: {problem}") from problem
    if not isinstance(config, dict):
        raise Unreadable("Failed to build ignition data: not an object")
    if "version" in (config.get("ignition") or {}) and (not host or _names_host(config)):
        # Not a byte of it is touched.
        return script.encode()
    return json.dumps(_enriched(config, host)).encode()


def _names_host(config: Doc) -> bool:
    files = (config.get("storage") or {}).get("files") or []
    return any(isinstance(each, dict) and each.get("path") == "/etc/hostname" for each in files)


def _enriched(config: Doc, host: str) -> Doc:
    ignition = {"version": _OLDEST_VERSION, **(config.get("ignition") or {})}
    made = {**config, "ignition": ignition}
    if host and not _names_host(config):
        storage = config.get("storage") or {}
        file = {"path": "/etc/hostname", "mode": 0o644, "contents": {"source": f"data:,{host}"}}
        made["storage"] = {**storage, "files": [*(storage.get("files") or []), file]}
    return made
