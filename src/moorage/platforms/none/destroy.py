"""Destroying a cluster on machines of the user's own: there is nothing of ours to find."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.engine import secret
from moorage.platforms import contract

SETTLE = 0.0


def discover(
    _metadata: contract.Metadata, _scope: contract.Scope, around: contract.Surroundings
) -> Sequence[contract.Remnant]:
    """Nothing: machines, names and balancers were made by the user and stay theirs."""
    around.trace("platform none: machines, names and balancers are yours; nothing there was made by moorage")
    return ()


def secrets(_metadata: contract.Metadata, _around: contract.Surroundings) -> Sequence[secret.Secret]:
    """None: no one is talked to."""
    return ()
