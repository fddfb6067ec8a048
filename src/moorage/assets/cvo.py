"""The cluster-version operator, told what to install and what to leave alone for now.

On the bootstrap node this operator and the installer's manifests race for the same objects. So for that time every
manifest of ours is declared unmanaged; as soon as they are all created, a patch puts back what the user had asked for.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import yaml

from moorage import errors
from moorage.assets import documents, objects, values
from moorage.assets.graph import asset
from moorage.config import model

OVERRIDES = "manifests/cvo-overrides.yaml"
ORIGINAL_OVERRIDES = "original_cvo_overrides.patch"


@asset()
def cluster_version_manifest(
    install_config: model.InstallConfig, cluster_id: values.ClusterID, release: values.Release
) -> values.Files:
    """The ClusterVersion object: where updates come from, and which optional components are wanted."""
    spec: dict[str, object] = {}
    if release.upstream:
        spec["upstream"] = release.upstream
    spec["channel"] = release.channel
    spec["clusterID"] = cluster_id.uuid
    if install_config.capabilities is not None:
        wanted = install_config.capabilities
        capabilities: dict[str, object] = {"baselineCapabilitySet": wanted.baseline_capability_set}
        if wanted.additional_enabled_capabilities:
            capabilities["additionalEnabledCapabilities"] = list(wanted.additional_enabled_capabilities)
        spec["capabilities"] = capabilities
    manifest = {
        "apiVersion": "config.openshift.io/v1",
        "kind": "ClusterVersion",
        "metadata": {"name": "version", "namespace": "openshift-cluster-version"},
        "spec": spec,
    }
    return objects.file(OVERRIDES, manifest)


def ignore(manifests: values.Files, openshift: values.Files) -> tuple[bytes, bytes]:
    """The bootstrap node's `cvo-overrides.yaml`, and the JSON merge patch that restores the user's own overrides."""
    _refuse_same_names(manifests, openshift)
    found = [
        document
        for files in (manifests, openshift)
        for path, content in sorted(files.items())
        for document in documents.read(path, content)
    ]
    _refuse_same_objects(found)
    version = _cluster_version(manifests, found)
    spec = version.manifest.setdefault("spec", {})
    if not isinstance(spec, dict):
        raise documents.unusable(version.path, version.line, "spec is not a mapping")
    original = spec.get("overrides")
    ours = [_unmanaged(document.identity) for document in found if document.path != OVERRIDES]
    theirs = _checked(version, original)
    # The API server takes one override per object: during the bootstrap ours stands in for the user's.
    taken = {_key(override) for override in ours}
    overrides = [*ours, *(override for override in theirs if _key(override) not in taken)]
    patch = {"spec": {"overrides": original}}
    return (
        objects.to_yaml({**version.manifest, "spec": {**spec, "overrides": overrides}}),
        json.dumps(patch, separators=(",", ":")).encode(),
    )


def _refuse_same_names(manifests: values.Files, openshift: values.Files) -> None:
    names = {pathlib.PurePosixPath(path).name: path for path in manifests}
    for path in sorted(openshift):
        if other := names.get(pathlib.PurePosixPath(path).name):
            raise errors.ConfigError(
                f"{other} and {path} have the same file name: the bootstrap node puts both into one folder, "
                "where the second would replace the first",
                remedy=f"rename {path}",
            )


def _refuse_same_objects(found: list[documents.Document]) -> None:
    seen: dict[documents.Identity, documents.Document] = {}
    for document in found:
        other = seen.setdefault(document.identity, document)
        if other is not document:
            raise errors.ConfigError(
                f"{document.identity} is defined twice: in {other.path}, line {other.line}, "
                f"and in {document.path}, line {document.line}",
                remedy="remove one of them",
            )


def _cluster_version(manifests: values.Files, found: list[documents.Document]) -> documents.Document:
    here = [document for document in found if document.path == OVERRIDES]
    if len(here) != 1 or here[0].identity.kind != "ClusterVersion":
        raise errors.ConfigError(
            f"{OVERRIDES} must hold the ClusterVersion object and nothing else",
            remedy=f"put the object back into {OVERRIDES}, or delete all of manifests/ to have it written again",
        )
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(manifests[OVERRIDES], documents.Loader)):
        raise documents.unusable(OVERRIDES, here[0].line, "uses a YAML alias: write its value out")
    return here[0]


def _checked(version: documents.Document, original: Any) -> list[dict[str, Any]]:
    if original is None:
        return []
    if not isinstance(original, list) or not all(isinstance(override, dict) for override in original):
        raise documents.unusable(version.path, version.line, "spec.overrides is not a list of mappings")
    return original


def _unmanaged(identity: documents.Identity) -> dict[str, Any]:
    return {
        "kind": identity.kind,
        "group": identity.group,
        "namespace": identity.namespace,
        "name": identity.name,
        "unmanaged": True,
    }


def _key(override: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(override.get(field, "")) for field in ("kind", "group", "namespace", "name"))
