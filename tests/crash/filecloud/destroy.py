"""Finding what belongs to a cluster on the file cloud: by its mark, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moorage.engine import secret
from moorage.platforms import contract
from tests.crash.filecloud import client as clients

SETTLE = 30.0
_STAGES = {"machine": 0, "record": 1, "balancer": 1, "image": 2, "network": 2}


def discover(
    metadata: contract.Metadata, scope: contract.Scope, around: contract.Surroundings
) -> Sequence[contract.Remnant]:
    client = clients.Client(around)
    return [
        _remnant(client, kind, item)
        for kind in _STAGES
        for item in client.owned(kind, metadata.infra_id)
        if scope == "cluster" or "role:bootstrap" in item["tags"]
    ]


def _remnant(client: clients.Client, kind: str, item: dict[str, Any]) -> contract.Remnant:
    path = f"/v1/{kind}/{item['id']}"

    def present() -> bool:
        return bool(client.call("GET", path))

    return contract.Remnant(kind, item["name"], _STAGES[kind], lambda: client.call("DELETE", path) and None, present)


def secrets(_metadata: contract.Metadata, around: contract.Surroundings) -> Sequence[secret.Secret]:
    return clients.Client(around).secrets()
