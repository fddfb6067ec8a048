"""Talking to a lab from another process: finding, starting and stopping it, its controls and its plain provider.

Nothing of the lab is imported here, so that asking it costs no more than an HTTP request.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.client
import json
import os
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from moorage import errors
from moorage.lab import lock, owner

FOLDER = "MOORAGE_LAB"
DESCRIPTION, LOG = "lab.json", "lab.log"
OVIRT_CONFIG, OVIRT_CA = "ovirt-config.yaml", "ovirt-ca.pem"
_START_SECONDS = 30.0
_ANSWER_SECONDS = 60.0


class LabProblem(errors.MoorageError):
    """The lab is not there, or does not do what was asked."""


class NotThere(LabProblem):
    """No lab runs."""


class Died(LabProblem):
    """There was a lab, which did not end in order."""


class Unauthorized(LabProblem):
    """The token has run out."""


def folder(environ: Mapping[str, str]) -> Path:
    """Where the lab lives, unless told otherwise."""
    if environ.get(FOLDER):
        return Path(environ[FOLDER]).absolute()
    state = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "moorage" / "lab"


def quoted(name: str) -> str:
    """A name as one segment of a path."""
    return urllib.parse.quote(name, safe="")


@dataclasses.dataclass(frozen=True)
class Lab:
    """A running lab. ``environment`` is what programs need to meet it, ``ovirt`` where its oVirt engine is."""

    folder: Path
    pid: int
    speed: float
    network: str
    control_url: str
    plain_url: str
    key: str
    environment: Mapping[str, str]
    ovirt: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def control(self, method: str, path: str, body: object = None) -> Any:
        """Use the controls: the decoded answer, or its text where it is not JSON."""
        return _asked(self.control_url, method, path, body, self.key)


def find(where: Path) -> Lab:
    """The lab that runs in a folder."""
    try:
        about = json.loads((where / DESCRIPTION).read_text(encoding="utf-8"))
        found = Lab(
            folder=where,
            pid=about["pid"],
            speed=about["speed"],
            network=about["network"],
            control_url=about["control"],
            plain_url=about["plain"],
            key=about["key"],
            environment=about["environment"],
            ovirt=about["ovirt"],
        )
    except (OSError, ValueError, LookupError, TypeError) as problem:
        if lock.held(where):
            raise LabProblem(f"the lab in {where} is not ready", remedy="try again in a moment") from problem
        raise NotThere(f"no lab runs in {where}", remedy="start one: moorage lab start") from problem
    if not lock.held(where):
        raise Died(f"the lab in {where} has died", remedy="start a new one: moorage lab start")
    return found


def start(where: Path, speed: float) -> Lab:
    """Start a lab and return when it is ready; it goes on when we end, unless somebody owns it."""
    owner.bury(where)
    descriptor = _opened_log(where)
    try:
        process = subprocess.Popen(
            # Not from where we are: neither modules that lie there nor the directory itself are the lab's affair.
            [sys.executable, "-P", "-m", "moorage.lab", str(where), str(speed)],
            cwd=where,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(LabProblem):
            found = find(where)
            if found.pid == process.pid:
                return found
        time.sleep(0.02)
    process.kill()
    process.wait()
    raise _not_started(where / LOG)


def _opened_log(where: Path) -> int:
    # Whoever lives here already goes on writing to the log, so it is not for us to empty it then.
    fresh = 0 if lock.held(where) else os.O_TRUNC
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(where / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | fresh, 0o600)
    except OSError as problem:
        raise LabProblem(
            f"a lab cannot live in {where}: {problem.strerror}", remedy=f"choose another folder: export {FOLDER}=DIR"
        ) from problem


def _not_started(log: Path) -> LabProblem:
    """What the lab's last words say about why it is not there."""
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-2:] or ["it said nothing"]
    if len(said) == 2 and said[0].startswith("error: ") and said[1].startswith("next: "):
        return LabProblem(f"the lab did not start: {said[0][7:]}", remedy=said[1][6:])
    return LabProblem(f"the lab did not start: {said[-1]}", remedy=f"see {log}")


def stop(lab: Lab) -> None:
    """Stop a lab and return when it is gone."""
    stuck = f"see {lab.folder / LOG}, and end it: kill {lab.pid}"
    try:
        lab.control("POST", "/lab/stop")
    except LabProblem as problem:
        if lock.held(lab.folder):
            raise LabProblem(problem.message, remedy=stuck) from problem
    deadline = time.monotonic() + _START_SECONDS
    while lock.held(lab.folder):
        if time.monotonic() > deadline:
            raise LabProblem(f"the lab (process {lab.pid}) does not stop", remedy=stuck)
        time.sleep(0.02)


class Plain:
    """The plain provider: machines, names and balancers."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._token = ""

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Ask, with a new token where the old one has run out."""
        with contextlib.suppress(Unauthorized):
            if self._token:
                return _asked(self._lab.plain_url, method, path, body, self._token)
        self._token = _asked(self._lab.plain_url, "POST", "/v1/tokens", {"key": self._lab.key}, "")["token"]
        return _asked(self._lab.plain_url, method, path, body, self._token)

    def machine(self, name: str, user_data: bytes, *, address: str = "", network: str = "", power: str = "on") -> str:
        """Switch on a machine; the answer is its address."""
        asked = {"userData": base64.b64encode(user_data).decode(), "power": power}
        asked |= {key: value for key, value in (("address", address), ("network", network)) if value}
        return str(self.call("PUT", f"/v1/machines/{quoted(name)}", asked)["address"])

    def machines(self) -> Iterator[dict[str, Any]]:
        """All machines, page by page."""
        after = ""
        while True:
            page = self.call("GET", f"/v1/machines?after={quoted(after)}")
            yield from page["items"]
            after = page.get("after", "")
            if not after:
                return

    def console(self, name: str) -> str:
        return str(self.call("GET", f"/v1/machines/{quoted(name)}/console"))

    def delete_machine(self, name: str) -> None:
        self.call("DELETE", f"/v1/machines/{quoted(name)}")

    def record(self, name: str, *addresses: str) -> None:
        self.call("PUT", f"/v1/records/{quoted(name)}/A", {"values": list(addresses)})

    def zone(self, name: str) -> None:
        self.call("PUT", f"/v1/zones/{quoted(name)}")

    def balancer(self, name: str, listeners: Sequence[Mapping[str, object]]) -> str:
        """Make a balancer, or change its listeners; the answer is its address."""
        return str(self.call("PUT", f"/v1/balancers/{quoted(name)}", {"listeners": list(listeners)})["address"])


def _asked(url: str, method: str, path: str, body: object, token: str) -> Any:
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=_ANSWER_SECONDS)
    headers = {"User-Agent": "moorage", "Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        reply = connection.getresponse()
        content = reply.read().decode()
        answer = json.loads(content) if reply.headers.get_content_type() == "application/json" else content
    except (OSError, http.client.HTTPException, ValueError) as problem:
        raise LabProblem(f"the lab at {url} does not answer: {problem}", remedy="see: moorage lab status") from problem
    finally:
        connection.close()
    if reply.status >= 400:
        found = answer if isinstance(answer, dict) else {"error": str(answer).strip()}
        kind = Unauthorized if reply.status == 401 else LabProblem
        raise kind(f"{found.get('error')} ({reply.status})", remedy=str(found.get("remedy", "")))
    return answer
