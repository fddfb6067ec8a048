"""The certificate that a kubelet shows at this moment, if it is one that the cluster's own signer has signed.

A node that asks for the names it has already may have them again; what it has is what it shows to whoever connects.
The address is what the node says of itself, so nothing is believed that the signer of kubelets has not signed: a
connection to somebody else ends in the handshake, and no request is ever sent.
"""

from __future__ import annotations

import socket
import ssl
import threading
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


class Answers:
    """``look``, whose answer is good for a while, also if it is none: who asks often does not make us dial as often."""

    def __init__(self, look: Callable[[Object], x509.Certificate], clock: clocks.Clock, seconds: float) -> None:
        self._look = look
        self._clock = clock
        self._seconds = seconds
        self._turn = threading.Lock()
        #: When each node was last asked, by name and uid, and what came of it: a certificate, or why there is none.
        self._kept: dict[tuple[str, str], tuple[float, x509.Certificate | str]] = {}

    def __call__(self, node: Object) -> x509.Certificate:
        metadata = node.get("metadata") or {}
        key = str(metadata.get("name")), str(metadata.get("uid"))
        with self._turn:
            now = self._clock.now()
            self._kept = {each: kept for each, kept in self._kept.items() if now - kept[0] < self._seconds}
            known = self._kept.get(key)
            if known is None:
                # A kubelet may take long to answer, or not to: nobody else need wait for that.
                self._kept[key] = now, f"the kubelet of {key[0]} is being asked for its certificate"
        if known is None:
            return self._asked(key, node)
        if isinstance(known[1], str):
            raise NotShown(known[1])
        return known[1]

    def _asked(self, key: tuple[str, str], node: Object) -> x509.Certificate:
        try:
            said = self._look(node)
        except errors.MoorageError as problem:
            self._keep(key, problem.message)
            raise
        self._keep(key, said)
        return said

    def _keep(self, key: tuple[str, str], said: x509.Certificate | str) -> None:
        with self._turn:
            self._kept[key] = self._clock.now(), said
