"""What a cluster on machines of the user's own needs: nothing but the word ``None``.

The user brings machines, names and balancers, so there are no credentials, no machine objects and no VIPs, and destroy
has nothing to find.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moorage.assets import platform, values
from moorage.config import model


class NoPlatform:
    """The manifests hook of a platform that Moorage does not talk to."""

    name = "none"

    def api_vips(self, config: model.InstallConfig) -> tuple[str, ...]:
        return ()

    def ingress_vips(self, config: model.InstallConfig) -> tuple[str, ...]:
        return ()

    def infrastructure(self, context: platform.Context) -> platform.Infrastructure:
        return platform.Infrastructure(type="None", spec={}, status={})

    def cloud_config(self, context: platform.Context) -> Mapping[str, str]:
        return {}

    def credentials(self, context: platform.Context) -> tuple[str, Mapping[str, str]] | None:
        return None

    def masters(self, context: platform.Context) -> Sequence[values.Manifest]:
        return ()

    def control_plane_machine_set(self, context: platform.Context) -> values.Manifest | None:
        return None

    def workers(self, context: platform.Context) -> Sequence[values.Manifest]:
        return ()

    def worker_machines(self, context: platform.Context) -> Sequence[values.Manifest]:
        return ()

    def extra(self, context: platform.Context) -> Mapping[str, values.Manifest]:
        return {}

    def bootstrap_files(self, context: platform.Context) -> Sequence[values.IgnitionFile]:
        return ()

    def bootstrap_units(self, context: platform.Context) -> Sequence[values.IgnitionUnit]:
        return ()

    def metadata(self, context: platform.Context) -> Mapping[str, object]:
        return {}

    def companion_files(self, context: platform.Context) -> values.Files:
        return {}


MANIFESTS: platform.Manifests = NoPlatform()
