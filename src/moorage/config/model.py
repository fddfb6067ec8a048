"""The install-config as typed, frozen data: the v1 schema of openshift-install as far as Moorage serves it.

The model holds shapes, defaults and words: each field says what it is for and which rule it obeys, and `explain`
reads nothing else. What needs more than one field, or a parser, is in `rules`; platforms bring their own sections
through `stanza.Stanza`, and `load.parse` puts the two together.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic

from moorage.config import defaults

Architecture = Literal["amd64", "arm64", "ppc64le"]
CapabilitySet = Literal["None", "v4.11", "v4.12", "v4.13", "v4.14", "v4.15", "v4.16", "v4.17", "v4.18", "vCurrent"]
IPFamily = Literal["IPv4", "IPv6"]


def camel_case(name: str) -> str:
    """The YAML spelling of an attribute; names with capitals inside (``apiVIPs``) take an explicit alias."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def about(description: str, *, rule: str = "", alias: str | None = None) -> Any:
    """What `explain` says of a field: goes into ``Annotated`` next to its type."""
    extra: dict[str, Any] = {"rule": rule} if rule else {}
    if alias is None:
        return pydantic.Field(description=description, json_schema_extra=extra)
    return pydantic.Field(description=description, json_schema_extra=extra, alias=alias)


class Section(pydantic.BaseModel):
    """A mapping in the install-config: camelCase in YAML, snake_case here, unknown keys refused.

    Numbers and booleans should be `pydantic.StrictInt` and `pydantic.StrictBool`, so that ``replicas: true`` is not 1;
    secrets `pydantic.SecretStr`, so that they are kept out of logs and of what the cluster is told.
    """

    model_config = pydantic.ConfigDict(
        alias_generator=camel_case,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        defer_build=True,
        hide_input_in_errors=True,
    )

    def plain(self, *, secrets: bool = True) -> dict[str, Any]:
        """Data ready for YAML. What is unset is left out; without ``secrets`` they become empty strings."""
        data = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is None or (value in ("", ()) and value == field.default):
                continue
            data[field.alias or name] = _plain(value, secrets)
        return data


def _plain(value: Any, secrets: bool) -> Any:
    if isinstance(value, pydantic.SecretStr):
        return value.get_secret_value() if secrets else ""
    if isinstance(value, Section):
        return value.plain(secrets=secrets)
    if isinstance(value, tuple | list):
        return [_plain(item, secrets) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item, secrets) for key, item in value.items()}
    return value


class Metadata(Section):
    """What the cluster is called."""

    name: Annotated[
        str,
        about(
            "The cluster's name: in all its host names (api.<name>.<baseDomain>) and its resources' names.",
            rule="lower-case letters, digits, '-' and '.', at most 54 characters, starting and ending alphanumeric",
        ),
    ]


class MachinePool(Section):
    """Machines of one kind."""

    name: Annotated[str, about("The pool's name.", rule="'master' for the control plane, 'worker' for compute")] = (
        defaults.COMPUTE_NAME
    )
    replicas: Annotated[
        pydantic.StrictInt,
        about(
            "How many machines the pool has.",
            rule="control plane: 1, 3, 4 or 5; compute: 0 or more",
        ),
    ] = defaults.REPLICAS
    architecture: Annotated[
        Architecture, about("The machines' instruction set.", rule="the same for all pools of a cluster")
    ] = defaults.ARCHITECTURE
    hyperthreading: Annotated[
        Literal["Enabled", "Disabled"],
        about("Whether simultaneous multithreading stays on; turning it off halves the threads the nodes offer."),
    ] = "Enabled"
    platform: Annotated[
        pydantic.SerializeAsAny[Section] | None,
        about("Settings of these machines on the platform.", rule="one key, the platform of the cluster"),
    ] = None


class ControlPlanePool(MachinePool):
    """The machines that run etcd and the Kubernetes API."""

    name: Annotated[str, about("The pool's name.", rule="always 'master'")] = defaults.CONTROL_PLANE_NAME


class ClusterNetwork(Section):
    """A range from which pods take their addresses."""

    cidr: Annotated[
        str,
        about(
            "The range, in CIDR notation, such as 10.128.0.0/14.",
            rule="no overlap with any other network of the cluster",
        ),
    ]
    host_prefix: Annotated[
        pydantic.StrictInt,
        about(
            "The size of the piece each node is given: 23 leaves about 500 addresses for its pods.",
            rule="at least the CIDR's own prefix, equal for all IPv4 ranges, 64 for IPv6; one piece per node",
        ),
    ] = defaults.HOST_PREFIX_V4

    @pydantic.model_validator(mode="before")
    @classmethod
    def _host_prefix_by_family(cls, data: Any) -> Any:
        return defaults.with_host_prefix(data)


class MachineNetwork(Section):
    """A range in which the machines have their addresses."""

    cidr: Annotated[
        str,
        about("The range, in CIDR notation, such as 10.0.0.0/16.", rule="large enough for all machines, no overlap"),
    ]


def _default_cluster_network() -> tuple[ClusterNetwork, ...]:
    return (ClusterNetwork(cidr=defaults.CLUSTER_NETWORK, host_prefix=defaults.HOST_PREFIX_V4),)


def _default_machine_network() -> tuple[MachineNetwork, ...]:
    return (MachineNetwork(cidr=defaults.MACHINE_NETWORK),)


class OvnAddresses(Section):
    """Addresses that OVN-Kubernetes uses inside, of one family."""

    internal_join_subnet: Annotated[
        str | None,
        about(
            "The range that joins the nodes' routers, where 100.64.0.0/16 is taken by something else.",
            rule="an IPv4 range with an address for every node the cluster network has room for, no overlap",
        ),
    ] = None


class OvnKubernetes(Section):
    """Settings of the network plug-in OVNKubernetes."""

    ipv4: Annotated[OvnAddresses | None, about("Its IPv4 addresses.")] = None


class Networking(Section):
    """The three kinds of addresses in a cluster, and who moves packets between them."""

    network_type: Annotated[
        str, about("The network plug-in.", rule="OVNKubernetes, or the name of a plug-in you bring as manifests")
    ] = defaults.NETWORK_TYPE
    cluster_network: Annotated[
        tuple[ClusterNetwork, ...],
        about("Pods' addresses.", rule="one range, or one per address family for dual stack"),
    ] = pydantic.Field(default_factory=_default_cluster_network)
    machine_network: Annotated[
        tuple[MachineNetwork, ...], about("Machines' addresses.", rule="virtual IPs must lie in here as well")
    ] = pydantic.Field(default_factory=_default_machine_network)
    service_network: Annotated[
        tuple[str, ...],
        about(
            "Services' addresses, in CIDR notation.",
            rule="one range, or one IPv4 and one IPv6; /12 or smaller (IPv6: /108 or smaller, best /112)",
        ),
    ] = (defaults.SERVICE_NETWORK,)
    ovn_kubernetes_config: Annotated[
        OvnKubernetes | None,
        about("Settings of the plug-in.", rule="only with networkType OVNKubernetes", alias="ovnKubernetesConfig"),
    ] = None

    @property
    def join_subnet(self) -> str | None:
        """The join range the user chose; None for the plug-in's own."""
        ovn = self.ovn_kubernetes_config
        return ovn.ipv4.internal_join_subnet if ovn and ovn.ipv4 else None


class Proxy(Section):
    """The way out of a network without direct access to the Internet."""

    http_proxy: Annotated[
        str, about("Proxy for http:// URLs.", rule="an http:// URL; user and password percent-encoded")
    ] = ""
    https_proxy: Annotated[
        str, about("Proxy for https:// URLs.", rule="an http:// or https:// URL; user and password percent-encoded")
    ] = ""
    no_proxy: Annotated[
        str,
        about(
            "What is reached without the proxy; the cluster's own networks and names are added by themselves.",
            rule="'*', or domains, IP addresses and CIDRs separated by commas without spaces",
        ),
    ] = ""


class ImageSource(Section):
    """Where images of one repository can be had as well."""

    source: Annotated[str, about("The repository that image references name.", rule="no tag, no digest")]
    mirrors: Annotated[tuple[str, ...], about("Repositories that hold the same images, tried in order.")] = ()
    source_policy: Annotated[
        Literal["AllowContactingSource", "NeverContactSource"] | None,
        about("Whether the source itself is tried when no mirror has the image."),
    ] = None


class Capabilities(Section):
    """Which optional components the cluster is born with."""

    baseline_capability_set: Annotated[CapabilitySet, about("The set to start from; vCurrent has them all.")] = (
        "vCurrent"
    )
    additional_enabled_capabilities: Annotated[
        tuple[str, ...], about("Components on top of the set.", rule="names known to OpenShift 4.20")
    ] = ()


class ChosenPlatform(Section):
    """The one platform the cluster goes to, and its settings."""

    name: Annotated[str, about("The platform's key in the install-config.")]
    settings: Annotated[pydantic.SerializeAsAny[Section], about("The platform's own section.")]

    def plain(self, *, secrets: bool = True) -> dict[str, Any]:
        return {self.name: self.settings.plain(secrets=secrets)}


class InstallConfig(Section):
    """A cluster to be: what install-config.yaml says, with every default filled in."""

    api_version: Annotated[Literal["v1"], about("The version of this file's schema.")] = "v1"
    metadata: Annotated[Metadata, about("What the cluster is called.")]
    base_domain: Annotated[
        str,
        about(
            "The DNS domain the cluster lives in; its own domain is <metadata.name>.<baseDomain>.",
            rule="a lower-case DNS name; together with the cluster's name at most 253 characters",
        ),
    ]
    platform: Annotated[ChosenPlatform, about("Where the cluster goes.", rule="exactly one platform")]
    pull_secret: Annotated[
        pydantic.SecretStr,
        about(
            "Credentials for the image registries, as JSON.",
            rule='{"auths": {"<registry>": {"auth": "<base64 of user:password>"}}}',
        ),
    ]
    ssh_key: Annotated[
        str,
        about(
            "Public keys, one per line, that may log in to the nodes as user core.",
            rule="OpenSSH public keys: rsa, ecdsa or ed25519 (with fips: rsa or ecdsa)",
        ),
    ] = ""
    control_plane: Annotated[ControlPlanePool, about("The machines that run etcd and the Kubernetes API.")] = (
        pydantic.Field(default_factory=ControlPlanePool)
    )
    compute: Annotated[
        tuple[MachinePool, ...], about("The machines that run workloads.", rule="one pool, 'worker'")
    ] = pydantic.Field(default_factory=lambda: (MachinePool(),))
    networking: Annotated[Networking, about("Addresses of pods, machines and services.")] = pydantic.Field(
        default_factory=Networking
    )
    publish: Annotated[
        Literal["External", "Internal"],
        about("Whether the API and routes can be reached from outside the machines' own network."),
    ] = "External"
    proxy: Annotated[
        Proxy | None, about("The proxy that the cluster goes through.", rule="httpProxy or httpsProxy at least")
    ] = None
    additional_trust_bundle: Annotated[
        str, about("CA certificates, PEM, for the nodes to trust.", rule="certificates only, no private keys")
    ] = ""
    additional_trust_bundle_policy: Annotated[
        Literal["Proxyonly", "Always"],
        about("When the nodes trust additionalTrustBundle: only if there is a proxy, or always."),
    ] = "Proxyonly"
    image_digest_sources: Annotated[
        tuple[ImageSource, ...], about("Mirrors of the repositories that images are pulled from.")
    ] = ()
    image_content_sources: Annotated[
        tuple[ImageSource, ...],
        about("The old name of imageDigestSources.", rule="deprecated; never together with imageDigestSources"),
    ] = ()
    capabilities: Annotated[Capabilities | None, about("Optional components.")] = None
    cpu_partitioning_mode: Annotated[
        Literal["None", "AllNodes"],
        about(
            "Whether nodes can keep CPUs apart for the cluster's own work.",
            rule="cannot be changed after the installation",
        ),
    ] = "None"
    fips: Annotated[
        pydantic.StrictBool,
        about("Whether nodes run in FIPS mode.", rule="cannot be turned on or off after the installation"),
    ] = False
    credentials_mode: Annotated[
        Literal["Mint", "Passthrough", "Manual"] | None,
        about("How components get their cloud credentials.", rule="only where the platform offers a choice"),
    ] = None
    feature_set: Annotated[
        Literal["", "TechPreviewNoUpgrade", "DevPreviewNoUpgrade", "CustomNoUpgrade"],
        about("Features beyond the stable ones; a cluster with any of them can never be upgraded."),
    ] = ""
    feature_gates: Annotated[
        tuple[str, ...],
        about("Single features to turn on or off.", rule="<Name>=true or <Name>=false; only with CustomNoUpgrade"),
    ] = ()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def cluster_domain(self) -> str:
        """The domain of all the cluster's names; a trailing dot of the base domain does not reach it."""
        return f"{self.name}.{self.base_domain.removesuffix('.')}"

    @property
    def control_plane_replicas(self) -> int:
        return self.control_plane.replicas

    @property
    def worker_replicas(self) -> int:
        return sum(pool.replicas for pool in self.compute)

    @property
    def is_compact(self) -> bool:
        """No workers: the control plane runs the workloads too."""
        return self.worker_replicas == 0

    @property
    def is_single_node(self) -> bool:
        return self.is_compact and self.control_plane_replicas == 1

    @property
    def ip_families(self) -> tuple[IPFamily, ...]:
        """The cluster's address families, the primary one first."""
        found = ["IPv6" if ":" in cidr else "IPv4" for cidr in self.networking.service_network]
        return tuple(dict.fromkeys(found))  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """The whole config as it is written to a file: defaults filled in, secrets in clear."""
        return self._nested(secrets=True)

    def redacted(self) -> dict[str, Any]:
        """The config without its secrets: what the cluster is told about its own making."""
        data = self._nested(secrets=False)
        for key in ("httpProxy", "httpsProxy"):
            if key in data.get("proxy", {}):
                data["proxy"][key] = _without_userinfo(data["proxy"][key])
        return data

    def _nested(self, *, secrets: bool) -> dict[str, Any]:
        # A pool knows its settings but not the platform's key, which is the cluster's.
        data = self.plain(secrets=secrets)
        for pool in (data["controlPlane"], *data["compute"]):
            if "platform" in pool:
                pool["platform"] = {self.platform.name: pool["platform"]}
        return data


def _without_userinfo(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    userinfo, at, host = authority.rpartition("@")
    return f"{scheme}{separator}redacted@{host}{slash}{path}" if at and userinfo else url
