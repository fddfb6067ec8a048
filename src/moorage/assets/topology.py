"""How much redundancy the cluster's operators may count on, judged by the number of machines."""

from __future__ import annotations

import dataclasses

from moorage import errors
from moorage.config import model

HIGHLY_AVAILABLE = "HighlyAvailable"
SINGLE_REPLICA = "SingleReplica"


@dataclasses.dataclass(frozen=True)
class Topology:
    """What the control plane offers, and what ingress, registry and monitoring can spread over."""

    control_plane: str
    infrastructure: str


def of(config: model.InstallConfig) -> Topology:
    """The topology of a cluster to be."""
    if config.control_plane_replicas == 2:
        raise errors.ConfigError(
            "controlPlane.replicas is 2: two etcd members lose their quorum as soon as one of them is gone",
            remedy="set controlPlane.replicas to 1 or 3",
        )
    control_plane = SINGLE_REPLICA if config.control_plane_replicas == 1 else HIGHLY_AVAILABLE
    if config.worker_replicas == 0:
        # The control-plane nodes take the workloads, so these are as redundant as it is.
        return Topology(control_plane, control_plane)
    return Topology(control_plane, SINGLE_REPLICA if config.worker_replicas == 1 else HIGHLY_AVAILABLE)
