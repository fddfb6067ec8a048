"""The whole way from text to config: everything at once, nothing hidden, and read back as written."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage import errors
from moorage.config import emit, findings, load, model, stanza

from .conftest import BASE, DOCK, Check, Make, changed

Stanzas = Mapping[str, stanza.Stanza]


def test_all_mistakes_come_at_once_and_in_the_order_of_lines(stanzas: Stanzas) -> None:
    # Given a file with malformed fields, unknown fields and broken rules, mixed
    text = """\
apiVersion: v1
metadata:
  name: Demo
baseDomain: example.com
platform:
  none: {}
pullSecret: nonsense
compute:
- name: wroker
  replicas: -1
  hyperthreading: enabled
networking:
  clusterNetwork:
  - cidr: 10.128.0.0/14
    hostPrefix: big
  serviceNetwork: [10.0.0.0/16]
fips: maybe
sshKey: nonsense
"""
    # When it is parsed
    with pytest.raises(findings.Invalid) as caught:
        load.parse(text, stanzas, source="my.yaml")

    # Then no malformed field has hidden a broken rule
    assert [(finding.line, finding.field) for finding in caught.value.findings] == [
        (3, "metadata.name"),
        (7, "pullSecret"),
        (9, "compute[0].name"),
        (10, "compute[0].replicas"),
        (11, "compute[0].hyperthreading"),
        (15, "networking.clusterNetwork[0].hostPrefix"),
        (16, "networking.serviceNetwork[0]"),
        (17, "fips"),
        (18, "sshKey"),
    ]
    assert caught.value.message == "9 errors in my.yaml"
    assert caught.value.exit_code == errors.INSTALL_CONFIG


def test_a_rule_is_silent_about_a_field_that_is_malformed(check: Check) -> None:
    # Two replicas would be an error; with the list malformed, nothing is known about workers or overlaps.
    found = check({"networking.machineNetwork": [{"cidr": 7}], "networking.serviceNetwork": ["10.0.0.0/16"]})

    assert [finding.field for finding in found] == ["networking.machineNetwork[0].cidr"]


def test_rules_are_silent_about_a_field_given_twice(make: Make, stanzas: Stanzas) -> None:
    text = make({"baseDomain": "Bad_"}) + "baseDomain: Worse_\n"

    [finding] = load.check(text, stanzas)

    assert finding.message.startswith("is given twice")


def test_an_unknown_field_does_not_silence_the_platforms_rules(check: Check, ssh_keys: dict[str, str]) -> None:
    found = check(
        {
            "platform": {"dock": {"password": "x", "apiVIPs": ["nowhere"]}},
            "sshKey": ssh_keys["rsa"],
            "colour": "blue",
        }
    )

    assert sorted(finding.field for finding in found) == ["colour", "platform.dock.apiVIPs[0]"]


def test_a_malformed_field_silences_the_platforms_rules_which_may_read_it(
    check: Check, ssh_keys: dict[str, str]
) -> None:
    found = check(
        {
            "platform": {"dock": {"password": "x", "apiVIPs": ["10.0.0.5"]}},
            "sshKey": ssh_keys["rsa"],
            "networking.machineNetwork": "10.0.0.0/24",
        }
    )

    assert [finding.field for finding in found] == ["networking.machineNetwork"]


def test_warnings_come_with_the_config(make: Make, stanzas: Stanzas) -> None:
    config, warnings = load.parse(make({"controlPlane.replicas": 4}), stanzas)

    assert config.control_plane_replicas == 4
    assert [(warning.severity, warning.field) for warning in warnings] == [("warning", "controlPlane.replicas")]


@pytest.mark.parametrize(
    ("platform", "found"),
    [
        ({"password": "x", "pasword": "y"}, [("platform.dock.pasword", "did you mean `password`?")]),
        ({}, [("platform.dock.password", "add it: Opens the dock.")]),
        ({"password": 5}, [("platform.dock.password", "quote it: '5'")]),
        ({"password": "x", "berth": [1]}, [("platform.dock.berth", "")]),
        ({"password": "x", "labels": {"a": 1}}, [("platform.dock.labels.a", "quote it: '1'")]),
    ],
)
def test_a_platforms_section_is_checked_like_the_rest(
    check: Check, ssh_keys: dict[str, str], platform: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    results = check({"platform": {"dock": platform}, "sshKey": ssh_keys["rsa"]})

    assert sorted({(finding.field, finding.remedy) for finding in results} & set(found)) == sorted(found)
    assert {finding.field for finding in results} == {field for field, _ in found}


def test_pools_have_settings_of_the_platform(parse: Any, check: Check, ssh_keys: dict[str, str]) -> None:
    sound = {"platform": {"dock": {"password": "x"}}, "sshKey": ssh_keys["rsa"]}

    config = parse({**sound, "controlPlane.platform": {"dock": {"cpus": 8}}})
    [finding] = check({**sound, "compute": [{"name": "worker", "platform": {"dock": {"cpus": 0}}}]})

    assert config.control_plane.platform.cpus == 8
    assert config.compute[0].platform is None
    assert (finding.field, finding.message) == (
        "compute[0].platform.dock.cpus",
        "should be greater than or equal to 1",
    )


def test_the_platform_has_its_own_defaults(parse: Any, ssh_keys: dict[str, str]) -> None:
    config = parse({"platform": {"dock": {"password": "x"}}, "sshKey": ssh_keys["rsa"]})

    assert config.networking.machine_network[0].cidr == "192.168.0.0/24"
    assert config.credentials_mode == "Manual"


def test_what_is_written_wins_over_the_platforms_defaults(parse: Any, ssh_keys: dict[str, str]) -> None:
    config = parse(
        {
            "platform": {"dock": {"password": "x"}},
            "sshKey": ssh_keys["rsa"],
            "credentialsMode": "Mint",
            "networking.machineNetwork": [{"cidr": "10.9.0.0/24"}],
        }
    )

    assert config.networking.machine_network[0].cidr == "10.9.0.0/24"
    assert config.credentials_mode == "Mint"


def test_no_secret_is_ever_repeated(check: Check, ssh_keys: dict[str, str]) -> None:
    found = check(
        {
            "platform": {"dock": {"password": ["topsecret"]}},
            "pullSecret": ["topsecret"],
            "sshKey": "topsecret",
            "additionalTrustBundle": "topsecret",
            "proxy": {"httpProxy": "http://me:topsecret @x"},
        }
    )

    assert len(found) >= 5
    assert not any("topsecret" in finding.message + finding.remedy for finding in found)


@pytest.mark.parametrize(
    ("prepare", "words", "remedy"),
    [
        (lambda path: None, "there is no", "run: moorage create install-config"),
        (lambda path: path.mkdir(), "is a directory", "name the file"),
        (lambda path: path.write_bytes(b"x" * (2**20 + 1)), "longer than", "is it the right file?"),
        (lambda path: path.symlink_to(path), "cannot be read", "check its permissions"),
    ],
)
def test_a_file_that_cannot_be_read(
    tmp_path: pathlib.Path, stanzas: Stanzas, prepare: Any, words: str, remedy: str
) -> None:
    path = tmp_path / "install-config.yaml"
    prepare(path)

    with pytest.raises(errors.ConfigError) as caught:
        load.read(path, stanzas)

    assert words in caught.value.message
    assert caught.value.remedy.startswith(remedy)


def test_a_file_is_read_and_named_in_its_errors(tmp_path: pathlib.Path, make: Make, stanzas: Stanzas) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(make())
    bad.write_text(make({"baseDomain": None}))

    config, warnings = load.read(good, stanzas)
    with pytest.raises(findings.Invalid) as caught:
        load.read(bad, stanzas)

    assert (config.name, warnings) == ("demo", [])
    assert caught.value.message == f"1 error in {bad}"


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 70000), st.floats(), st.text(max_size=8), st.dates()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)
PATHS = [
    *BASE,
    "metadata.name",
    "platform.none",
    "platform.dock",
    "controlPlane",
    "controlPlane.replicas",
    "controlPlane.platform",
    "controlPlane.platform.none",
    "compute",
    "networking",
    "networking.clusterNetwork",
    "networking.clusterNetworks",
    "networking.machineCIDR",
    "networking.serviceCIDR",
    "networking.serviceNetwork",
    "networking.type",
    "proxy",
    "proxy.httpProxy",
    "proxy.noProxy",
    "capabilities",
    "imageDigestSources",
    "additionalTrustBundle",
    "bootstrapInPlace",
    "featureGates",
    "sshKey",
    "fips",
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(st.sampled_from(PATHS), anything, max_size=4))
def test_any_value_anywhere_is_parsed_or_invalid(stanzas: Stanzas, changes: dict[str, Any]) -> None:
    data: dict[str, Any] = changed({})
    for path, value in changes.items():
        *parents, last = path.split(".")
        holder = data
        for parent in parents:
            inner = holder.setdefault(parent, {})
            if not isinstance(inner, dict):
                inner = holder[parent] = {}
            holder = inner
        holder[last] = value

    text = yaml.safe_dump(data, allow_unicode=True)
    found = load.check(text, stanzas)

    if any(finding.severity == "error" for finding in found):
        with pytest.raises(findings.Invalid) as caught:
            load.parse(text, stanzas)
        assert list(caught.value.findings) == found
    else:
        assert isinstance(load.parse(text, stanzas)[0], model.InstallConfig)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200)))
def test_any_bytes_are_parsed_or_invalid(stanzas: Stanzas, raw: str | bytes) -> None:
    with pytest.raises(findings.Invalid):
        load.parse(raw, stanzas)


networks = st.sampled_from(
    [
        {},
        {"networkType": "Calico"},
        {
            "machineNetwork": [{"cidr": "fd00::/64"}],
            "clusterNetwork": [{"cidr": "fd01::/48"}],
            "serviceNetwork": ["fd02::/112"],
        },
        {"clusterNetwork": [{"cidr": "10.128.0.0/16"}, {"cidr": "10.132.0.0/16"}]},
    ]
)
sound = st.fixed_dictionaries(
    {"metadata.name": st.from_regex(r"[a-z][a-z0-9]{0,20}", fullmatch=True), "networking": networks},
    optional={
        "controlPlane.replicas": st.sampled_from([1, 3, 5]),
        "compute": st.integers(0, 9).map(lambda count: [{"name": "worker", "replicas": count}]),
        "fips": st.booleans(),
        "proxy": st.just({"httpProxy": "http://me:you@proxy:3128", "noProxy": ".a.com"}),
        "imageDigestSources": st.just([{"source": "quay.io/a", "mirrors": ["b.io/a"]}]),
        "capabilities": st.just({"baselineCapabilitySet": "v4.18"}),
        "featureSet": st.sampled_from(["", "Default", "TechPreviewNoUpgrade"]),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sound)
def test_what_is_written_is_read_back_the_same(stanzas: Stanzas, changes: dict[str, Any]) -> None:
    config, _ = load.parse(emit.dump(changed(changes)), stanzas)

    again, _ = load.parse(emit.dump(config.to_dict()), stanzas)

    assert again == config
    assert again.to_dict() == config.to_dict()


def test_a_platforms_settings_survive_writing(make: Make, stanzas: Stanzas, ssh_keys: dict[str, str]) -> None:
    text = make(
        {
            "platform": {"dock": {"password": "1e3", "apiVIPs": ["192.168.0.5"], "berth": "07"}},
            "controlPlane.platform": {"dock": {"cpus": 16}},
            "sshKey": ssh_keys["rsa"] + "\n" + ssh_keys["ecdsa"] + "\n",
        }
    )
    config, _ = load.parse(text, stanzas)

    again, _ = load.parse(emit.dump(config.to_dict()), stanzas)

    assert again == config
    assert config.platform.settings.plain() == {
        "apiVIPs": ["192.168.0.5"],
        "password": "1e3",
        "berth": "07",
        "labels": {},
    }
    assert DOCK.name == config.platform.name
