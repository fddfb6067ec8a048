"""What the cluster-version operator installs, and what it leaves alone while the cluster is born."""

import dataclasses
import json

import pytest
import yaml

from moorage import errors
from moorage.assets import cvo
from moorage.config import model

OVERRIDES = "manifests/cvo-overrides.yaml"
VERSION = (
    b"apiVersion: config.openshift.io/v1\nkind: ClusterVersion\nmetadata: {name: version}\nspec: {channel: stable}\n"
)


def config_map(name: str, namespace: str = "ns") -> bytes:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\n".encode()


def override(kind: str, name: str, *, group: str = "", namespace: str = "", unmanaged: bool = True) -> dict:
    return {"kind": kind, "group": group, "namespace": namespace, "name": name, "unmanaged": unmanaged}


def outcome(manifests, openshift=None):
    """The overrides during the bootstrap, and those that are restored after it."""
    during, patch = cvo.ignore(manifests, openshift or {})
    return yaml.safe_load(during)["spec"]["overrides"], json.loads(patch)


def test_openshift_updates_from_the_default_graph(parsed):
    manifest = parsed()["cvo-overrides.yaml"]

    assert manifest["metadata"] == {"name": "version", "namespace": "openshift-cluster-version"}
    assert manifest["spec"] == {"channel": "stable-4.20", "clusterID": "3f2b8c1e-7d4a-4c55-9e0b-2a6d1f908b77"}


def test_a_release_with_a_graph_of_its_own_names_it(parsed, release):
    own = dataclasses.replace(release, stream="okd", channel="stable-scos-4", upstream="https://graph.example.org")

    spec = parsed(release=own)["cvo-overrides.yaml"]["spec"]

    assert (spec["upstream"], spec["channel"]) == ("https://graph.example.org", "stable-scos-4")


@pytest.mark.parametrize(
    ("wanted", "written"),
    [
        (model.Capabilities(), {"baselineCapabilitySet": "vCurrent"}),
        (
            model.Capabilities(
                baseline_capability_set="None", additional_enabled_capabilities=("Ingress", "MachineAPI")
            ),
            {"baselineCapabilitySet": "None", "additionalEnabledCapabilities": ["Ingress", "MachineAPI"]},
        ),
    ],
)
def test_capabilities_are_passed_on(parsed, configure, wanted, written):
    assert parsed(configure(capabilities=wanted))["cvo-overrides.yaml"]["spec"]["capabilities"] == written


def test_every_object_but_the_cluster_version_is_left_alone_at_first(make, harbour):
    files = make(on=harbour)
    split = {
        folder: {path: content for path, content in files.items() if path.startswith(folder)}
        for folder in ("manifests", "openshift")
    }

    during, restored = outcome(split["manifests"], split["openshift"])

    others = [yaml.safe_load(content) for path, content in files.items() if path != OVERRIDES]
    assert {(o["kind"], o["namespace"], o["name"]) for o in during} == {
        (m["kind"], m["metadata"].get("namespace", ""), m["metadata"]["name"]) for m in others
    }
    assert len(during) == len(others)
    assert all(o["unmanaged"] is True for o in during)
    assert override("Infrastructure", "cluster", group="config.openshift.io") in during
    assert override("Secret", "kubeadmin", namespace="kube-system") in during
    assert restored == {"spec": {"overrides": None}}


def test_the_rest_of_the_cluster_version_is_kept():
    during, _ = cvo.ignore({OVERRIDES: VERSION, "manifests/a.yaml": config_map("a")}, {})

    expected = yaml.safe_load(VERSION)
    expected["spec"]["overrides"] = [override("ConfigMap", "a", namespace="ns")]
    assert yaml.safe_load(during) == expected


def test_the_users_overrides_are_kept_and_restored():
    mine = [override("Deployment", "mine", group="apps", namespace="ns")]
    version = {**yaml.safe_load(VERSION), "spec": {"overrides": mine}}
    manifests = {OVERRIDES: yaml.safe_dump(version).encode(), "manifests/a.yaml": config_map("a")}

    during, restored = outcome(manifests)

    assert during == [override("ConfigMap", "a", namespace="ns"), *mine]
    assert restored == {"spec": {"overrides": mine}}


def test_an_override_of_our_own_object_is_not_given_twice():
    mine = [override("ConfigMap", "a", namespace="ns", unmanaged=False)]
    version = {**yaml.safe_load(VERSION), "spec": {"overrides": mine}}
    manifests = {OVERRIDES: yaml.safe_dump(version).encode(), "manifests/a.yaml": config_map("a")}

    during, restored = outcome(manifests)

    assert during == [override("ConfigMap", "a", namespace="ns")]
    assert restored == {"spec": {"overrides": mine}}


def test_a_cluster_version_without_a_spec_gets_one():
    bare = b"apiVersion: config.openshift.io/v1\nkind: ClusterVersion\nmetadata: {name: version}\n"

    during, _ = outcome({OVERRIDES: bare, "manifests/a.yaml": config_map("a")})

    assert [o["name"] for o in during] == ["a"]


def test_the_users_files_count_however_they_are_written():
    openshift = {
        "openshift/two.yaml": config_map("b") + b"---\n" + config_map("c"),
        "openshift/empty.yml": b"# later\n",
        "openshift/d.json": b'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}}',
    }

    during, _ = outcome({OVERRIDES: VERSION, "manifests/a.yaml": config_map("a")}, openshift)

    assert [(o["name"], o["namespace"]) for o in during] == [("a", "ns"), ("d", ""), ("b", "ns"), ("c", "ns")]


def test_a_broken_file_is_named():
    with pytest.raises(errors.ConfigError, match=r"openshift/bad.yaml, line 2: not YAML"):
        cvo.ignore({OVERRIDES: VERSION}, {"openshift/bad.yaml": b"a: 1\n b: {\n"})


def test_one_object_in_two_files_is_refused_with_both_places():
    manifests = {OVERRIDES: VERSION, "manifests/a.yaml": b"---\n" + config_map("a")}

    with pytest.raises(errors.ConfigError) as refused:
        cvo.ignore(manifests, {"openshift/again.yaml": config_map("b") + b"---\n" + config_map("a")})

    assert refused.value.message == (
        "ConfigMap ns/a is defined twice: in manifests/a.yaml, line 2, and in openshift/again.yaml, line 5"
    )


def test_two_files_that_would_overwrite_each_other_are_refused():
    manifests = {OVERRIDES: VERSION, "manifests/a.yaml": config_map("a")}

    with pytest.raises(errors.ConfigError, match="same file name") as refused:
        cvo.ignore(manifests, {"openshift/a.yaml": config_map("b")})

    assert refused.value.remedy == "rename openshift/a.yaml"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "must hold the ClusterVersion object"),
        (b"", "must hold the ClusterVersion object"),
        (config_map("a"), "must hold the ClusterVersion object"),
        (VERSION + b"---\n" + config_map("a"), "must hold the ClusterVersion object"),
        (VERSION.replace(b"{channel: stable}", b"[]"), "spec is not a mapping"),
        (VERSION.replace(b"{channel: stable}", b"{overrides: {}}"), "spec.overrides is not a list"),
        (VERSION.replace(b"{channel: stable}", b"{overrides: [1]}"), "spec.overrides is not a list"),
        (VERSION.replace(b"{channel: stable}", b"&a {x: *a}"), "uses a YAML alias"),
    ],
)
def test_an_unusable_cluster_version_is_refused(content, words):
    with pytest.raises(errors.ConfigError, match=words):
        cvo.ignore({} if content is None else {OVERRIDES: content}, {})
