"""The actuator: each call is a line to the platform and a line back, which is acknowledged before it is used.

The acknowledgement lets the platform's side end a process between its reading the reply and its acting on it.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from moorage.engine import errors
from moorage.platforms import contract


def actuator(around: contract.Surroundings) -> Actuator:
    return Actuator(around.environ["PIER_SOCKET"])


class Actuator:
    def __init__(self, path: str) -> None:
        self._path = path

    def exists(self, machine: contract.Machine) -> contract.Instance | None:
        found = self._ask("exists", machine).get("instance")
        return None if found is None else _instance(found)

    def create(self, machine: contract.Machine) -> contract.Instance:
        return _instance(self._ask("create", machine)["instance"])

    def update(self, machine: contract.Machine) -> contract.Instance:
        return _instance(self._ask("update", machine)["instance"])

    def delete(self, machine: contract.Machine) -> bool:
        return bool(self._ask("delete", machine)["instance"]["state"] == "gone")

    def _ask(self, verb: str, machine: contract.Machine) -> dict[str, Any]:
        asked = {"pid": os.getpid(), "verb": verb, "name": machine.name, "id": machine.provider_id}
        try:
            with socket.socket(socket.AF_UNIX) as wire:
                wire.connect(self._path)
                with wire.makefile("rwb") as lines:
                    answer = _exchange(lines, asked)
        except (OSError, ValueError) as broken:
            raise errors.Ambiguous(f"the pier does not answer: {broken}") from broken
        if refusal := answer.get("refusal"):
            raise getattr(errors, refusal)(f"{verb} {machine.name}: {refusal}")
        return answer


def _exchange(lines: Any, asked: dict[str, Any]) -> dict[str, Any]:
    lines.write(json.dumps(asked).encode() + b"\n")
    lines.flush()
    answer: dict[str, Any] = json.loads(lines.readline())
    lines.write(b"read\n")
    lines.flush()
    lines.readline()
    return answer


def _instance(found: dict[str, Any]) -> contract.Instance:
    ready = found["state"] == "up"
    waits = "" if ready else f"it to be up: it is {found['state']}"
    return contract.Instance(found["id"], f"pier://{found['id']}", found["state"], ready, (found["address"],), waits)
