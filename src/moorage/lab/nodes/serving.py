"""The serving certificates of the API servers on masters, made by the cluster itself with the signers it was given.

The signers are Secrets that came with the manifests, the names are those that the Infrastructure object gives; so what
is wrong there shows as soon as the bootstrap's own certificates are out of the way. Certificates last 30 days; their
successors are made when two thirds of that are over.
"""

from __future__ import annotations

import base64
import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from moorage.lab.nodes import credentials, facts, renders

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = dict[str, Any]

LIFE = datetime.timedelta(days=30)
NAMESPACE = "openshift-kube-apiserver"
_API_SERVER = "system:kube-apiserver"


class NoSigner(Exception):  # noqa: N818 - what the operator reports
    """A signer's Secret is missing or unusable; says which and why."""


class Certificates:
    """The certificates of one cluster; ``pairs`` makes them if they are not there, or too old."""

    def __init__(self, api: apis.Api, about: facts.Facts, life: datetime.timedelta = LIFE) -> None:
        self._api = api
        self._facts = about
        self._life = life
        self._pairs: dict[str, credentials.Pair] = {}

    @property
    def worn(self) -> bool:
        """Whether some are due to be replaced."""
        return any(credentials.worn(pair.certificate) for pair in self._pairs.values())

    def pairs(self) -> tuple[credentials.Pair, ...]:
        """What an API server shows, the default first."""
        for secret, signer, names in self._wanted():
            have = self._pairs.get(secret)
            if have is None or credentials.worn(have.certificate):
                made = credentials.serving(self._signer(signer), _API_SERVER, names, self._life)
                self._pairs[secret] = made
                self._api.put(renders.tls_secret(NAMESPACE, secret, made))
        return tuple(self._pairs.values())

    def _wanted(self) -> list[tuple[str, str, list[str]]]:
        services = [
            f"{service}{suffix}"
            for service in ("kubernetes", "openshift")
            for suffix in ("", ".default", ".default.svc", ".default.svc.cluster.local")
        ]
        external, internal = self._hosts()
        balancer = "loadbalancer-serving-signer"
        return [
            (
                "service-network-serving-certkey",
                "service-network-serving-signer",
                [*services, self._facts.service_address],
            ),
            ("localhost-serving-cert-certkey", "localhost-serving-signer", ["localhost", "127.0.0.1"]),
            ("external-loadbalancer-serving-certkey", balancer, [external]),
            ("internal-loadbalancer-serving-certkey", balancer, [internal]),
        ]

    def _hosts(self) -> tuple[str, str]:
        """Where the API is, as the Infrastructure object says; as the manifests said while there is none."""
        try:
            kind = self._api.kind("config.openshift.io", "Infrastructure")
            entry = self._api.find(kind, "", "cluster")
        except LookupError:
            entry = None
        status = ((entry.object if entry is not None else {}).get("status")) or {}
        external = urlsplit(str(status.get("apiServerURL", ""))).hostname
        internal = urlsplit(str(status.get("apiServerInternalURI", ""))).hostname
        return external or self._facts.api_host, internal or self._facts.api_int_host

    def _signer(self, name: str) -> credentials.Pair:
        entry = self._api.find(self._api.kind("", "Secret"), renders.KUBE_APISERVER_OPERATOR, name)
        if entry is None:
            raise NoSigner(f'secret "{name}" not found')
        data = entry.object.get("data") or {}
        try:
            certificate, key = (base64.b64decode(data[part]) for part in ("tls.crt", "tls.key"))
            return credentials.pair(certificate, key, name)
        except (KeyError, ValueError, credentials.Unusable) as wrong:
            raise NoSigner(f'secret "{name}": {wrong}') from wrong
