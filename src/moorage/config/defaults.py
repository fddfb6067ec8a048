"""What a field is when the install-config does not say: the same choices as openshift-install's.

The constants are the model's defaults; `fill` adds those that depend on the platform or on another field. It works on
plain data before the model sees it, and never overrides what the user wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ARCHITECTURE: Final = "amd64"
CONTROL_PLANE_NAME: Final = "master"
COMPUTE_NAME: Final = "worker"
REPLICAS: Final = 3
NETWORK_TYPE: Final = "OVNKubernetes"
MACHINE_NETWORK: Final = "10.0.0.0/16"
SERVICE_NETWORK: Final = "172.30.0.0/16"
CLUSTER_NETWORK: Final = "10.128.0.0/14"
HOST_PREFIX_V4: Final = 23
HOST_PREFIX_V6: Final = 64

_NETWORKS: Final = ("clusterNetwork", "machineNetwork", "serviceNetwork")


def with_host_prefix(entry: Any) -> Any:
    """A cluster network with the usual host prefix of its family, unless it has one."""
    if not isinstance(entry, dict) or "hostPrefix" in entry or "host_prefix" in entry:
        return entry
    is_v6 = isinstance(entry.get("cidr"), str) and ":" in entry["cidr"]
    return {**entry, "hostPrefix": HOST_PREFIX_V6 if is_v6 else HOST_PREFIX_V4}


def fill(data: Mapping[str, Any], *, machine_network: str, credentials_mode: str | None) -> dict[str, Any]:
    """The data with the defaults that the platform decides; malformed fields stay for the model to refuse."""
    filled = dict(data)
    networking = filled.setdefault("networking", {})
    if isinstance(networking, dict):
        # An empty list of networks means the default, as a missing one does.
        given = {key: value for key, value in networking.items() if value != [] or key not in _NETWORKS}
        filled["networking"] = {"machineNetwork": [{"cidr": machine_network}], **given}
    if credentials_mode is not None:
        filled.setdefault("credentialsMode", credentials_mode)
    return filled
