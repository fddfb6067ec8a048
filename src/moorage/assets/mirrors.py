"""Where images can be had instead of their source, told to the cluster.

Both spellings of the install-config come here: imageDigestSources becomes an ImageDigestMirrorSet, the deprecated
imageContentSources an ImageContentSourcePolicy. The bootstrap node passes whichever file exists to `oc`.
"""

from __future__ import annotations

from moorage.assets import objects, values
from moorage.assets.graph import asset
from moorage.config import model


@asset()
def mirror_manifests(install_config: model.InstallConfig) -> values.Files:
    """Mirrors of image repositories; nothing where the images are pulled from their source."""
    files: list[values.Files] = []
    if install_config.image_digest_sources:
        mirrors = [_digest_mirrors(source) for source in install_config.image_digest_sources]
        manifest = _object(
            "config.openshift.io/v1", "ImageDigestMirrorSet", "image-digest-mirror", {"imageDigestMirrors": mirrors}
        )
        files.append(objects.file("manifests/image-digest-mirror-set.yaml", manifest))
    if install_config.image_content_sources:
        mirrors = [_repository(source) for source in install_config.image_content_sources]
        manifest = _object(
            "operator.openshift.io/v1alpha1",
            "ImageContentSourcePolicy",
            "image-policy",
            {"repositoryDigestMirrors": mirrors},
        )
        files.append(objects.file("manifests/image-content-source-policy.yaml", manifest))
    return objects.merge(*files)


def _object(api_version: str, kind: str, name: str, spec: dict[str, object]) -> values.Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _repository(source: model.ImageSource) -> dict[str, object]:
    return {"source": source.source, "mirrors": list(source.mirrors)}


def _digest_mirrors(source: model.ImageSource) -> dict[str, object]:
    entry = _repository(source)
    # Without mirrors a policy would say nothing, or cut the repository off altogether; the API refuses it.
    if source.source_policy and source.mirrors:
        entry["mirrorSourcePolicy"] = source.source_policy
    return entry
