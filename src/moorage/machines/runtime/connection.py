"""The way to the API server: by a kubeconfig from outside, by the pod's service account from inside.

The official client reads both; here its connections get what controllers need: a pool that many threads share, and
keep-alive probes, so that a watch on a peer that vanished without a word does not wait for ever.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from moorage import errors

if TYPE_CHECKING:
    from kubernetes import client as official

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_POOL = 64
# Real seconds: a peer that answers none of these probes is given up after a minute.
_IDLE, _EVERY, _PROBES = 30, 10, 3


def from_kubeconfig(path: Path, context: str = "") -> official.ApiClient:
    """As a kubeconfig says."""
    import kubernetes

    found = kubernetes.client.Configuration()
    try:
        load: Callable[..., None] = kubernetes.config.load_kube_config
        load(str(path), context or None, client_configuration=found)
    except (kubernetes.config.ConfigException, yaml.YAMLError, OSError) as wrong:
        raise _unusable(path, " ".join(str(wrong).split())) from wrong
    except UnicodeDecodeError as wrong:
        raise _unusable(path, "it is not UTF-8") from wrong
    except (TypeError, AttributeError, LookupError, ValueError) as wrong:
        # The official client takes for granted what is where in it, and what it trips over says nothing to a person.
        raise _unusable(path, "it is not built like one") from wrong
    return _client(found)


def _unusable(path: Path, why: str) -> errors.MoorageError:
    return errors.MoorageError(
        f"the kubeconfig {path} cannot be used: {why}", remedy="give a kubeconfig of the cluster by --kubeconfig"
    )


def in_cluster(folder: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] | None = None) -> official.ApiClient:
    """As a pod is told. The token is read for every call, as the kubelet replaces it before it expires."""
    import kubernetes

    around = os.environ if environ is None else environ
    host, port = around.get("KUBERNETES_SERVICE_HOST", ""), around.get("KUBERNETES_SERVICE_PORT", "")
    token, authority = folder / "token", folder / "ca.crt"
    if not (host and port and token.exists() and authority.exists()):
        raise errors.MoorageError(
            "this is no pod of a cluster with a service account, and no kubeconfig is given",
            remedy="give a kubeconfig of the cluster by --kubeconfig",
        )
    found = kubernetes.client.Configuration()
    found.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    found.ssl_ca_cert = str(authority)

    def read(configuration: official.Configuration) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {token.read_text().strip()}"

    read(found)
    setattr(found, "refresh_api_key_hook", read)  # noqa: B010 - the library's types know of no hook but none
    return _client(found)


def _client(configuration: official.Configuration) -> official.ApiClient:
    import kubernetes

    configuration.connection_pool_maxsize = _POOL
    configuration.socket_options = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _EVERY),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
    ]
    return kubernetes.client.ApiClient(configuration)
