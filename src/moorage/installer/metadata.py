"""What is known of a cluster that is to be destroyed: metadata.json is enough, and so are an infraID and a platform."""

from __future__ import annotations

import json
import re
from pathlib import Path

from moorage import errors
from moorage.config import text
from moorage.installer import aside
from moorage.platforms import contract, registry

FILE, JOURNAL = aside.METADATA, aside.JOURNAL
_INFRA_ID = re.compile(r"[a-z0-9][-a-z0-9]{0,20}-[a-z0-9]{5}")


def read(path: Path) -> contract.Metadata:
    """The metadata in a file."""
    try:
        content = json.loads(path.read_bytes())
        known = registry.packages()
        (platform,) = [key for key in content if key in known]
        return contract.Metadata(
            platform=platform,
            infra_id=_mark(content["infraID"]),
            cluster_name=str(content.get("clusterName", "")),
            uuid=str(content.get("clusterID", "")),
            settings=dict(content[platform]),
        )
    except FileNotFoundError:
        raise errors.StoreError(
            f"there is no {path}: nothing was created from there",
            remedy="name the directory with --dir, or the cluster with --infra-id and --platform",
        ) from None
    except OSError as problem:
        raise errors.StoreError(f"cannot read {path}: {problem.strerror}", remedy="check its permissions") from problem
    except (ValueError, KeyError, TypeError) as problem:
        raise errors.StoreError(
            f"{path} does not say what cluster it is about ({problem})",
            remedy=f"name the cluster with --infra-id and --platform {text.one_of(registry.packages())}",
        ) from problem


def named(infra_id: str, platform: str) -> contract.Metadata:
    """What is known when nothing is left but the cluster's mark."""
    registry.destroy(platform)
    try:
        return contract.Metadata(platform=platform, infra_id=_mark(infra_id))
    except ValueError as problem:
        raise errors.ConfigError(str(problem), remedy="an infraID looks like harbour-x7k2p") from None


def _mark(infra_id: object) -> str:
    """The infraID, if it can be one: an empty or partial mark would match what belongs to others."""
    if not isinstance(infra_id, str) or not _INFRA_ID.fullmatch(infra_id):
        raise ValueError(f"{infra_id!r} is no infraID")
    return infra_id


def found_in(root: Path) -> contract.Metadata:
    """The cluster that a directory is about: its metadata.json, or that of the one destroyed last from there.

    A second destroy thus looks once more, and succeeds.
    """
    path = root / FILE
    if not path.exists():
        path = max((root / aside.FOLDER).glob(f"*/{FILE}"), key=lambda one: one.stat().st_mtime, default=path)
    return read(path)
