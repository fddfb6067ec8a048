"""A cluster's network as one of its nodes knows it."""

from __future__ import annotations

import dataclasses

import pytest

from moorage.network import settings, view

SETTINGS = settings.Settings(
    infra_id="harbour-x7k2p",
    cluster_domain="harbour.example.com",
    api_vips=("10.0.0.5",),
    ingress_vips=("10.0.0.6",),
    machine_networks=("10.0.0.0/24",),
)
DUAL = dataclasses.replace(
    SETTINGS,
    api_vips=("10.0.0.5", "fd00::5"),
    ingress_vips=("10.0.0.6", "fd00::6"),
    dns_vips=("10.0.0.7",),
    machine_networks=("10.0.0.0/24", "fd00::/64"),
)
MASTERS = tuple(view.Node(f"master-{n}", view.MASTER, (f"10.0.0.1{n}", f"fd00::1{n}")) for n in range(3))
WORKERS = tuple(view.Node(f"worker-{n}", view.WORKER, (f"10.0.0.2{n}",)) for n in range(2))
ME = view.Self("master-0", "10.0.0.10", "ens3", 24, ("10.0.0.10", "fd00::10"))
VIEW = view.View(ME, (*MASTERS, *WORKERS), ("192.0.2.53",))


@pytest.fixture
def wanted() -> settings.Settings:
    return SETTINGS


@pytest.fixture
def dual() -> settings.Settings:
    return DUAL


@pytest.fixture
def seen() -> view.View:
    return VIEW
