"""What a cluster is made of on the file cloud: network, image, balancer, two records, a bootstrap and the masters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from moorage.engine import context, errors, flow, outputs, resource, secret
from moorage.platforms import contract
from tests.crash.filecloud import client as clients


@dataclasses.dataclass(frozen=True)
class Made:
    """What others need to know of a thing."""

    id: str
    address: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Thing(resource.Resource[Made]):
    """Anything on the file cloud."""

    client: clients.Client
    infra_id: str
    tags: tuple[str, ...] = ()
    settle: float = 30.0
    every: float = 10.0

    def spec(self, inputs: outputs.Inputs) -> Mapping[str, Any]:
        """What is asked for beside name and tags."""
        return {need: inputs[need]["id"] for need in self.needs}

    @property
    def full_name(self) -> str:
        return f"{self.infra_id}-{self.name}"

    def lookup(self, inputs: outputs.Inputs, ctx: context.Context) -> Made | None:
        ident = ctx.created_id or self._listed()
        # A list is hearsay: it goes on naming what is gone, so the thing itself is asked.
        return _made(self.client.call("GET", f"/v1/{self.kind}/{ident}")) if ident else None

    def _listed(self) -> str:
        owned = self.client.owned(self.kind, self.infra_id, name=self.full_name)
        return next((str(item["id"]) for item in owned if item["name"] == self.full_name), "")

    def create(self, inputs: outputs.Inputs, ctx: context.Context) -> str | None:
        tags = [f"cluster:{self.infra_id}", *self.tags]
        body = {"name": self.full_name, "tags": tags, "spec": dict(self.spec(inputs))}
        return str(self.client.call("POST", f"/v1/{self.kind}", body)["id"])

    def wait(self, inputs: outputs.Inputs, ctx: context.Context) -> Made:
        found = super().wait(inputs, ctx)

        def ready() -> Made | None:
            item = self.client.call("GET", f"/v1/{self.kind}/{found.id}")
            if item["state"] == "error":
                raise errors.Terminal(f"{self.full_name} is in state error", words=str(item.get("reason", "")))
            return _made(item) if item["state"] == "ready" else None

        return ctx.poll(ready, what=f"{self.full_name} to be ready", every=self.every)

    def delete(self, inputs: outputs.Inputs, output: Made, ctx: context.Context) -> None:
        self.client.call("DELETE", f"/v1/{self.kind}/{output.id}")


def _made(item: Mapping[str, Any]) -> Made:
    return Made(str(item["id"]), str(item.get("address", "")))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network(Thing):
    kind: ClassVar[str] = "network"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Image(Thing):
    kind: ClassVar[str] = "image"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Balancer(Thing):
    kind: ClassVar[str] = "balancer"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record(Thing):
    kind: ClassVar[str] = "record"
    host: str

    def spec(self, inputs: outputs.Inputs) -> Mapping[str, Any]:
        return {"host": self.host, "address": inputs["balancer"]["address"]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine(Thing):
    kind: ClassVar[str] = "machine"
    user_data: bytes = dataclasses.field(repr=False)

    def spec(self, inputs: outputs.Inputs) -> Mapping[str, Any]:
        return {"network": inputs["network"]["id"], "image": inputs["image"]["id"], "data": self.user_data.decode()}


def declare(cluster: contract.Cluster, around: contract.Surroundings) -> flow.Flow:
    """The day-1 flow. FILECLOUD_RENAME stands for a later version that names and orders things differently."""
    common: dict[str, Any] = {"client": clients.Client(around), "infra_id": cluster.infra_id}
    names = cluster.endpoints
    balancer = ("network", "image") if around.environ.get("FILECLOUD_RESHAPE") else ("network",)
    booted = ("network", "image", "balancer")
    masters = [
        Machine(
            name=f"master-{number}",
            needs=(*booted, "bootstrap"),
            user_data=cluster.ignition["master"],
            tags=("role:master",),
            expected=15,
            **common,
        )
        for number in range(cluster.config.control_plane_replicas)
    ]
    return flow.Flow(
        "infrastructure",
        (
            Network(name="network", expected=2, **common),
            Image(name="image", expected=5, **common),
            Balancer(name="balancer", needs=balancer, expected=10, **common),
            Record(name="record-api", needs=("balancer",), host=names.api, **common),
            Record(name="record-api-int", needs=("balancer",), host=names.api_int, **common),
            Machine(
                name="bootstrap",
                needs=booted,
                user_data=cluster.ignition["bootstrap"],
                tags=("role:bootstrap",),
                expected=15,
                **common,
            ),
            *masters,
        ),
    )


def secrets(_cluster: contract.Cluster, around: contract.Surroundings) -> Sequence[secret.Secret]:
    return clients.Client(around).secrets()


def cluster_secret(_cluster: contract.Cluster, _around: contract.Surroundings) -> contract.ClusterSecret | None:
    return None
