"""The places that the conformance suite is run on: one entry per platform, each with its cloud and its controls.

A new platform adds one function here (a context manager that yields a `Place`) and its name to `PLACES`; the suite does
the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from moorage.assets import keys
from moorage.engine import clock as clocks
from moorage.installer import produce
from moorage.platforms import contract
from tests.conftest import INSTALL_CONFIG
from tests.crash import harness

Inventory = list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Place:
    """A platform with a cloud behind it, and a cluster that shall go there."""

    name: str
    cluster: contract.Cluster
    around: contract.Surroundings
    #: All that exists, the things of others included, in a form that two equal clouds have in common.
    inventory: Callable[[], Inventory]
    #: Make things that bear another cluster's mark.
    settle_neighbour: Callable[[str], None]
    #: What the client's trace told.
    traced: list[str]

    @property
    def metadata(self) -> contract.Metadata:
        return contract.Metadata(self.name, self.cluster.infra_id, self.cluster.config.name)

    def with_environ(self, **environ: str) -> contract.Surroundings:
        return dataclasses.replace(self.around, environ={**self.around.environ, **environ})


def _cluster(folder: Path, config: str, ring: keys.Keyring) -> contract.Cluster:
    directory = harness.prepared(folder / "cluster", ring, config)
    return produce.cluster(produce.produce(directory, ("boot_configs",), keys.KeySource(0), {}))


@contextlib.contextmanager
def filecloud(folder: Path, ring: keys.Keyring) -> Iterator[Place]:
    """The file cloud of the crash tests, at its most inconvenient."""
    with harness.running(folder) as cloud:
        cloud.reset(lag=1)
        traced: list[str] = []
        yield Place(
            name="filecloud",
            cluster=_cluster(folder, harness.CONFIG, ring),
            around=contract.Surroundings(cloud.environ(), clocks.Clock(float(harness.SPEED)), traced.append),
            inventory=cloud.inventory,
            settle_neighbour=cloud.neighbour,
            traced=traced,
        )


@contextlib.contextmanager
def none(folder: Path, ring: keys.Keyring) -> Iterator[Place]:
    """Machines of the user's own: there is no cloud, so nothing can be there."""
    traced: list[str] = []
    yield Place(
        name="none",
        cluster=_cluster(folder, INSTALL_CONFIG, ring),
        around=contract.Surroundings({}, clocks.Clock(float(harness.SPEED)), traced.append),
        inventory=list,
        settle_neighbour=lambda _infra_id: None,
        traced=traced,
    )


PLACES = {"filecloud": filecloud, "none": none}
"""Every platform."""

BUILT = ("filecloud",)
"""The platforms on which moorage makes the machines."""
