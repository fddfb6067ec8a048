"""The releases that can be installed: what is chosen, what is refused, and where machines boot from."""

from __future__ import annotations

import re

import pytest

from moorage import errors
from moorage.assets import releases

DIGEST = "sha256:" + "0123456789abcdef" * 4


def override(pull_spec, **more):
    return releases.choose("amd64", {"OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE": pull_spec, **more})


@pytest.mark.parametrize(
    ("architecture", "machine"), [("amd64", "x86_64"), ("arm64", "aarch64"), ("ppc64le", "ppc64le")]
)
def test_openshift_is_chosen_by_default_for_each_architecture(architecture, machine):
    release = releases.choose(architecture, {})

    assert release.pull_spec == f"quay.io/openshift-release-dev/ocp-release:{release.version}-{machine}"
    assert (release.stream, release.channel, release.upstream, release.overridden) == ("ocp", "stable-4.20", "", False)
    assert release.version.startswith("4.20.")


def test_okd_is_chosen_by_name_and_knows_its_own_graph_of_updates():
    release = releases.choose("amd64", {"MOORAGE_STREAM": "okd"})

    assert release.is_okd
    assert release.pull_spec == f"quay.io/okd/scos-release:{release.version}"
    assert release.channel == "stable-scos-4"
    assert release.upstream.startswith("https://")
    assert releases.node_image(release) == "stream-coreos"


@pytest.mark.parametrize("architecture", ["arm64", "ppc64le"])
def test_a_stream_without_a_build_for_the_machines_says_so(architecture):
    with pytest.raises(errors.ConfigError, match=f"OKD .* is not published for {architecture}, only for amd64") as no:
        releases.choose(architecture, {"MOORAGE_STREAM": "okd"})

    assert "OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE" in no.value.remedy


def test_a_stream_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(errors.ConfigError, match="'origin'") as no:
        releases.choose("amd64", {"MOORAGE_STREAM": "origin"})

    assert "ocp, okd" in no.value.remedy


@pytest.mark.parametrize(
    ("pull_spec", "version", "channel"),
    [
        ("registry.example.org/ocp/release:4.21.3-x86_64", "4.21.3-x86_64", "stable-4.21"),
        ("localhost:5000/release:v4.20.1", "4.20.1", "stable-4.20"),
        (f"quay.io/openshift-release-dev/ocp-release@{DIGEST}", "4.20.33", "stable-4.20"),
        (f"registry.example.org:5000/a/b_c/d:4.19.0@{DIGEST}", "4.19.0", "stable-4.19"),
        (f"[2001:db8::1]:5000/release@{DIGEST}", "4.20.33", "stable-4.20"),
        ("registry.ci.example.org/origin/release:nightly", "4.20.33", "stable-4.20"),
    ],
)
def test_an_override_is_taken_with_the_version_its_tag_tells(pull_spec, version, channel):
    release = override(pull_spec)

    assert (release.pull_spec, release.version, release.channel) == (pull_spec, version, channel)
    assert release.overridden


def test_an_override_makes_a_stream_installable_where_it_is_not_published():
    environ = {"MOORAGE_STREAM": "okd", "OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE": f"r.example/okd@{DIGEST}"}

    release = releases.choose("ppc64le", environ)

    assert release.architecture == "ppc64le"
    assert "scos-" in releases.os_image(release, "powervs").location


@pytest.mark.parametrize(
    "pull_spec",
    [
        "release",
        "quay.io/openshift-release-dev/ocp-release",
        "https://quay.io/openshift-release-dev/ocp-release:4.20.1",
        "quay.io/Upper/Case:4.20.1",
        "quay.io/a b:4.20.1",
        "quay.io/a:4.20.1\n",
        "quay.io/a@sha256:123",
        "quay.io/a@md5:0123",
        "quay.io/a:" + "x" * 129,
        "quay.io//a:1",
        "$(reboot)/a:1",
    ],
)
def test_what_is_no_image_reference_is_refused(pull_spec):
    with pytest.raises(errors.ConfigError, match="no image reference") as no:
        override(pull_spec)

    assert "<registry>/<repository>" in no.value.remedy


@pytest.mark.parametrize("tag", ["4.12.1-x86_64", "4.2.0", "5.0.1"])
def test_a_release_that_is_not_known_is_refused(tag):
    with pytest.raises(errors.ConfigError, match="cannot be installed"):
        override(f"quay.io/openshift-release-dev/ocp-release:{tag}")


def test_releases_differ_where_the_data_says():
    older, newer = override("r.example/a:4.20.0"), override("r.example/a:4.22.0")

    assert releases.traits(older).pause_image_flag == "--pod-infra-container-image"
    assert releases.traits(newer).pause_image_flag == ""
    assert releases.traits(newer).controller_reads_references
    assert not releases.traits(older).controller_reads_references


@pytest.mark.parametrize("stream", ["ocp", "okd"])
def test_every_boot_image_has_an_address_and_a_sum(stream):
    pull_spec = {"OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE": f"r.example/a@{DIGEST}", "MOORAGE_STREAM": stream}
    found = 0
    for architecture in releases.RPM_ARCHITECTURES:
        release = releases.choose(architecture, pull_spec)
        for artifact in releases.ARTIFACTS:
            try:
                image = releases.os_image(release, artifact)
            except errors.ConfigError:
                continue
            found += 1
            machine = releases.RPM_ARCHITECTURES[architecture]
            assert f"-{artifact}.{machine}" in image.location
            assert re.fullmatch("[0-9a-f]{64}", image.sha256)
            assert bool(image.uncompressed_sha256) is image.location.endswith(".gz")
    assert found == 13


def test_a_boot_image_is_where_its_publisher_keeps_it():
    image = releases.os_image(releases.choose("ppc64le", {}), "powervs")

    assert image.location == (
        "https://rhcos.mirror.openshift.com/art/storage/prod/streams/rhel-9.6/builds/9.6.20260616-0/ppc64le/"
        "rhcos-9.6.20260616-0-powervs.ppc64le.ova.gz"
    )
    kernel = releases.os_image(releases.choose("amd64", {}), "live-kernel")
    assert kernel.location.endswith("/x86_64/rhcos-9.6.20260616-0-live-kernel.x86_64")


def test_a_boot_image_that_is_not_built_is_said_by_name():
    with pytest.raises(errors.ConfigError, match="no powervs boot image for amd64"):
        releases.os_image(releases.choose("amd64", {}), "powervs")


@pytest.mark.parametrize("image", ["https://mirror.example/rhcos.qcow2.gz", "rhcos-4.20", "quay.io/a/rhcos@" + DIGEST])
def test_the_users_own_boot_image_comes_first(image):
    release = releases.choose("amd64", {"OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE": image})

    assert releases.os_image(release, "powervs") == releases.BootImage(image)


@pytest.mark.parametrize("image", ["two words", "line\nbreak", "tab\t"])
def test_a_boot_image_that_cannot_be_meant_is_refused(image):
    with pytest.raises(errors.ConfigError, match="OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE"):
        releases.choose("amd64", {"OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE": image})


@pytest.mark.parametrize(("region", "served_from"), [("eu-de", "eu-de"), ("us-south", "us-south"), ("mad", "us-east")])
def test_stored_images_are_in_the_regions_bucket_or_in_us_east(region, served_from):
    stored = releases.stored_image(releases.choose("ppc64le", {}), region)

    assert stored.bucket == f"rhcos-powervs-images-{served_from}"
    assert stored.url == (
        f"https://s3.{served_from}.cloud-object-storage.appdomain.cloud/{stored.bucket}/"
        "rhcos-9-6-20260616-0-ppc64le-powervs.ova.gz"
    )
