"""What a bootstrap node learns about its cluster from the manifests on its disk: names, networks, size.

Only the files that OpenShift's own images read by name are looked at.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

from moorage.lab.nodes import files as files_

ROOT = "/opt/openshift"
INFRASTRUCTURE = f"{ROOT}/manifests/cluster-infrastructure-02-config.yml"
DNS = f"{ROOT}/manifests/cluster-dns-02-config.yml"
NETWORK = f"{ROOT}/manifests/cluster-network-02-config.yml"
INSTALL_CONFIG = f"{ROOT}/manifests/cluster-config.yaml"

SINGLE_REPLICA = "SingleReplica"


class Unreadable(Exception):  # noqa: N818 - a finding about a file
    """A manifest that a render reads is missing, or makes no sense; says which and why."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """The cluster to be."""

    domain: str
    infra_id: str
    api_url: str
    api_int_url: str
    topology: str
    service_network: str
    control_plane_replicas: int

    @property
    def api_host(self) -> str:
        return urlsplit(self.api_url).hostname or ""

    @property
    def api_int_host(self) -> str:
        return urlsplit(self.api_int_url).hostname or ""

    @property
    def service_address(self) -> str:
        """The first address of the service network: the service `kubernetes` itself."""
        return str(ipaddress.ip_network(self.service_network)[1])

    @property
    def highly_available(self) -> bool:
        return self.topology != SINGLE_REPLICA


def manifest(disk: files_.Files, path: str) -> dict[str, Any]:
    """A manifest by its path; `Unreadable` if it is not there or not an object."""
    try:
        found = yaml.safe_load(disk.read(path))
    except FileNotFoundError as problem:
        raise Unreadable(str(problem)) from problem
    except yaml.YAMLError as problem:
        raise Unreadable(f"failed to parse {path}: {' '.join(str(problem).split())}") from problem
    if not isinstance(found, dict):
        raise Unreadable(f"failed to parse {path}: it is not an object")
    return found


def read(disk: files_.Files) -> Facts:
    """The cluster as the manifests describe it."""
    infrastructure = manifest(disk, INFRASTRUCTURE)
    return Facts(
        domain=str(_value(manifest(disk, DNS), DNS, "spec", "baseDomain")),
        infra_id=str(_value(infrastructure, INFRASTRUCTURE, "status", "infrastructureName")),
        api_url=_url(infrastructure, "apiServerURL"),
        api_int_url=_url(infrastructure, "apiServerInternalURI"),
        topology=str((infrastructure.get("status") or {}).get("controlPlaneTopology") or "HighlyAvailable"),
        service_network=_service_network(disk),
        control_plane_replicas=_replicas(disk),
    )


def _value(content: Mapping[str, Any], path: str, *keys: str) -> Any:
    found: Any = content
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    if not found:
        raise Unreadable(f"{path}: {'.'.join(keys)} is not set")
    return found


def _url(infrastructure: Mapping[str, Any], key: str) -> str:
    found = str(_value(infrastructure, INFRASTRUCTURE, "status", key))
    if not urlsplit(found).hostname:
        raise Unreadable(f"{INFRASTRUCTURE}: status.{key}: {found!r} is not a URL")
    return found


def _service_network(disk: files_.Files) -> str:
    networks = _value(manifest(disk, NETWORK), NETWORK, "spec", "serviceNetwork")
    try:
        return str(ipaddress.ip_network(networks[0]))
    except (ValueError, LookupError, TypeError) as problem:
        raise Unreadable(f"{NETWORK}: spec.serviceNetwork: {problem}") from problem


def _replicas(disk: files_.Files) -> int:
    text = _value(manifest(disk, INSTALL_CONFIG), INSTALL_CONFIG, "data", "install-config")
    try:
        found = yaml.safe_load(text)["controlPlane"]["replicas"]
        return int(found)
    except (yaml.YAMLError, LookupError, TypeError, ValueError) as problem:
        raise Unreadable(f"failed to get install config from cluster configmap: {problem}") from problem
