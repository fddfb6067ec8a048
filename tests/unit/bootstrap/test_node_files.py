"""What the bootstrap node is given: the right files, with the right modes, and nothing that was not asked for."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage import errors
from moorage.assets import bootstrap, releases

OCP = releases.choose("amd64", {})
OKD = releases.choose("amd64", {"MOORAGE_STREAM": "okd"})
PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def by_path(files):
    return {file.path: file for file in files}


def test_an_ordinary_cluster_gets_scripts_environment_pull_secret_and_nothing_optional(config, endpoints):
    files = by_path(bootstrap.node_files(config(), endpoints, OCP, "tester"))

    modes = {path: file.mode for path, file in files.items() if not path.startswith("/usr/local")}
    assert modes == {
        "/etc/moorage/bootstrap.env": 0o600,
        "/etc/motd": 0o644,
        "/etc/systemd/system-generators/node-image-overlay-generator": 0o555,
        "/root/.docker/config.json": 0o600,
    }
    assert {file.mode for path, file in files.items() if path.startswith("/usr/local/bin/")} == {0o555}
    assert {file.mode for path, file in files.items() if path.startswith("/usr/local/lib/moorage/")} == {0o444}
    assert [path for path, file in files.items() if file.append] == ["/etc/motd"]
    assert files["/root/.docker/config.json"].contents == b'{"auths": {"quay.io": {"auth": "VE9QU0VDUkVU"}}}'


def test_the_pull_secret_is_in_its_file_and_in_no_other(config, endpoints):
    files = bootstrap.node_files(config(), endpoints, OCP, "tester")

    assert [file.path for file in files if b"VE9QU0VDUkVU" in file.contents] == ["/root/.docker/config.json"]


def test_computing_the_files_twice_gives_the_same(config, endpoints):
    first = bootstrap.node_files(config(), endpoints, OCP, "tester")

    assert first == bootstrap.node_files(config(), endpoints, OCP, "tester")
    assert len(by_path(first)) == len(first)


def test_scripts_are_started_by_the_interpreter_they_name_and_libraries_are_not_programs(config, endpoints):
    for file in bootstrap.node_files(config(), endpoints, OCP, "tester"):
        if file.mode == 0o555:
            assert file.contents.startswith(b"#!/usr/bin/env bash\n"), file.path
        if file.mode == 0o444:
            assert file.contents.startswith(b"# shellcheck shell=bash\n"), file.path


def test_the_proxy_reaches_shells_and_services_and_is_kept_from_others(config, endpoints):
    proxy = {"httpProxy": "http://u:p%20w@proxy:3128", "httpsProxy": "http://proxy:3129", "noProxy": ".corp"}
    files = by_path(bootstrap.node_files(config(proxy=proxy), endpoints, OCP, "tester"))

    shell, manager = files["/etc/profile.d/proxy.sh"], files["/etc/systemd/system.conf.d/10-default-env.conf"]
    assert (shell.mode, manager.mode) == (0o600, 0o600)
    lines = manager.contents.decode().splitlines()
    assert lines[:3] == [
        "[Manager]",
        'DefaultEnvironment="HTTP_PROXY=http://u:p%%20w@proxy:3128"',
        'DefaultEnvironment="HTTPS_PROXY=http://proxy:3129"',
    ]
    assert lines[3].startswith('DefaultEnvironment="NO_PROXY=')
    exported = subprocess.run(
        ["bash", "-c", f"{shell.contents.decode()}\necho $HTTP_PROXY; echo $NO_PROXY"], capture_output=True, text=True
    ).stdout.splitlines()
    assert exported[0] == "http://u:p%20w@proxy:3128"
    assert {".corp", "172.30.0.0/16", "api-int.demo.example.org", ".svc"} <= set(exported[1].split(","))


def test_a_proxy_for_one_protocol_leaves_the_other_unset(config, endpoints):
    files = by_path(bootstrap.node_files(config(proxy={"httpsProxy": "http://proxy:3129"}), endpoints, OCP, "tester"))

    assert b"HTTP_PROXY" not in files["/etc/profile.d/proxy.sh"].contents.replace(b"HTTPS_PROXY", b"")


@pytest.mark.parametrize("policy", ["Proxyonly", "Always"])
def test_the_bootstrap_node_trusts_the_users_authorities_whatever_the_policy(config, endpoints, policy):
    wanted = config(additional_trust_bundle=PEM.rstrip("\n"), additional_trust_bundle_policy=policy)

    anchor = by_path(bootstrap.node_files(wanted, endpoints, OCP, "tester"))[bootstrap.TRUST_PATH]

    assert (anchor.contents.decode(), anchor.mode) == (PEM, 0o644)


def test_fips_mode_is_asked_for_in_the_file_the_initramfs_reads(config, endpoints):
    files = by_path(bootstrap.node_files(config(fips=True), endpoints, OCP, "tester"))

    machine_config = json.loads(files["/etc/ignition-machine-config-encapsulated.json"].contents)
    assert machine_config["spec"]["fips"] is True


def test_mirrors_come_as_a_file_that_everybody_may_read(config, endpoints):
    sources = [{"source": "quay.io/a", "mirrors": ["mirror.example/a"]}]

    files = by_path(bootstrap.node_files(config(image_digest_sources=sources), endpoints, OCP, "tester"))

    assert files["/etc/containers/registries.conf"].mode == 0o644


def sourced(environment: bytes) -> dict[str, str]:
    """What bash makes of an environment file."""
    command = ["env", "-i", "bash", "--norc", "-c", "set -a; source /dev/stdin; env -0"]
    output = subprocess.run(command, input=environment, capture_output=True, check=True).stdout
    return dict(entry.split("=", 1) for entry in output.decode().split("\0") if entry.startswith("MOORAGE_"))


def test_the_environment_holds_what_the_scripts_read(config, endpoints):
    found = sourced(bootstrap.environment(config(), endpoints, OCP, "tester"))

    assert found["MOORAGE_RELEASE_IMAGE"] == "quay.io/openshift-release-dev/ocp-release:4.20.33-x86_64"
    assert found["MOORAGE_API_INT_HOST"] == "api-int.demo.example.org"
    assert found["MOORAGE_NODE_IMAGE"] == "rhel-coreos"
    used = set()
    for file in bootstrap.node_files(config(), endpoints, OCP, "tester"):
        if file.path.startswith("/usr/local/"):
            used |= {word for word in _variables(file.contents.decode()) if word.startswith("MOORAGE_")}
    assert used - {"MOORAGE_ROOT"} == set(found)


def _variables(script: str) -> set[str]:
    return set(re.findall(r"\$\{?([A-Z_]+)", script))


@settings(max_examples=25, deadline=None)
@given(invoker=st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=40))
def test_any_text_survives_the_environment_file(invoker):
    quoted = f"MOORAGE_INVOKER={bootstrap._quoted('INVOKER', invoker)}\n".encode()

    assert sourced(quoted) == {"MOORAGE_INVOKER": invoker}


def test_a_value_that_no_environment_file_can_hold_is_refused(config, endpoints):
    with pytest.raises(errors.ConfigError, match="INVOKER holds a line break"):
        bootstrap.environment(config(), endpoints, OCP, "two\nlines")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OPENSHIFT_INSTALL_BOOTSTRAP_NODE_IP", "10.0.0.300"),
        ("OPENSHIFT_INSTALL_BOOTSTRAP_NODE_IP", "bootstrap.example.org"),
        ("OPENSHIFT_INSTALL_EXPERIMENTAL_CLUSTER_PROFILE", "a b"),
    ],
)
def test_overrides_that_cannot_be_meant_are_refused(variable, value):
    with pytest.raises(errors.ConfigError, match=variable):
        bootstrap.overrides({variable: value})


def test_overrides_are_taken_from_the_environment(config, endpoints):
    wanted = bootstrap.overrides(
        {
            "OPENSHIFT_INSTALL_BOOTSTRAP_NODE_IP": "192.0.2.7",
            "OPENSHIFT_INSTALL_EXPERIMENTAL_CLUSTER_PROFILE": "single-node-developer",
        }
    )

    found = sourced(bootstrap.environment(config(), endpoints, OCP, "tester", wanted))

    assert found["MOORAGE_NODE_IP"] == "192.0.2.7"
    assert found["MOORAGE_CLUSTER_PROFILE"] == "single-node-developer"


def test_units_that_start_by_themselves_are_enabled_and_no_others():
    enabled = {unit.name for unit in bootstrap.node_units(OCP) if unit.enabled}

    assert enabled == {
        "approve-csr.service",
        "chown-gatewayd-key.service",
        "kubelet.service",
        "progress.service",
        "systemd-journal-gatewayd.socket",
    }


def test_units_that_are_enabled_say_what_wants_them():
    for unit in bootstrap.node_units(OCP):
        if unit.enabled and unit.contents is not None:
            assert "[Install]\nWantedBy=multi-user.target" in unit.contents, unit.name


def test_the_journal_gateway_speaks_tls_with_the_clusters_certificates():
    units = {unit.name: unit for unit in bootstrap.node_units(OCP)}

    gateway, socket = units["systemd-journal-gatewayd.service"], units["systemd-journal-gatewayd.socket"]
    assert (gateway.contents, socket.contents) == (None, None)
    assert "--trust=/opt/openshift/tls/root-ca.crt" in gateway.dropins[0][1]


def test_okd_has_an_updater_to_silence_and_no_journal_gateway():
    names = {unit.name for unit in bootstrap.node_units(OKD)}

    assert "zincati.service" in names
    assert not [name for name in names if "gatewayd" in name]
