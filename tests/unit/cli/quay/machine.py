"""The actuator: a file for each instance. Whoever has not the password that is written beside them is refused."""

from __future__ import annotations

import json
from pathlib import Path

from moorage.engine import errors
from moorage.platforms import contract


def actuator(around: contract.Surroundings) -> Actuator:
    return Actuator(Path(around.environ["QUAY_FOLDER"]), Path(around.environ.get("QUAY_PASSWORD", "/nowhere")))


class Actuator:
    def __init__(self, folder: Path, password: Path) -> None:
        self._folder = folder
        self._password = password

    def exists(self, machine: contract.Machine) -> contract.Instance | None:
        self._sign_in()
        file = self._file(machine)
        return self._told(file) if file.exists() else None

    def create(self, machine: contract.Machine) -> contract.Instance:
        self._sign_in()
        number = len(list(self._folder.glob("*.json"))) + 1
        made = {"infra": machine.infra_id, "address": f"10.0.0.{number}", "data": machine.user_data.decode()}
        with self._file(machine).open("x") as file:
            json.dump(made, file)
        return self._told(self._file(machine))

    def update(self, machine: contract.Machine) -> contract.Instance:
        found = self.exists(machine)
        if found is None:
            raise errors.NotFound(f"{machine.name} is not there")
        return found

    def delete(self, machine: contract.Machine) -> bool:
        self._sign_in()
        try:
            self._file(machine).unlink()
        except FileNotFoundError:
            raise errors.NotFound(f"{machine.name} is gone") from None
        return True

    def _sign_in(self) -> None:
        wanted = (self._folder / "password").read_text()
        if not self._password.exists() or self._password.read_text() != wanted:
            raise errors.Unauthorized("the quay does not know this password")

    def _file(self, machine: contract.Machine) -> Path:
        return self._folder / f"{machine.name}.json"

    def _told(self, file: Path) -> contract.Instance:
        found = json.loads(file.read_text())
        return contract.Instance(file.stem, f"quay://{file.stem}", "moored", True, (found["address"],))
