"""What controllers learn from the cluster that they look after."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.engine import errors as platform_errors
from moorage.machines import assembly, nodelink
from moorage.machines.runtime import errors, kinds
from moorage.platforms.ovirt import config as sections
from tests.unit.cli.quay import machine as quay
from tests.unit.machines import followed, memory, nodes_world

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


@pytest.mark.parametrize(
    "install_config",
    [
        pytest.param(None, id="no ConfigMap"),
        pytest.param("{not: [yaml", id="no YAML"),
        pytest.param("", id="nothing"),
        pytest.param("no install-config", id="a word"),
        pytest.param({"metadata": {"name": "berth"}}, id="no platform"),
        pytest.param({"platform": None}, id="an empty platform"),
        pytest.param({"platform": {"ovirt": None}}, id="an empty section"),
        pytest.param({"platform": {"external": {"platformName": "ovirt"}}}, id="another platform's section"),
    ],
)
def test_addresses_that_cannot_be_known_are_not_guessed(install_config: Any) -> None:
    """A node that carries one while it asks for a certificate would get it for the whole cluster's name."""
    with pytest.raises(top.MoorageError, match="does not tell the cluster's virtual addresses"):
        assembly.discover(cluster(told=infrastructure(), install_config=install_config))


def test_an_install_config_that_is_under_another_key_tells_nothing() -> None:
    api = cluster(told=infrastructure(), install_config=VIPS)
    api.change(kinds.CONFIG_MAP, "cluster-config-v1", "kube-system", lambda found: found.pop("data"))

    with pytest.raises(top.MoorageError, match="does not tell the cluster's virtual addresses"):
        assembly.discover(api)


def test_what_the_platform_tells_is_enough() -> None:
    told = infrastructure("oVirt", ovirt={"apiServerInternalIPs": ["10.0.0.5"]})

    assert assembly.discover(cluster(told=told, install_config={"platform": {"none": {}}})).vips == ("10.0.0.5",)


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


def silent_node(api: memory.Memory) -> None:
    """A machine of the quay's whose node does not report, so that the quay is asked about it."""
    api.put(kinds.MACHINE, nodes_world.machine())
    api.put(kinds.NODE, nodes_world.node(ready="Unknown", provider="yard://i-1"))
    password = {"password": base64.b64encode(b"s3cr3t").decode()}
    api.put(kinds.SECRET, {"metadata": {"name": "quay-credentials", "namespace": assembly.NAMESPACE}, "data": password})


def test_the_nodes_controller_neither_tells_a_password_nor_goes_on_with_one_that_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a platform that repeats the password which it refuses.
    monkeypatch.setenv("MOORAGE_PLATFORMS", "quay=tests.unit.cli.quay")
    monkeypatch.setattr(quay.Actuator, "exists", refusing)
    api = cluster()
    silent_node(api)
    whole = assembled(api, monkeypatch, tmp_path)
    (nodes,) = (each for each in whole.manager._controllers if each.name == "node")

    nodes.step("m-1")

    assert "the quay refuses" in caplog.text
    assert "s3cr3t" not in caplog.text

    # When it comes to that again a little later, there may be another password already.
    api.calls.clear()
    api.clock.advance(2.0)
    look(whole.caches)
    nodes.step("m-1")
    assert [call for call in api.calls if "secrets" in call]


def refusing(_self: quay.Actuator, _machine: Any) -> None:
    raise platform_errors.Unauthorized("the quay refuses s3cr3t")


def assembled(api: Any, monkeypatch: pytest.MonkeyPatch, folder: Path) -> assembly.Assembly:
    """All controllers over this API, with caches that are up to date."""
    kept = (kinds.MACHINE, kinds.MACHINE_SET, kinds.MACHINE_HEALTH_CHECK, kinds.NODE, kinds.CSR)
    caches = assembly.Caches(*(followed.informer_of(api, kind) for kind in kept))
    nodelink.index(caches.machines)
    nodelink.index_nodes(caches.nodes)
    monkeypatch.setattr(assembly, "caches", lambda *_: caches)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    settings = assembly.Settings("quay", INFRA)
    whole = assembly.Assembly(api, settings, elect=False, environ={"QUAY_FOLDER": str(folder)})
    look(caches)
    return whole


def look(caches: assembly.Caches) -> None:
    for each in caches:
        each.step()  # type: ignore[attr-defined]
