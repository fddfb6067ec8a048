"""The file cloud's share of the manifests: as little as platform none's."""

from __future__ import annotations

from collections.abc import Mapping

from moorage.assets import platform
from moorage.platforms.none import manifests as none


class FileCloud(none.NoPlatform):
    """The manifests hook of the file cloud."""

    name = "filecloud"

    def metadata(self, context: platform.Context) -> Mapping[str, object]:
        return {"mark": f"cluster:{context.infra_id}"}


MANIFESTS: platform.Manifests = FileCloud()
