"""What must not go through the proxy.

The nodes get their list here, before the cluster exists; later the cluster's network operator computes the same list on
its own. If the two differ by one character, the machine config that the bootstrap node served no longer equals the one
the cluster renders, and every node is marked degraded: so this follows the operator's rules exactly.
"""

from __future__ import annotations

from collections.abc import Iterable

from moorage.assets import values
from moorage.config import model

EVERYTHING = "*"
ALWAYS_DIRECT = ("127.0.0.1", "localhost", ".svc", ".cluster.local")
ANY_ADDRESS = "0.0.0.0/0"


def user_entries(no_proxy: str | None) -> tuple[str, ...]:
    """The user's entries in their order, without blanks and repetitions."""
    entries = (entry.strip() for entry in (no_proxy or "").split(","))
    return tuple(dict.fromkeys(entry for entry in entries if entry))


def effective_no_proxy(config: model.InstallConfig, endpoints: values.Endpoints, extra: Iterable[str] = ()) -> str:
    """The comma-separated list for NO_PROXY, sorted; empty where no proxy is used.

    A lone ``*`` switches the proxy off and stands as it is. ``extra`` holds a platform's own entries (a metadata
    service, a private endpoint); they must be part of the Proxy's spec as well, or the operator would drop them.
    """
    if config.proxy is None or not (config.proxy.http_proxy or config.proxy.https_proxy):
        return ""
    entries = user_entries(config.proxy.no_proxy)
    if entries == (EVERYTHING,):
        return EVERYTHING
    networking = config.networking
    machine_networks = (network.cidr for network in networking.machine_network)
    direct = {
        *ALWAYS_DIRECT,
        *entries,
        *extra,
        endpoints.api_int,
        *networking.service_network,
        *(network.cidr for network in networking.cluster_network),
        # A machine network of "anywhere" would exempt the whole internet; the operator leaves it out too.
        *(cidr for cidr in machine_networks if cidr != ANY_ADDRESS),
    }
    return ",".join(sorted(direct))
