"""The lab as a process of its own: it outlives whoever started it, and leaves nothing behind when it stops.

Its folder (0700) holds ``lab.json`` (0600: where it listens, its key), written when all is ready and removed at the
end, the configuration with which clients find its oVirt engine, ``lab.log``, the logs of pods that really ran, and a
lock that tells whether a lab lives here, whatever became of it. A lab whose folder was removed stops: nobody could find
it any more. So does one whose owner has died, if it ever had one.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import math
import os
import resource
import secrets
import signal
import time
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from moorage import __version__
from moorage.engine import clock as clocks
from moorage.lab import client, control, lock, owner, plain, sessions
from moorage.lab import site as sites
from moorage.lab.nodes import programs
from moorage.lab.ovirt import serving

HERE = "127.0.0.1"
#: Where in the lab's folder the programs of pods have theirs.
PODS = "pods"
# How often the lab looks whether its folder is still there, in real seconds: files know no other.
_LOOK_SECONDS = 1.0
_MOST_FILES = 65_536
_COLLECT_AFTER = (20_000, 20, 20)

_log = logging.getLogger(__name__)


def run(folder: Path, speed: float) -> None:
    """Be the lab in ``folder`` until told to stop."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    _allow_files()
    # The objects of a large cluster are many, live long and hold no cycles: to look through all of them again and again
    # costs a tenth of the processor and stops everything for a second.
    gc.set_threshold(*_COLLECT_AFTER)
    with lock.alone(folder):
        (folder / client.DESCRIPTION).unlink(missing_ok=True)
        asyncio.run(_serve(folder, speed))


def _allow_files() -> None:
    """Let the process open as many files as it may at all: a node in the lab takes four connections, or more."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where there is no limit at all, some systems still refuse to be told so.
    wanted = _MOST_FILES if most == resource.RLIM_INFINITY else min(most, _MOST_FILES)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


async def _serve(folder: Path, speed: float) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    # Rounded down: a date that lies ahead is none that anybody believes.
    epoch = math.floor(time.time() * 1000) / 1000
    environment = {clocks.SPEED: f"{speed:g}", clocks.EPOCH: f"{epoch:.3f}"}
    site = sites.Site(clocks.from_environment(environment))
    await site.start()
    resolver = f"{site.nameserver.host}:{site.nameserver.port}"
    told = {"MOORAGE_RESOLVER": resolver, **environment}
    programs.allow(site, folder / PODS, told)
    key = secrets.token_urlsafe(32)
    tokens = sessions.Sessions(site.clock, key)
    about: dict[str, Any] = {
        "version": __version__,
        "pid": os.getpid(),
        "speed": speed,
        "epoch": epoch,
        "network": str(site.network),
        "resolver": resolver,
        "privileged": site.privileged,
        "environment": told,
    }
    ovirt = serving.Served(site)
    await ovirt.start()
    async with _Listeners() as listeners:
        provider = plain.application(site, tokens)
        controls = control.application(site, key, tokens, about, stopping.set, ovirt.engine)
        controls[plain.PROVIDER] = provider[plain.PROVIDER]
        about["plain"] = await listeners.add(provider)
        about["control"] = await listeners.add(controls)
        about["ovirt"] = _introduced(folder, ovirt)
        about["environment"]["OVIRT_CONFIG"] = str(folder / client.OVIRT_CONFIG)
        secret = {"key": key, "ovirt": {**about["ovirt"], "viewer_password": ovirt.password(serving.VIEWER)}}
        _write(folder / client.DESCRIPTION, json.dumps({**about, **secret}, indent=1))
        _log.info("the lab is ready in %s", site.network)
        try:
            await _told_or_deserted(folder, stopping)
        finally:
            if _described(folder) == os.getpid():
                for name in (client.DESCRIPTION, client.OVIRT_CONFIG, client.OVIRT_CA):
                    (folder / name).unlink(missing_ok=True)
            await ovirt.stop()
            await site.stop()
    _log.info("the lab has stopped")


def _introduced(folder: Path, ovirt: serving.Served) -> dict[str, str]:
    """Write what clients of the engine read; what others may know of it is told."""
    _write(folder / client.OVIRT_CONFIG, yaml.safe_dump(ovirt.config(), sort_keys=False))
    _write(folder / client.OVIRT_CA, ovirt.engine.ca_pem)
    where = {"url": ovirt.url, "fqdn": ovirt.fqdn, "username": serving.ADMIN}
    return {**where, "ca_file": str(folder / client.OVIRT_CA)}


async def _told_or_deserted(folder: Path, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        if _described(folder) != os.getpid():
            _log.warning("%s is gone, or another's: nobody can find this lab any more", folder / client.DESCRIPTION)
            return
        if owner.is_orphaned(folder):
            _log.warning("whoever this lab was for has died")
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), _LOOK_SECONDS)


def _described(folder: Path) -> int | None:
    """Which process the folder says is the lab."""
    try:
        return int(json.loads((folder / client.DESCRIPTION).read_text(encoding="utf-8"))["pid"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


class _Listeners:
    """HTTP servers on loopback ports that the kernel chooses."""

    def __init__(self) -> None:
        self._runners: list[web.AppRunner] = []

    async def add(self, app: web.Application) -> str:
        runner = web.AppRunner(app, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        listener = web.TCPSite(runner, HERE, 0)
        await listener.start()
        return f"http://{HERE}:{runner.addresses[0][1]}"

    async def __aenter__(self) -> _Listeners:
        return self

    async def __aexit__(self, *_: object) -> None:
        for runner in self._runners:
            await runner.cleanup()


def _write(path: Path, content: str) -> None:
    draft = path.with_suffix(".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
    draft.replace(path)
