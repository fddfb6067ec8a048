"""The look at a platform before the first create. It only reads, so a call that fails in passing is repeated."""

from __future__ import annotations

from moorage.engine import retry
from moorage.platforms import contract, registry


def look(cluster: contract.Cluster, around: contract.Surroundings, *, patience: float) -> contract.Report:
    """What the platform's preflight sees; raises what keeps it from seeing for ``patience`` cloud seconds."""
    platform = registry.preflight(cluster.config.platform.name)
    deadline = around.clock.deadline(patience, "the look at the platform")
    return retry.retry(lambda: platform.inspect(cluster, around), deadline=deadline)
