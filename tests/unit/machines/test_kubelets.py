"""What a kubelet shows at its own port is believed only if the cluster's signer vouches for it."""

from __future__ import annotations

import base64
import socket
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509 import oid

from moorage.engine import clock as clocks
from moorage.machines import kubelets
from tests.unit.machines.kubelet_side import OWN, Authority, kubelet, node, signed
from tests.unit.machines.test_approval import NODE


def test_a_kubelet_shows_what_it_has(tmp_path: Path) -> None:
    authority = Authority()
    certificate = signed(authority, NODE, OWN)

    with kubelet(certificate, tmp_path) as found:
        look = kubelets.looker(lambda *_: {"data": {"ca-bundle.crt": authority.pem}}, clocks.Clock())
        assert look(found) == certificate


def foreign(_: Authority) -> x509.Certificate:
    return signed(Authority(), NODE, OWN)


def expired(authority: Authority) -> x509.Certificate:
    return signed(authority, NODE, OWN, hours=-1)


def clients_own(authority: Authority) -> x509.Certificate:
    """The certificate with which it asks: the same signer, but no server's."""
    return signed(authority, NODE, OWN, usage=oid.ExtendedKeyUsageOID.CLIENT_AUTH)


@pytest.mark.parametrize("made", [foreign, expired, clients_own])
def test_a_certificate_that_the_cluster_does_not_vouch_for_is_not_seen(made: Any, tmp_path: Path) -> None:
    authority = Authority()

    with kubelet(made(authority), tmp_path) as found, pytest.raises(kubelets.NotShown):
        kubelets.shown(found, authority.pem, clocks.Clock())


def test_a_cluster_that_names_no_signer_believes_nobody() -> None:
    look = kubelets.looker(lambda *_: {"data": {}}, clocks.Clock())

    with pytest.raises(kubelets.NotShown, match="does not say who signs"):
        look(node())


def test_a_node_without_an_address_is_not_looked_for() -> None:
    with pytest.raises(kubelets.NotShown, match="does not tell its address"):
        kubelets.shown({"metadata": {"name": NODE}}, Authority().pem, clocks.Clock())


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    found = node()
    found["status"] = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }

    with pytest.raises(kubelets.NotShown):
        kubelets.shown(found, Authority().pem, clocks.Clock())


def test_an_authority_that_is_nonsense_is_told_as_such() -> None:
    with pytest.raises(kubelets.NotShown):
        kubelets.shown(node(), base64.b64encode(b"no certificate").decode(), clocks.Clock())
