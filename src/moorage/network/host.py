"""The node as the agent acts on it: files, programs, addresses. What the agent decides is elsewhere.

All paths are below ``root``, which is the node's own unless a test has a folder for it.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from moorage import errors
from moorage.network import checks, cluster_view, local, pods, programs, redirect, settings, view

VIEW_PATH = "/etc/moorage/network-view.json"
STATUS_PATH = f"{pods.RUN}/status.json"


class Host:
    """This node."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def at(self, path: str) -> Path:
        return self._root / path.removeprefix("/")

    # --- what is known ---

    def read_settings(self) -> settings.Settings:
        path = self.at(settings.PATH)
        try:
            return settings.from_json(path.read_bytes(), str(path))
        except OSError as problem:
            raise errors.ConfigError(
                f"{path} cannot be read: {problem.strerror}", remedy="the installer writes it to every node"
            ) from problem

    def known_view(self) -> view.View | None:
        """The view that was last in force, if the node remembers it."""
        try:
            return view.from_data(json.loads(self.at(VIEW_PATH).read_bytes()))
        except (OSError, ValueError, TypeError, errors.ConfigError):
            return None

    def keep_view(self, seen: view.View) -> None:
        programs.write(self.at(VIEW_PATH), json.dumps(seen.to_data(), indent=1) + "\n")

    def keep_status(self, found: dict[str, Any]) -> None:
        programs.write(self.at(STATUS_PATH), json.dumps(found, indent=1) + "\n")

    # --- what is seen ---

    def myself(self, wanted: settings.Settings) -> view.Self | None:
        return local.choose(wanted, local.node_name(), local.links(), local.default_interfaces())

    def nodes(self, wanted: settings.Settings, role: str) -> tuple[view.Node, ...]:
        return cluster_view.nodes(wanted, role, self.at(pods.KUBECONFIGS[role]))

    def resolvers(self) -> tuple[str, ...]:
        return local.resolvers(str(self.at(path)) for path in local.RESOLV_CONFS)

    def api_answers(self, port: int) -> bool:
        return redirect.answers(port)

    # --- configs and programs ---

    def text(self, path: str) -> str | None:
        try:
            return self.at(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        programs.write(self.at(path), text, mode)

    def objection(self, program: programs.Program, text: str) -> str:
        return programs.objection(program.judge, self.at(program.config), text)

    def reload(self, program: programs.Program) -> bool:
        return programs.tell(program.name, self.at(program.pid_file), program.reload)

    def runs(self, program: programs.Program) -> bool:
        return programs.pid(program.name, self.at(program.pid_file)) is not None

    @property
    def halted(self) -> bool:
        return self.at(pods.HALT_MARK).exists()

    def halt(self, why: str) -> None:
        """Let keepalived end, and not begin again."""
        programs.write(self.at(pods.HALT_MARK), f"{why}\n")
        programs.tell(programs.KEEPALIVED.name, self.at(programs.KEEPALIVED.pid_file), signal.SIGTERM)

    def halted_why(self) -> str:
        return (self.text(pods.HALT_MARK) or "").strip()

    def resume(self) -> None:
        self.at(pods.HALT_MARK).unlink(missing_ok=True)

    # --- addresses and rules ---

    @property
    def redirected(self) -> bool:
        return self.at(checks.REDIRECT_MARK).exists()

    def put_redirect(self, wanted: settings.Settings, *, on: bool) -> None:
        redirect.put(wanted, on=on, mark=self.at(checks.REDIRECT_MARK))

    def carried(self, wanted: settings.Settings) -> list[tuple[str, str, int]]:
        return local.carried(wanted, local.links())

    def drop(self, interface: str, address: str, prefix: int) -> None:
        subprocess.run(
            ["ip", "address", "delete", f"{address}/{prefix}", "dev", interface],
            check=True,
            capture_output=True,
            timeout=10,
        )
