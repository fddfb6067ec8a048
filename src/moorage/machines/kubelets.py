"""The certificate that a kubelet shows at this moment, if it is one that the cluster's own signer has signed.

A node that asks for the names it has already may have them again; what it has is what it shows to whoever connects.
The address is what the node says of itself, so nothing is believed that the signer of kubelets has not signed: a
connection to somebody else ends in the handshake, and no request is ever sent.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

from cryptography import x509

from moorage import errors
from moorage.engine import clock as clocks

Object = Mapping[str, Any]

PORT: Final = 10250
#: Where the cluster keeps whom it believes about kubelets, and the key there.
AUTHORITIES: Final = ("openshift-config-managed", "csr-controller-ca")
AUTHORITIES_KEY: Final = "ca-bundle.crt"
_SECONDS: Final = 10.0


class NotShown(errors.MoorageError):
    """The kubelet shows no certificate that can be believed; asking later may help."""


def endpoint(node: Object) -> tuple[str, int] | None:
    """Where the node says its kubelet listens."""
    status = node.get("status") or {}
    found = [str(each.get("address")) for each in status.get("addresses") or () if each.get("type") == "InternalIP"]
    told = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or PORT
    return (found[0], int(told)) if found else None


def shown(node: Object, authorities: str, clock: clocks.Clock) -> x509.Certificate:
    """The certificate of a node's kubelet. Raises `NotShown` if there is none that ``authorities`` (PEM) vouch for."""
    name = str((node.get("metadata") or {}).get("name"))
    where = endpoint(node)
    if where is None:
        raise NotShown(f"{name} does not tell its address")
    try:
        content = _handshake(where, authorities, clock.socket_timeout(_SECONDS))
        return x509.load_der_x509_certificate(content)
    except (OSError, ValueError) as problem:  # a failed verification is an OSError too
        raise NotShown(f"the kubelet of {name} shows no certificate that can be believed: {problem}") from problem


def _handshake(where: tuple[str, int], authorities: str, seconds: float) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Whose certificate it is, is judged by its subject: nodes are dialled by addresses that it need not name.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authorities)
    with (
        socket.create_connection(where, timeout=seconds) as plain,
        context.wrap_socket(plain, do_handshake_on_connect=True) as secured,
    ):
        content = secured.getpeercert(binary_form=True)
    if not content:
        raise ValueError("no certificate was shown")
    return content


def looker(read: Callable[[str, str], Object], clock: clocks.Clock) -> Callable[[Object], x509.Certificate]:
    """`shown`, believing whom the cluster believes now; ``read(namespace, name)`` gets a ConfigMap."""

    def look(node: Object) -> x509.Certificate:
        data = read(*AUTHORITIES).get("data") or {}
        bundle = str(data.get(AUTHORITIES_KEY) or "")
        if not bundle.strip():
            raise NotShown(f"ConfigMap {'/'.join(AUTHORITIES)} does not say who signs kubelets")
        return shown(node, bundle, clock)

    return look
