"""Every fact about the releases that can be installed, in one place.

A new release is a change of data here: where its payload and boot images are, and how it differs from its neighbours.
The differences reach the bootstrap node through its environment file, so no script ever asks for a version.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from moorage import errors
from moorage.assets import values

DEFAULT_MINOR = "4.20"

RPM_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le"}
"""Our names of architectures (Go's) and those of the operating system."""


@dataclasses.dataclass(frozen=True)
class Stream:
    """A line of releases: who publishes it, for which machines, and which operating system it boots."""

    title: str
    version: str
    pull_specs: Mapping[str, str]
    channel: str
    upstream: str
    node_image: str
    coreos: str
    coreos_version: str
    coreos_url: str


@dataclasses.dataclass(frozen=True)
class Traits:
    """How a minor release differs from others on the bootstrap node.

    The ``*_flags`` are added to the commands of their name; ``pause_image_flag`` is the kubelet's flag for the pause
    image, gone once CRI-O alone decides; ``controller_reads_references`` says that the bootstrap machine-config
    controller wants the payload's image-references next to its manifests.
    """

    kubernetes: str
    podman_flags: tuple[str, ...] = ()
    cvo_flags: tuple[str, ...] = ("--feature-gate-manifest-path=/assets/manifests/99_feature-gate.yaml",)
    pause_image_flag: str = "--pod-infra-container-image"
    controller_reads_references: bool = False


@dataclasses.dataclass(frozen=True)
class BootImage:
    """Something a machine boots from. The sums are empty where they are not known or nothing is compressed."""

    location: str
    sha256: str = ""
    uncompressed_sha256: str = ""


@dataclasses.dataclass(frozen=True)
class StoredObject:
    """A boot image in a region's object storage."""

    bucket: str
    object: str
    url: str


# From 4.21 on, the bootstrap node's containers log to files instead of the journal.
_LOG_TO_FILE = ("--log-driver=k8s-file",)

TRAITS = {
    "4.19": Traits("1.32"),
    "4.20": Traits("1.33"),
    "4.21": Traits("1.34", podman_flags=_LOG_TO_FILE, controller_reads_references=True),
    "4.22": Traits(
        "1.35",
        podman_flags=_LOG_TO_FILE,
        cvo_flags=(
            "--cluster-version-manifest-path=/assets/manifests/cvo-overrides.yaml",
            "--feature-gate-manifest-path=/assets/manifests/99_feature-gate.yaml",
        ),
        pause_image_flag="",
        controller_reads_references=True,
    ),
}

REQUIRED_PODS = (
    "openshift-kube-apiserver/kube-apiserver",
    "openshift-kube-scheduler/openshift-kube-scheduler",
    "openshift-kube-controller-manager/kube-controller-manager",
    "openshift-cluster-version/cluster-version-operator",
)
"""Pods that must run on the control plane before the bootstrap node lets go."""

STREAMS = {
    "ocp": Stream(
        title="OpenShift Container Platform",
        version="4.20.33",
        pull_specs={
            architecture: f"quay.io/openshift-release-dev/ocp-release:4.20.33-{rpm}"
            for architecture, rpm in RPM_ARCHITECTURES.items()
        },
        channel="stable-{minor}",
        upstream="",
        node_image="rhel-coreos",
        coreos="rhcos",
        coreos_version="9.6.20260616-0",
        coreos_url="https://rhcos.mirror.openshift.com/art/storage/prod/streams/rhel-9.6/builds",
    ),
    "okd": Stream(
        title="OKD",
        version="4.20.0-okd-scos.17",
        pull_specs={"amd64": "quay.io/okd/scos-release:4.20.0-okd-scos.17"},
        channel="stable-scos-4",
        upstream="https://amd64.origin.releases.ci.openshift.org/graph",
        node_image="stream-coreos",
        coreos="scos",
        coreos_version="10.0.20250628-0",
        coreos_url="https://rhcos.mirror.openshift.com/art/storage/prod/streams/c10s/builds",
    ),
}

ARTIFACTS = {
    "openstack": "qcow2.gz",
    "qemu": "qcow2.gz",
    "powervs": "ova.gz",
    "live-kernel": "",
    "live-initramfs": "img",
    "live-rootfs": "img",
}
"""Boot images by CoreOS's own names, and how their files end."""

_SUMS: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {
    ("rhcos", "x86_64"): {
        "openstack": (
            "0d17b529b5a4dfe5bb9211b8a1d239f2a3299d67924338ba350da58d95f7c2d0",
            "9a506cf185ea506819a9a9fe01cd87cf373399358d75bd401ac462b288f7f546",
        ),
        "qemu": (
            "67957da8dc9074487fc9878a867043193b9867700d02dd5e3abb9e2787a5e85b",
            "b27c3c63319b8a00d2f34c18e48d7a7f911b358ec2ad419d93ea8e70e15b7de3",
        ),
        "live-kernel": ("4b1f47b7b13bc2593e3958e43a0185c741c7c6992614f0e0fc6b0a05e5a5dd1d",),
        "live-initramfs": ("c403ca40ee8b29ae52d341f19ec779f85c947ad6d04f122cd3881478917b4853",),
        "live-rootfs": ("1ab4ea402b061a0c26e5c7bde9d9eab2570e1308a7e1a41621b75fae09a57f06",),
    },
    ("rhcos", "aarch64"): {
        "openstack": (
            "deefb1735dd3f6ae47520f0a15f89825c607feb6bb17a2d33e0b8c2bbd96ee1a",
            "d400f5b55e7d9adb8de7615c2e7e3a5bd59d3812986a83fd13081b579426f9bd",
        ),
        "qemu": (
            "88b94be2319a98440f127983cbb2d62c46a2c08b86cea71392b965a59843df6e",
            "f0bc9fb3215ad4256b672443c95877fdb8a505476c80b7bbb2ebe2488ffc1c06",
        ),
        "live-kernel": ("6a5ad998e54a554d4b0695b7673c6caec7ef54a1d6050cd443b1b0a18fca5e37",),
        "live-initramfs": ("f66972d9c7e2d452e66897d78c0c833c7d91cac6386e2095c4f777bf9b2b56a9",),
        "live-rootfs": ("5977cc92f9a37200920c779d5f55adcf54c2b70986cce68a65b1d091f5bc7578",),
    },
    ("rhcos", "ppc64le"): {
        "openstack": (
            "e0745b4a91c57a5eb35645f62405d2d8a5df565e22e818bae4bda4035c910949",
            "5afd93c33db1753bc483c538cee62ccdcf00d40a4e4adef8e551680d93a9b333",
        ),
        "qemu": (
            "7d82ee96f69ea7f0714b7db675ac7debbe812d4135cbbaa2bae02ced54d70723",
            "8a29cc9f8ce4d7c542b597a570c0098bfe8a5453f716b1d205987f190ad2ac6a",
        ),
        "powervs": (
            "48135456fda3293d8bf2c576ef835e361745948943d60215d0aacafe959bf11a",
            "a49772093de426f85eaafea354e5c5a5c0a8239f21a7b8132cccacdb0284fa3b",
        ),
    },
    ("scos", "x86_64"): {
        "openstack": (
            "fa8dfc8b05d439f018460b37dffcbc60467a2ef9f314ea9622d3244165c86dcd",
            "f456c960bce9e2ccbd4b62293e364da45d3b61d2fe8ff6e15c2eab677889f51c",
        ),
        "qemu": (
            "5183854e0496825c129ca07c4134ea2c51d8cff80906e76fb00af8a6d0d71ebc",
            "e990c2f2e2d42a84d70664be3815eb4db6a0b561a93e2cc11b8dd29871c49270",
        ),
        "live-kernel": ("447910c2e93c6b7e886d19972a1cf17c1c2abc45511b44f5ce4b033f4365bff4",),
        "live-initramfs": ("4e5b0ae7cc59ee162b6bb849241f184b8cc7c50c0a557bde9fc82cf21fe834b0",),
        "live-rootfs": ("540a81b0ca714e52e4b3d23454a3db0c4e0e02943cd7608b660acbc65b557613",),
    },
    ("scos", "aarch64"): {
        "openstack": (
            "347bfe571309da5c84dd8b30295b749eee0b43cf80fb8b0b183bf27245f4bf33",
            "0cc2033963e95431c094d8ce7781ee29829e9c7653732b6ce666bc4adbd4fe9a",
        ),
        "qemu": (
            "aa390d1ed8465a57123ed88dec926e2bea82d04b977e89706220c818347efdde",
            "5d037dce1eda695a790ca26c2d0098490d055a610fcf91755a9b2077d724846b",
        ),
        "live-kernel": ("b28b9065579810f8d92d5ff40e84c21ac2dad3c7a8ce49b6f0b8409748cf829a",),
        "live-initramfs": ("6280ee3a1161c50632262aad6d259330ea1ae94baaf4e6116e73e2a53e382a69",),
        "live-rootfs": ("c7d681ce3245edb4367595138639dd9c9ba74da9a133006f2a0bc880c964bf7d",),
    },
    ("scos", "ppc64le"): {
        "openstack": (
            "0ec9ba640775c834f11b13bbf85352cbceed173bfea88e8b880c89e9624319c7",
            "dd5e49b3aad192ec1a7b3da1405f6ddd8ff9d790260cfea8b279b804fc9f33b2",
        ),
        "qemu": (
            "6bce07f52542bc4a447ed4e2f5b7aea220dc6d555ab6a27d6d172f8008b9bbb8",
            "46d8b5943f3b2988d06810071e348e62088f87fa9c4e0735ae8016dbf10c6e3d",
        ),
        "powervs": (
            "5dd50774a55141e216b2a1c0bfab7baa6a57643f77b0435b5d31d00b928f0ee0",
            "26776d6348d51aaef8729ac4d12bc7c84584b379bbd496da6db2006925df3e3c",
        ),
    },
}
"""SHA-256 of each published file, and of what it unpacks to."""

_STORED = {
    "rhcos": ("au-syd", "br-sao", "ca-tor", "eu-de", "eu-es", "eu-gb", "jp-osa", "jp-tok", "us-east", "us-south"),
    "scos": ("us-east",),
}
"""Regions of IBM Cloud whose public buckets hold the ``powervs`` image."""

_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]+\])"
_REFERENCE = re.compile(
    rf"(?P<host>{_HOST}(?::[0-9]{{1,5}})?)/(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_TAG_MINOR = re.compile(r"v?(\d+\.\d+)(?:\.\d+.*)?")
_PRINTABLE = re.compile(r"[!-~]+")


def choose(architecture: str, environ: Mapping[str, str]) -> values.Release:
    """The release to install on machines of ``architecture``, with the overrides that ``environ`` asks for."""
    name = environ.get("MOORAGE_STREAM", "") or "ocp"
    stream = STREAMS.get(name)
    if stream is None:
        raise errors.ConfigError(
            f"MOORAGE_STREAM is {name!r}, which is no stream of releases",
            remedy=f"set MOORAGE_STREAM to one of: {', '.join(STREAMS)}",
        )
    os_image = _os_override(environ.get("OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE", ""))
    override = environ.get("OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE", "")
    if override:
        version, pull_spec = _release_override(override, stream), override
    else:
        version, pull_spec = stream.version, _pull_spec(stream, architecture)
    return values.Release(
        version=version,
        stream=name,
        pull_spec=pull_spec,
        os_image=os_image,
        architecture=architecture,
        channel=stream.channel.format(minor=_minor(version)),
        upstream=stream.upstream,
        overridden=bool(override),
    )


def traits(release: values.Release) -> Traits:
    """What is particular to this release's minor version."""
    return TRAITS[_minor(release.version)]


def node_image(release: values.Release) -> str:
    """The payload's name for the image that nodes run."""
    return STREAMS[release.stream].node_image


def os_image(release: values.Release, artifact: str) -> BootImage:
    """The boot image of this kind; where the user named one of their own, that, whatever the kind."""
    if release.os_image:
        return BootImage(release.os_image)
    stream = STREAMS[release.stream]
    machine = RPM_ARCHITECTURES[release.architecture]
    sums = _SUMS[stream.coreos, machine].get(artifact)
    if sums is None:
        raise errors.ConfigError(
            f"{stream.title} publishes no {artifact} boot image for {release.architecture}",
            remedy="choose another architecture, or name an image in OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE",
        )
    ending = ARTIFACTS[artifact] and f".{ARTIFACTS[artifact]}"
    file_name = f"{stream.coreos}-{stream.coreos_version}-{artifact}.{machine}{ending}"
    return BootImage(f"{stream.coreos_url}/{stream.coreos_version}/{machine}/{file_name}", *sums)


def stored_image(release: values.Release, region: str) -> StoredObject:
    """The ``powervs`` boot image in the region's public bucket; regions without one are served from us-east."""
    stream = STREAMS[release.stream]
    region = region if region in _STORED[stream.coreos] else "us-east"
    bucket = f"rhcos-powervs-images-{region}"
    name = f"{stream.coreos}-{stream.coreos_version.replace('.', '-')}-ppc64le-powervs.ova.gz"
    return StoredObject(bucket, name, f"https://s3.{region}.cloud-object-storage.appdomain.cloud/{bucket}/{name}")


def _pull_spec(stream: Stream, architecture: str) -> str:
    pull_spec = stream.pull_specs.get(architecture)
    if pull_spec is None:
        raise errors.ConfigError(
            f"{stream.title} {stream.version} is not published for {architecture}, only for "
            f"{', '.join(stream.pull_specs)}",
            remedy="choose another architecture or stream (MOORAGE_STREAM), or name a payload that was built for it "
            "in OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE",
        )
    return pull_spec


def _release_override(pull_spec: str, stream: Stream) -> str:
    """The version behind an overriding pull spec: what its tag says, else the stream's."""
    found = _REFERENCE.fullmatch(pull_spec)
    if found is None or not (found["tag"] or found["digest"]):
        raise errors.ConfigError(
            f"OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE is no image reference: {pull_spec!r}",
            remedy="write <registry>/<repository>:<tag> or <registry>/<repository>@sha256:<64 hexadecimal digits>",
        )
    tagged = _TAG_MINOR.match(found["tag"] or "")
    if tagged is None:
        return stream.version
    if tagged[1] not in TRAITS:
        raise errors.ConfigError(
            f"OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE asks for release {tagged[1]}, which cannot be installed",
            remedy=f"choose a payload of one of: {', '.join(TRAITS)}",
        )
    return str(found["tag"]).removeprefix("v")


def _os_override(image: str) -> str:
    # A URL on some platforms, the name of an uploaded image on others: only what can be neither is refused.
    if not image or _PRINTABLE.fullmatch(image):
        return image
    raise errors.ConfigError(
        f"OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE is neither a URL nor the name of an image: {image!r}",
        remedy="remove blanks and control characters from it",
    )


def _minor(version: str) -> str:
    found = _TAG_MINOR.match(version)
    return found[1] if found and found[1] in TRAITS else DEFAULT_MINOR
