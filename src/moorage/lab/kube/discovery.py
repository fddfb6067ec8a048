"""What an API says it serves: groups, versions and resources, in the older documents and in the aggregated ones.

Clients such as kubectl read these first and find kinds, short names and verbs by them. Documents are made once per
generation of the kinds.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from moorage.lab.kube import kinds as kinds_

Document = dict[str, Any]

AGGREGATED = ("v2", "v2beta1")
"""The versions in which `aggregated` can be asked for."""

_READ_WRITE = ("get", "patch", "update")
# What a subresource is served as, if not as the kind it belongs to, and what may be done to it.
_SUBRESOURCES: dict[str, tuple[tuple[str, str, str] | None, tuple[str, ...]]] = {
    "approval": (None, _READ_WRITE),
    "binding": (("", "v1", "Binding"), ("create",)),
    "ephemeralcontainers": (None, _READ_WRITE),
    "eviction": (("policy", "v1", "Eviction"), ("create",)),
    "finalize": (None, ("update",)),
    "resize": (None, _READ_WRITE),
    "scale": (("autoscaling", "v1", "Scale"), _READ_WRITE),
    "status": (None, _READ_WRITE),
    "token": (("authentication.k8s.io", "v1", "TokenRequest"), ("create",)),
}
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")

_T = TypeVar("_T")


def per_generation(make: Callable[..., _T]) -> Callable[..., _T]:
    """Keep what is made of the kinds (the first argument) until these change."""

    @functools.wraps(make)
    def kept(kinds: kinds_.Kinds, *arguments: Any) -> _T:
        shelf: dict[Any, Any] = kinds.__dict__.setdefault("_documents", {})
        key = make.__module__, make.__name__, arguments
        generation, found = shelf.get(key, (-1, None))
        if generation != kinds.generation:
            found = make(kinds, *arguments)
            shelf[key] = kinds.generation, found
        return found  # type: ignore[no-any-return]

    return kept


def subresource_kind(kind: kinds_.Kind, subresource: str) -> tuple[str, str, str]:
    """Group, version and kind of the objects that a subresource takes and gives."""
    served = _SUBRESOURCES[subresource][0]
    return served or (kind.group, kind.version, kind.name)


def subresource_verbs(subresource: str) -> tuple[str, ...]:
    """What may be done to a subresource."""
    return _SUBRESOURCES[subresource][1]


def api_versions(kinds: kinds_.Kinds, server_address: str) -> Document:
    """``/api``."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}]
    return {"kind": "APIVersions", "versions": _versions(kinds, ""), "serverAddressByClientCIDRs": addresses}


def group_list(kinds: kinds_.Kinds) -> Document:
    """``/apis``."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name, _versions(kinds, name)) for name in _groups(kinds)],
    }


def group(kinds: kinds_.Kinds, name: str) -> Document | None:
    """``/apis/GROUP``; None if there is no such group."""
    versions = _versions(kinds, name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions and name else None


@per_generation
def resource_list(kinds: kinds_.Kinds, group: str, version: str) -> Document | None:
    """``/api/v1`` and ``/apis/GROUP/VERSION``; None if nothing is served there."""
    resources: list[Document] = []
    for kind in sorted(_served(kinds, group, version), key=lambda kind: kind.plural):
        resources.append(
            {
                "name": kind.plural,
                "singularName": kind.singular or kind.name.lower(),
                "namespaced": kind.namespaced,
                "kind": kind.name,
                "verbs": list(kind.verbs),
                **_names(kind),
            }
        )
        for subresource in sorted(kind.subresources):
            resources.append({"name": f"{kind.plural}/{subresource}", "singularName": "", **_part(kind, subresource)})
    if not resources:
        return None
    shown: Document = {"kind": "APIResourceList"}
    if group:
        shown["apiVersion"] = "v1"
    return {**shown, "groupVersion": f"{group}/{version}" if group else version, "resources": resources}


@per_generation
def aggregated(kinds: kinds_.Kinds, core: bool, version: str = "v2") -> Document:
    """``/api`` or ``/apis`` for a client that asks for everything at once."""
    items = [_aggregated_group(kinds, name) for name in ([""] if core else _groups(kinds))]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def version_order(version: str) -> tuple[int, int, int, str]:
    """Sorts versions as clients are offered them: v2, v1, v1beta1, v1alpha1, then everything else by name."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (stage, -int(found[1]), -int(found[3] or 0), "")


def _groups(kinds: kinds_.Kinds) -> list[str]:
    return list(dict.fromkeys(kind.group for kind in kinds if kind.group))


def _versions(kinds: kinds_.Kinds, group: str) -> list[str]:
    return sorted({kind.version for kind in kinds if kind.group == group}, key=version_order)


def _served(kinds: kinds_.Kinds, group: str, version: str) -> Iterable[kinds_.Kind]:
    return (kind for kind in kinds if (kind.group, kind.version) == (group, version))


def _group(name: str, versions: list[str]) -> Document:
    shown = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": shown, "preferredVersion": shown[0]}


def _names(kind: kinds_.Kind) -> Document:
    found: Document = {}
    if kind.short_names:
        found["shortNames"] = list(kind.short_names)
    if kind.categories:
        found["categories"] = list(kind.categories)
    return found


def _part(kind: kinds_.Kind, subresource: str) -> Document:
    group, version, name = subresource_kind(kind, subresource)
    found: Document = {"namespaced": kind.namespaced}
    if (group, version) != (kind.group, kind.version):
        found |= {"group": group, "version": version}
    return {**found, "kind": name, "verbs": list(subresource_verbs(subresource))}


def _aggregated_group(kinds: kinds_.Kinds, name: str) -> Document:
    metadata: Document = {"creationTimestamp": None}
    versions = []
    for version in _versions(kinds, name):
        resources = [_aggregated(kind) for kind in sorted(_served(kinds, name, version), key=lambda kind: kind.plural)]
        versions.append({"version": version, "resources": resources, "freshness": "Current"})
    return {"metadata": {"name": name, **metadata} if name else metadata, "versions": versions}


def _aggregated(kind: kinds_.Kind) -> Document:
    found: Document = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.name},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular or kind.name.lower(),
        "verbs": list(kind.verbs),
        **_names(kind),
    }
    if kind.subresources:
        found["subresources"] = [
            {
                "subresource": subresource,
                "responseKind": dict(
                    zip(("group", "version", "kind"), subresource_kind(kind, subresource), strict=True)
                ),
                "verbs": list(subresource_verbs(subresource)),
            }
            for subresource in sorted(kind.subresources)
        ]
    return found
