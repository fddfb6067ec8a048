"""The install-config of platform `none`: nothing to say, since the user brings machines, names and balancers."""

from __future__ import annotations

from moorage.config import model, stanza


class Platform(model.Section):
    """No settings: machines, DNS records and load balancers are the user's."""


class MachinePool(model.Section):
    """No settings: the user makes the machines."""


STANZA = stanza.Stanza(
    name="none",
    title="None (you bring the machines, DNS and load balancers)",
    platform=Platform,
    machine_pool=MachinePool,
    hardware=True,
)
