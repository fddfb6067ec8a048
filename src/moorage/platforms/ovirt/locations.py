"""Where a VM is, in the words of clouds: the data centre is its region, and the cluster in it is its zone.

Storage and networks belong to a data centre, and hosts to a cluster: a VM runs on any host of its cluster and never
leaves it by itself. That is what schedulers mean by these words. Names never change in practice, so each cluster is
looked up once; one that cannot be seen is left alone for a while.
"""

from __future__ import annotations

import re
import threading
from typing import Any, Final

from moorage.engine import errors
from moorage.platforms import contract
from moorage.platforms.ovirt import client as clients

#: Cloud seconds until a cluster that could not be looked up is looked up again.
PAUSE: Final = 600.0
_LABEL: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class Locations:
    """The places of an engine; shared by threads."""

    def __init__(self, client: clients.Client) -> None:
        self._client = client
        self._turn = threading.Lock()
        self._known: dict[str, contract.Place] = {}
        #: When a cluster could not be looked up.
        self._failed: dict[str, float] = {}

    def of(self, cluster_id: str) -> contract.Place:
        """The place of a cluster's VMs; an empty one while the engine does not tell."""
        with self._turn:
            if cluster_id in self._known:
                return self._known[cluster_id]
            now = self._client.clock.now()
            if cluster_id in self._failed and now - self._failed[cluster_id] < PAUSE:
                return contract.Place()
            # One asks for all: machines come by the hundred, from few clusters.
            try:
                self._known[cluster_id] = self._look_up(cluster_id)
            except errors.PlatformFailure:
                self._failed[cluster_id] = now
                raise
            return self._known[cluster_id]

    def _look_up(self, cluster_id: str) -> contract.Place:
        cluster = self._client.call(
            f"look at cluster {cluster_id}",
            lambda api: api.clusters_service().cluster_service(cluster_id).get(follow="data_center"),
        )
        if cluster is None:
            raise errors.NotFound(f"there is no cluster {cluster_id}", resource=cluster_id)
        return contract.Place(_word(cluster.data_center), _word(cluster))


def _word(thing: Any | None) -> str:
    """Its name if that can be a label, else its id."""
    if thing is None:
        return ""
    name = str(thing.name or "")
    return name if _LABEL.fullmatch(name) else str(thing.id or "")
