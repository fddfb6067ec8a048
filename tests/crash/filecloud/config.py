"""The install-config of the file cloud: where it is comes from the environment, so there is little to say."""

from __future__ import annotations

from typing import Annotated

from moorage.config import model, stanza
from moorage.config.model import about


class Platform(model.Section):
    """Settings of a cluster on the file cloud."""

    image: Annotated[str, about("The operating system's image.")] = "coreos"


class MachinePool(model.Section):
    """No settings."""


STANZA = stanza.Stanza(name="filecloud", title="File cloud (tests)", platform=Platform, machine_pool=MachinePool)
