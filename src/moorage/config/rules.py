"""The rules of the install-config that take more than a type: what openshift-install demands, and what hurts later.

Rules are pure functions from a config to findings. `check` runs all of them that can run; the larger families live in
`network_rules`, `key_rules` and `access_rules`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from moorage.config import access_rules, defaults, findings, key_rules, model, names, network_rules, rule, stanza, text

CONTROL_PLANE_REPLICAS: Final = (1, 3, 4, 5)

CAPABILITY_SETS: Final[dict[str, frozenset[str]]] = {"None": frozenset()}
"""The optional components each baseline set holds, as of OpenShift 4.20."""

_ADDED: Final = (
    ("v4.11", "baremetal marketplace openshift-samples MachineAPI"),
    ("v4.12", "Console Insights Storage CSISnapshot"),
    ("v4.13", "NodeTuning"),
    ("v4.14", "Build DeploymentConfig ImageRegistry"),
    ("v4.15", "OperatorLifecycleManager CloudCredential"),
    ("v4.16", "Ingress CloudControllerManager"),
    ("v4.17", ""),
    ("v4.18", "OperatorLifecycleManagerV1"),
    ("vCurrent", ""),
)
_known: frozenset[str] = frozenset()
for _version, _names in _ADDED:
    _known = _known | frozenset(_names.split())
    CAPABILITY_SETS[_version] = _known
CAPABILITIES: Final = tuple(sorted(_known, key=str.lower))

_REQUIRES: Final = (
    ("marketplace", "OperatorLifecycleManager", "the catalogues it offers are installed by it"),
    ("baremetal", "MachineAPI", "the hosts it manages become nodes through machines"),
)
_GATE = re.compile(r"[A-Za-z][A-Za-z0-9]*=(true|false)")


def check(config: model.InstallConfig, chosen: stanza.Stanza, broken: Sequence[str] = ()) -> Iterator[findings.Finding]:
    """All findings about a well-formed config, but for rules that read one of the ``broken`` fields."""
    families = (RULES, network_rules.RULES, key_rules.RULES, access_rules.RULES)
    for family in families:
        for each in rule.applicable(family, broken):
            yield from each(config, chosen)
    for own in chosen.rules:
        if rule.applies(own, broken):
            yield from own(config)


@rule.reads("metadata.name")
def cluster_name(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    yield from names.cluster_name("metadata.name", config.name)


@rule.reads("metadata.name", "platform")
def cluster_name_without_dots(config: model.InstallConfig, chosen: stanza.Stanza) -> Iterator[findings.Finding]:
    if not chosen.dotted_names:
        yield from names.undotted("metadata.name", config.name)


@rule.reads("baseDomain")
def base_domain(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    yield from names.base_domain("baseDomain", config.base_domain)


@rule.reads("metadata.name", "baseDomain")
def cluster_domain(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    domain = config.base_domain.removesuffix(".")
    if names.is_dns_name(config.name) and names.is_dns_name(domain):
        yield from names.cluster_domain("metadata.name", config.name, domain)


@rule.reads("controlPlane.name")
def control_plane_name(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    if config.control_plane.name != defaults.CONTROL_PLANE_NAME:
        yield findings.Finding(
            "controlPlane.name",
            f"{config.control_plane.name!r} cannot be used: the control plane's pool is always called "
            f"{defaults.CONTROL_PLANE_NAME}",
            remedy=f"write name: {defaults.CONTROL_PLANE_NAME}",
        )


@rule.reads("compute.name")
def compute_names(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    seen: dict[str, int] = {}
    for index, pool in enumerate(config.compute):
        field = f"compute[{index}].name"
        if pool.name in seen:
            yield findings.Finding(
                field, f"{pool.name!r} is the name of compute[{seen[pool.name]}] too", remedy="make it one pool"
            )
        elif pool.name == "edge":
            yield findings.Finding(field, "edge pools exist on aws only", remedy=f"use {defaults.COMPUTE_NAME}")
        elif pool.name != defaults.COMPUTE_NAME:
            yield findings.Finding(
                field,
                f"{pool.name!r} cannot be used: the nodes' role comes from the pool's name",
                remedy=f"write name: {defaults.COMPUTE_NAME}",
            )
        seen.setdefault(pool.name, index)


@rule.reads("controlPlane.replicas", "compute.replicas")
def control_plane_replicas(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    field, count = "controlPlane.replicas", config.control_plane_replicas
    if count == 2:
        yield findings.Finding(
            field,
            "two members of etcd have no majority when either fails: the cluster would be less available than with one",
            remedy="use 1 or 3",
        )
    elif count not in CONTROL_PLANE_REPLICAS:
        allowed = text.one_of(str(number) for number in CONTROL_PLANE_REPLICAS)
        yield findings.Finding(field, f"a control plane has {allowed} machines, not {count}", remedy="use 3")
    elif count == 4:
        yield findings.Finding(
            field,
            "four members of etcd survive one failure, as three do: the fourth adds no safety",
            "warning",
            "use 3 or 5",
        )
    elif count == 1 and config.worker_replicas > 0:
        yield findings.Finding(
            field,
            f"one control-plane machine and {config.worker_replicas} workers: if that machine fails, all is lost",
            "warning",
            "for a single-node cluster set compute[0].replicas: 0; otherwise use 3",
        )


@rule.reads("compute.replicas")
def compute_replicas(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    for index, pool in enumerate(config.compute):
        if pool.replicas < 0:
            yield findings.Finding(f"compute[{index}].replicas", f"is {pool.replicas}", remedy="use 0 or more")


@rule.reads("controlPlane.architecture", "compute.architecture", "platform")
def architectures(config: model.InstallConfig, chosen: stanza.Stanza) -> Iterator[findings.Finding]:
    control_plane = config.control_plane.architecture
    if control_plane not in chosen.architectures:
        yield findings.Finding(
            "controlPlane.architecture",
            f"{control_plane} machines are not to be had on platform {chosen.name}",
            remedy=f"use {text.one_of(chosen.architectures)}",
        )
    for index, pool in enumerate(config.compute):
        if pool.architecture != control_plane:
            yield findings.Finding(
                f"compute[{index}].architecture",
                f"is {pool.architecture}, but the control plane is {control_plane}: a cluster is installed with one "
                "architecture",
                remedy=f"write architecture: {control_plane}",
            )


@rule.reads("fips", "controlPlane.architecture")
def fips_architecture(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    if config.fips and config.control_plane.architecture == "arm64":
        yield findings.Finding(
            "fips", "FIPS mode is validated on amd64 and ppc64le, not on arm64", "warning", "remove it, or use amd64"
        )


@rule.reads("publish", "platform")
def publish(config: model.InstallConfig, chosen: stanza.Stanza) -> Iterator[findings.Finding]:
    if config.publish not in chosen.publish:
        yield findings.Finding(
            "publish",
            f"{config.publish} cannot be had on platform {chosen.name}, where the network decides who reaches what",
            remedy=f"use {text.one_of(chosen.publish)}",
        )


@rule.reads("credentialsMode", "platform")
def credentials_mode(config: model.InstallConfig, chosen: stanza.Stanza) -> Iterator[findings.Finding]:
    mode = config.credentials_mode
    if mode is None or mode in chosen.credentials_modes:
        return
    if not chosen.credentials_modes:
        yield findings.Finding(
            "credentialsMode", f"cannot be set on platform {chosen.name}: there is no choice", remedy="remove it"
        )
    else:
        allowed = text.one_of(chosen.credentials_modes)
        yield findings.Finding(
            "credentialsMode", f"{mode} cannot be had on platform {chosen.name}", remedy=f"use {allowed}"
        )


@rule.reads("capabilities.additionalEnabledCapabilities")
def capability_names(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    if config.capabilities is None:
        return
    for index, name in enumerate(config.capabilities.additional_enabled_capabilities):
        if name not in CAPABILITIES:
            yield findings.Finding(
                f"capabilities.additionalEnabledCapabilities[{index}]",
                f"there is no capability {name!r}",
                remedy=text.suggestion(name, CAPABILITIES) or f"known: {', '.join(CAPABILITIES)}",
            )


def enabled_capabilities(config: model.InstallConfig) -> frozenset[str]:
    """The optional components the cluster will have."""
    if config.capabilities is None:
        return CAPABILITY_SETS["vCurrent"]
    baseline = CAPABILITY_SETS[config.capabilities.baseline_capability_set]
    return baseline | frozenset(config.capabilities.additional_enabled_capabilities)


@rule.reads("capabilities", "platform")
def capability_needs(config: model.InstallConfig, chosen: stanza.Stanza) -> Iterator[findings.Finding]:
    enabled = enabled_capabilities(config)
    needs = [("Ingress", "the console and the login are reached through it")]
    needs += [(needed, f"{name} needs it: {why}") for name, needed, why in _REQUIRES if name in enabled]
    needs += [(name, f"platform {chosen.name} needs it") for name in chosen.required_capabilities]
    for name, why in needs:
        if name not in enabled:
            yield findings.Finding(
                "capabilities.additionalEnabledCapabilities",
                f"{name} must be enabled: {why}",
                remedy=f"add {name} to additionalEnabledCapabilities",
            )


@rule.reads("cpuPartitioningMode", "capabilities")
def cpu_partitioning(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    if config.cpu_partitioning_mode == "AllNodes" and "NodeTuning" not in enabled_capabilities(config):
        yield findings.Finding(
            "cpuPartitioningMode",
            "the CPUs are divided by performance profiles, which the disabled capability NodeTuning brings",
            "warning",
            "add NodeTuning to capabilities.additionalEnabledCapabilities",
        )


@rule.reads("featureSet", "featureGates")
def features(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    if config.feature_set:
        yield findings.Finding(
            "featureSet",
            f"a cluster with {config.feature_set} can never be upgraded, nor can this be undone",
            "warning",
            "keep it for clusters you can throw away",
        )
    if config.feature_gates and config.feature_set != "CustomNoUpgrade":
        yield findings.Finding(
            "featureGates", "only count with featureSet CustomNoUpgrade", remedy="set featureSet: CustomNoUpgrade"
        )
    for index, gate in enumerate(config.feature_gates):
        if not _GATE.fullmatch(gate):
            yield findings.Finding(
                f"featureGates[{index}]", f"{gate[:60]!r} is not of the form <Name>=true or <Name>=false"
            )


RULES: Final[tuple[rule.Rule, ...]] = (
    cluster_name,
    cluster_name_without_dots,
    base_domain,
    cluster_domain,
    control_plane_name,
    compute_names,
    control_plane_replicas,
    compute_replicas,
    architectures,
    fips_architecture,
    publish,
    credentials_mode,
    capability_names,
    capability_needs,
    cpu_partitioning,
    features,
)
