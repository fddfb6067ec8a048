"""Install-configs for oVirt, and what a platform is given to render from them."""

from __future__ import annotations

from typing import Any

import yaml

from moorage.assets import platform, values
from moorage.config import load, model
from moorage.platforms import contract, registry
from tests.conftest import INSTALL_CONFIG

CLUSTER_ID = "0a1b2c3d-1111-4222-8333-444455556666"
DOMAIN_ID = "0a1b2c3d-7777-4888-9999-aaaabbbbcccc"
PROFILE_ID = "0a1b2c3d-dddd-4eee-8fff-000011112222"
INFRA = "harbour-x7k2p"
NATIVE = {"platformType": "oVirt"}
IGNITION = {"bootstrap": b"{bootstrap}", "master": b"{master}", "worker": b"{worker}"}
RELEASE = values.Release("4.20.1", "ocp", "quay.example.org/release@sha256:" + "0" * 64, "", "amd64", "stable-4.20")


def install_config(**changes: Any) -> str:
    """The text of an install-config; ``masters``, ``workers``, ``pool`` and ``control`` are the machines'."""
    content = yaml.safe_load(INSTALL_CONFIG)
    content["controlPlane"] = {"name": "master", "replicas": changes.pop("masters", 3)}
    content["compute"] = [{"name": "worker", "replicas": changes.pop("workers", 2)}]
    if control := changes.pop("control", None):
        content["controlPlane"]["platform"] = {"ovirt": control}
    if pool := changes.pop("pool", None):
        content["compute"][0]["platform"] = {"ovirt": pool}
    content["platform"] = {
        "ovirt": {
            "ovirt_cluster_id": CLUSTER_ID,
            "ovirt_storage_domain_id": DOMAIN_ID,
            "vnicProfileID": PROFILE_ID,
            "api_vips": ["10.0.0.5"],
            "ingress_vips": ["10.0.0.6"],
            **changes,
        }
    }
    return yaml.safe_dump(content)


def configured(**changes: Any) -> model.InstallConfig:
    return load.parse(install_config(**changes), registry.stanzas())[0]


def context(**changes: Any) -> platform.Context:
    cluster_id = values.ClusterID(INFRA, "3f2b8c1e-7d4a-4c55-9e0b-2a6d1f908b77")
    return platform.Context(configured(**changes), cluster_id, RELEASE)


def cluster(**changes: Any) -> contract.Cluster:
    found = context(**changes)
    endpoints = values.Endpoints("harbour.example.com", "api", "api-int", "10.0.0.5", (), (), ())
    return contract.Cluster(found.config, found.cluster_id, RELEASE, endpoints, IGNITION)
