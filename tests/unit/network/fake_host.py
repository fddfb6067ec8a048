"""A node whose programs and network are in memory; its files are real, below a folder."""

from __future__ import annotations

from pathlib import Path

from moorage.network import cluster_view, host, programs, settings, view
from tests.unit.network import conftest


class FakeHost(host.Host):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.me: view.Self | None = conftest.ME
        self.cluster: tuple[view.Node, ...] | str = conftest.VIEW.nodes
        self.given: tuple[str, ...] = ("192.0.2.53",)
        self.refuses: dict[str, str] = {}
        self.up = {"keepalived", "haproxy"}
        self.told: list[str] = []
        self.answering: set[int] = set()
        self.firewall_works = True
        self.rule = False
        self.on_interface: list[tuple[str, str, int]] = []

    def myself(self, wanted: settings.Settings) -> view.Self | None:
        return self.me

    def nodes(self, wanted: settings.Settings, role: str) -> tuple[view.Node, ...]:
        if isinstance(self.cluster, str):
            raise cluster_view.Unanswered(self.cluster)
        return self.cluster

    def resolvers(self) -> tuple[str, ...]:
        return self.given

    def api_answers(self, port: int) -> bool:
        return port in self.answering

    def objection(self, program: programs.Program, text: str) -> str:
        return self.refuses.get(program.name, "")

    def reload(self, program: programs.Program) -> bool:
        if program.name in self.up:
            self.told.append(program.name)
        return program.name in self.up

    def runs(self, program: programs.Program) -> bool:
        return program.name in self.up

    def put_redirect(self, wanted: settings.Settings, *, on: bool) -> None:
        if not self.firewall_works:
            raise OSError("nft: not permitted")
        mark = self.at("/run/moorage/iptables-rule-exists")
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch() if on else mark.unlink(missing_ok=True)
        self.rule = on

    def carried(self, wanted: settings.Settings) -> list[tuple[str, str, int]]:
        return list(self.on_interface)

    def drop(self, interface: str, address: str, prefix: int) -> None:
        self.on_interface.remove((interface, address, prefix))
