"""The bootstrap node: the files and units that are the same on every platform.

Its scripts and units are static files in `bootstrap_files`; everything that differs between clusters is in one file of
shell variables, `/etc/moorage/bootstrap.env`, that is computed here. So what a linter reads is what runs on the node.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import re
import shlex
from collections.abc import Iterator, Mapping

from moorage import errors
from moorage.assets import proxy, registries, releases, values
from moorage.config import model

ENVIRONMENT_PATH = "/etc/moorage/bootstrap.env"
TRUST_PATH = "/etc/pki/ca-trust/source/anchors/ca.crt"
PULL_SECRET_PATH = "/root/.docker/config.json"  # noqa: S105 - where it is, not what it is
FIPS_PATH = "/etc/ignition-machine-config-encapsulated.json"

SCRIPTS = (
    "approve-csr.sh",
    "bootkube.sh",
    "crio-configure.sh",
    "gatewayd-key.sh",
    "installer-gather.sh",
    "kubelet.sh",
    "node-gather.sh",
    "node-image-overlay.sh",
    "node-image-pull.sh",
    "release-image-download.sh",
    "report-progress.sh",
)
LIBRARY = ("common.sh", "release.sh", "renders.sh", "stages.sh")
GENERATOR = "node-image-overlay-generator"

# Started at boot; every other unit is pulled in by one of these.
ENABLED = ("approve-csr.service", "kubelet.service", "progress.service")
PULLED_IN = (
    "bootkube.service",
    "crio-configure.service",
    "node-image-finish.service",
    "node-image-overlay.service",
    "node-image-overlay.target",
    "node-image-pull.service",
    "release-image.service",
    "trust-bundle.service",
    "var-nodeimage.mount",
)

CLUSTER_PROFILE = "self-managed-high-availability"
_PROFILE = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_UNQUOTABLE = re.compile(r"[\x00-\x1f\x7f]")


@dataclasses.dataclass(frozen=True)
class Overrides:
    """What the environment of the installer may change about the bootstrap node; empty means: decide yourself."""

    node_ip: str = ""
    cluster_profile: str = ""


NO_OVERRIDES = Overrides()


def overrides(environ: Mapping[str, str]) -> Overrides:
    """The overrides that ``environ`` asks for, each of them checked."""
    node_ip = environ.get("OPENSHIFT_INSTALL_BOOTSTRAP_NODE_IP", "")
    if node_ip:
        try:
            ipaddress.ip_address(node_ip)
        except ValueError as problem:
            raise errors.ConfigError(
                f"OPENSHIFT_INSTALL_BOOTSTRAP_NODE_IP is {node_ip!r}, which is no IP address",
                remedy="set it to the address the bootstrap node will have, or unset it",
            ) from problem
    profile = environ.get("OPENSHIFT_INSTALL_EXPERIMENTAL_CLUSTER_PROFILE", "")
    if profile and not _PROFILE.fullmatch(profile):
        raise errors.ConfigError(
            f"OPENSHIFT_INSTALL_EXPERIMENTAL_CLUSTER_PROFILE is {profile!r}, which is no name of a profile",
            remedy=f"unset it for {CLUSTER_PROFILE}, or use lower-case letters, digits and '-'",
        )
    return Overrides(node_ip, profile)


def environment(
    config: model.InstallConfig,
    endpoints: values.Endpoints,
    release: values.Release,
    invoker: str,
    wanted: Overrides = NO_OVERRIDES,
) -> bytes:
    """The bootstrap node's variables, quoted so that a shell and systemd's EnvironmentFile= read the same."""
    traits = releases.traits(release)
    variables = {
        "CLUSTER_DOMAIN": endpoints.cluster_domain,
        "API_HOST": endpoints.api,
        "API_INT_HOST": endpoints.api_int,
        "INVOKER": invoker,
        "RELEASE_IMAGE": release.pull_spec,
        "NODE_IMAGE": releases.node_image(release),
        "CLUSTER_PROFILE": wanted.cluster_profile or CLUSTER_PROFILE,
        "REQUIRED_PODS": ",".join(releases.REQUIRED_PODS),
        "PODMAN_FLAGS": " ".join(traits.podman_flags),
        "CVO_FLAGS": " ".join(traits.cvo_flags),
        "PAUSE_IMAGE_FLAG": traits.pause_image_flag,
        "CONTROLLER_READS_REFERENCES": json.dumps(traits.controller_reads_references),
        "NODE_IP": wanted.node_ip or ("::" if _is_ipv6_first(config) else ""),
        "NODE_ADDRESS": wanted.node_ip,
    }
    return "".join(f"MOORAGE_{name}={_quoted(name, value)}\n" for name, value in variables.items()).encode()


def node_files(
    config: model.InstallConfig,
    endpoints: values.Endpoints,
    release: values.Release,
    invoker: str,
    wanted: Overrides = NO_OVERRIDES,
) -> list[values.IgnitionFile]:
    """Every file of the bootstrap node that is neither a manifest nor a certificate of the cluster."""
    return [
        *_static_files(),
        values.IgnitionFile(ENVIRONMENT_PATH, environment(config, endpoints, release, invoker, wanted), 0o600),
        values.IgnitionFile(PULL_SECRET_PATH, config.pull_secret.get_secret_value().encode(), 0o600),
        *_proxy_files(config, endpoints),
        *_optional_files(config),
    ]


def node_units(release: values.Release) -> list[values.IgnitionUnit]:
    """The units of the bootstrap node."""
    units = [values.IgnitionUnit(name, _text(name), enabled=True) for name in ENABLED]
    units += [values.IgnitionUnit(name, _text(name)) for name in PULLED_IN]
    if release.is_okd:
        # OKD's system has a service that updates it on its own, and no journal gateway.
        disabled = ("disabled.conf", _text("zincati.service.disabled.conf"))
        return [*units, values.IgnitionUnit("zincati.service", dropins=(disabled,))]
    certificates = ("certs.conf", _text("systemd-journal-gatewayd.service.certs.conf"))
    return [
        *units,
        values.IgnitionUnit("chown-gatewayd-key.service", _text("chown-gatewayd-key.service"), enabled=True),
        values.IgnitionUnit("systemd-journal-gatewayd.service", dropins=(certificates,)),
        values.IgnitionUnit("systemd-journal-gatewayd.socket", enabled=True),
    ]


def _static_files() -> Iterator[values.IgnitionFile]:
    for name in SCRIPTS:
        yield values.IgnitionFile(f"/usr/local/bin/{name}", _bytes(name), 0o555)
    for name in LIBRARY:
        yield values.IgnitionFile(f"/usr/local/lib/moorage/{name}", _bytes(name), 0o444)
    yield values.IgnitionFile(f"/etc/systemd/system-generators/{GENERATOR}", _bytes(GENERATOR), 0o555)
    yield values.IgnitionFile("/etc/motd", _bytes("motd"), 0o644, append=True)


def _optional_files(config: model.InstallConfig) -> Iterator[values.IgnitionFile]:
    mirrors = registries.registries_conf(config)
    if mirrors is not None:
        # Readable by everybody: rpm-ostree does its pulling without privileges.
        yield values.IgnitionFile(registries.PATH, mirrors, 0o644)
    if config.additional_trust_bundle:
        # Whatever the policy says about the cluster: a mirror may need it before there is a cluster.
        bundle = config.additional_trust_bundle.rstrip("\n") + "\n"
        yield values.IgnitionFile(TRUST_PATH, bundle.encode(), 0o644)
    if config.fips:
        yield values.IgnitionFile(FIPS_PATH, _fips_machine_config(), 0o600)


def _proxy_files(config: model.InstallConfig, endpoints: values.Endpoints) -> Iterator[values.IgnitionFile]:
    """The proxy for login shells and for services; a proxy's URL may hold a password, so both are root's alone."""
    if config.proxy is None:
        return
    found = {
        "HTTP_PROXY": config.proxy.http_proxy,
        "HTTPS_PROXY": config.proxy.https_proxy,
        "NO_PROXY": proxy.effective_no_proxy(config, endpoints),
    }
    variables = {name: value for name, value in found.items() if value}
    shell = "".join(f"export {name}={_quoted(name, value)}\n" for name, value in variables.items())
    manager = "[Manager]\n" + "".join(
        f'DefaultEnvironment="{name}={_systemd_escaped(value)}"\n' for name, value in variables.items()
    )
    yield values.IgnitionFile("/etc/profile.d/proxy.sh", shell.encode(), 0o600)
    yield values.IgnitionFile("/etc/systemd/system.conf.d/10-default-env.conf", manager.encode(), 0o600)


def _fips_machine_config() -> bytes:
    # The initramfs looks for this very file to turn FIPS mode on before anything makes a key.
    spec = {"config": {"ignition": {"version": "3.2.0"}}, "kernelArguments": [], "fips": True}
    return json.dumps({"metadata": {"name": "bootstrap-fips"}, "spec": spec}, indent=1).encode() + b"\n"


def _is_ipv6_first(config: model.InstallConfig) -> bool:
    return ipaddress.ip_network(config.networking.service_network[0]).version == 6


def _quoted(name: str, value: str) -> str:
    if _UNQUOTABLE.search(value):
        raise errors.ConfigError(
            f"the value of {name} holds a line break or control character: {value!r}",
            remedy="remove it from the install-config or the environment",
        )
    return shlex.quote(value)


def _systemd_escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _bytes(name: str) -> bytes:
    from importlib import resources

    return (resources.files("moorage.assets") / "bootstrap_files" / name).read_bytes()


def _text(name: str) -> str:
    return _bytes(name).decode()
