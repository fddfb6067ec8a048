"""What controllers learn from the cluster that they look after."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.machines import assembly
from moorage.machines.runtime import errors, kinds
from moorage.platforms.ovirt import config as sections
from tests.unit.machines import memory

INFRA = "berth-x7k2p"


def infrastructure(kind: str = "External", named: str = "ovirt", **block: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"platformSpec": {"type": kind}}
    if kind == "External":
        spec["platformSpec"]["external"] = {"platformName": named}
    status = {"infrastructureName": INFRA, "platformStatus": {"type": kind, **block}}
    return {"metadata": {"name": "cluster"}, "spec": spec, "status": status}


def cluster(*, told: dict[str, Any] | None = None, install_config: Any = None) -> Any:
    api = memory.Memory(clocks.ManualClock())
    if told is not None:
        api.put(kinds.INFRASTRUCTURE, told)
    if install_config is not None:
        text = install_config if isinstance(install_config, str) else yaml.safe_dump(install_config, sort_keys=False)
        metadata = {"name": "cluster-config-v1", "namespace": "kube-system"}
        api.put(kinds.CONFIG_MAP, {"metadata": metadata, "data": {"install-config": text}})
    return api


VIPS = {"platform": {"ovirt": {"api_vips": ["10.0.0.5"], "ingress_vips": ["10.0.0.6"], "dns_vips": ["10.0.0.7"]}}}


def test_an_external_platform_is_known_by_name_and_its_addresses_from_the_install_config() -> None:
    found = assembly.discover(cluster(told=infrastructure(), install_config=VIPS))

    assert found == assembly.Settings("ovirt", INFRA, ("10.0.0.5", "10.0.0.6", "10.0.0.7"), "openshift-machine-api")


def test_a_native_platform_tells_its_addresses_itself() -> None:
    block = {"apiServerInternalIPs": ["10.0.0.5"], "ingressIPs": ["10.0.0.6"]}

    found = assembly.discover(cluster(told=infrastructure("oVirt", ovirt=block)))

    assert (found.platform, found.vips) == ("ovirt", ("10.0.0.5", "10.0.0.6"))


def test_what_both_tell_is_told_once() -> None:
    told = infrastructure("oVirt", ovirt={"apiServerInternalIPs": ["10.0.0.5"]})

    assert assembly.discover(cluster(told=told, install_config=VIPS)).vips == ("10.0.0.5", "10.0.0.6", "10.0.0.7")


def test_the_platform_can_be_named() -> None:
    settings = {"platform": {"quay": {"apiVIPs": ["10.0.0.9"], "api_vip": "10.0.0.8"}}}

    found = assembly.discover(cluster(told=infrastructure(), install_config=settings), "quay")

    assert (found.platform, found.vips) == ("quay", ("10.0.0.9", "10.0.0.8"))


def test_a_platform_without_virtual_addresses_has_none() -> None:
    assert assembly.discover(cluster(told=infrastructure(), install_config={"platform": {"ovirt": {}}})).vips == ()


@pytest.mark.parametrize("install_config", [None, "{not: [yaml"])
def test_addresses_that_cannot_be_known_are_not_guessed(install_config: Any) -> None:
    """A node that carries one while it asks for a certificate would get it for the whole cluster's name."""
    with pytest.raises(top.MoorageError, match="does not tell the cluster's virtual addresses"):
        assembly.discover(cluster(told=infrastructure(), install_config=install_config))


def test_an_api_that_is_away_is_no_missing_object() -> None:
    api = cluster(told=infrastructure(), install_config=VIPS)
    api.trouble("get configmaps", errors.Unavailable("nobody answers"))

    with pytest.raises(errors.Unavailable):
        assembly.discover(api)


@pytest.mark.parametrize("told", [None, {"metadata": {"name": "cluster"}, "status": {}}])
def test_a_cluster_without_a_mark_is_refused(told: dict[str, Any] | None) -> None:
    with pytest.raises(top.MoorageError, match="Infrastructure object"):
        assembly.discover(cluster(told=told, install_config=VIPS))


def test_every_key_that_ovirt_gives_virtual_addresses_is_one_of_those_looked_for() -> None:
    """The install-config in a cluster is written by the names of today."""
    named = {field.alias or name for name, field in sections.Platform.model_fields.items() if "vip" in name}
    assert named
    found = assembly.vips_of({"platform": {"ovirt": {name: [name] for name in named}}}, "ovirt")

    assert set(found) == named


def test_no_two_processes_are_the_same_candidate() -> None:
    assert assembly.identity() != assembly.identity()
