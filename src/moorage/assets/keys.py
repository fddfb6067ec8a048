"""RSA keys, generated on threads from the first moment.

Key generation is three quarters of the cost of an Ignition config and runs outside the interpreter lock, so `KeySource`
is started before anything else is imported. The `Keyring` hands out keys by name and waits only for the one asked for.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric import rsa

KEY_SIZE = 2048

NAMES = (
    "root-ca",
    "admin-kubeconfig-signer",
    "kube-apiserver-lb-signer",
    "kube-apiserver-localhost-signer",
    "kube-apiserver-service-network-signer",
    "kubelet-bootstrap-kubeconfig-signer",
    "kube-apiserver-to-kubelet-signer",
    "kube-control-plane-signer",
    "kubelet-signer",
    "aggregator-ca",
    "aggregator-signer",
    "machine-config-server",
    "journal-gatewayd",
    "admin-kubeconfig-client",
    "kube-apiserver-lb-server",
    "kube-apiserver-internal-lb-server",
    "kube-apiserver-localhost-server",
    "kube-apiserver-service-network-server",
    "kube-apiserver-to-kubelet-client",
    "kube-control-plane-kube-controller-manager-client",
    "kube-control-plane-kube-scheduler-client",
    "kubelet-client",
    "aggregator-client",
    "apiserver-proxy",
    "service-account",
    "bound-service-account-signing-key",
    "bootstrap-ssh",
)
"""Every key of a cluster, in the order in which they are first needed."""


class KeySource:
    """A bounded supply of fresh keys, made by daemon threads: an early exit never waits for them."""

    def __init__(self, count: int, threads: int | None = None) -> None:
        self._ready: deque[rsa.RSAPrivateKey] = deque()
        self._changed = threading.Condition()
        self._to_start = count
        self._to_take = count
        self._failure: BaseException | None = None
        for _ in range(min(count, threads or os.cpu_count() or 1)):
            threading.Thread(target=self._work, name="keys", daemon=True).start()

    def take(self) -> rsa.RSAPrivateKey:
        """The next key; made here and now when more are taken than were ordered."""
        with self._changed:
            if self._to_take > 0:
                self._to_take -= 1
                while not self._ready:
                    if self._failure is not None:
                        raise RuntimeError("RSA key generation failed") from self._failure
                    self._changed.wait()
                return self._ready.popleft()
        return _generate()

    def _work(self) -> None:
        while True:
            with self._changed:
                if self._to_start == 0:
                    return
                self._to_start -= 1
            try:
                key = _generate()
            except BaseException as failure:
                with self._changed:
                    self._failure = failure
                    self._changed.notify_all()
                raise
            with self._changed:
                self._ready.append(key)
                self._changed.notify_all()


class Keyring:
    """The cluster's private keys by name, taken from the source when first asked for."""

    def __init__(self, pems: Mapping[str, str], source: KeySource) -> None:
        self._pems = dict(pems)
        self._keys: dict[str, rsa.RSAPrivateKey] = {}
        self._source = source

    def private(self, name: str) -> rsa.RSAPrivateKey:
        if name not in self._keys:
            pem = self._pems.get(name)
            self._keys[name] = self._source.take() if pem is None else load(pem)
        return self._keys[name]

    def pem(self, name: str) -> str:
        if name not in self._pems:
            self._pems[name] = dump(self.private(name))
        return self._pems[name]

    def to_state(self) -> dict[str, str]:
        return {name: self.pem(name) for name in NAMES}

    @classmethod
    def from_state(cls, pems: Mapping[str, str]) -> Keyring:
        return cls(pems, KeySource(sum(1 for name in NAMES if name not in pems)))


def dump(key: rsa.RSAPrivateKey) -> str:
    """PKCS#1, the form the payload's operators read."""
    # Late: it takes longer to import than the threads need for their first keys.
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ).decode()


def load(pem: str) -> rsa.RSAPrivateKey:
    """A key of our own state, or one of the user's that `provided` has found sound."""
    from cryptography.hazmat.primitives import serialization

    # Checking the primes again would cost as much as everything else in a second run.
    key = serialization.load_pem_private_key(pem.encode(), None, unsafe_skip_rsa_key_validation=True)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ValueError("not an RSA private key")
    return key


def _generate() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=KEY_SIZE)
