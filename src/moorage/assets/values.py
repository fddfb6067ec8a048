"""The values that assets are made of.

They are plain frozen data: comparable, so that "regenerated equals itself" is a test, and small enough to
digest, so that a change in one asset is seen exactly by those that read it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

Manifest = dict[str, object]
"""One Kubernetes object, as it will be dumped to YAML."""

Files = Mapping[str, bytes]
"""Contents by path, relative to the asset directory."""


@dataclasses.dataclass(frozen=True)
class CertKey:
    """A certificate (possibly followed by its issuer) and its private key, both PEM."""

    cert: str
    key: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Bundle:
    """CA certificates, PEM, one after the other."""

    cert: str


@dataclasses.dataclass(frozen=True)
class KeyPair:
    """A bare key pair: PEM private key; the public half in the format its reader wants."""

    public: str
    private: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class ClusterID:
    """``infra_id`` marks every resource the cluster owns; ``uuid`` is what the cluster calls itself."""

    infra_id: str
    uuid: str


@dataclasses.dataclass(frozen=True)
class Endpoints:
    """The names and addresses by which the cluster's API is reached.

    ``internal_host`` is what nodes dial for their config: the api-int name, or the API VIP on platforms that
    bring their own VIPs.
    """

    cluster_domain: str
    api: str
    api_int: str
    internal_host: str
    api_vips: tuple[str, ...]
    ingress_vips: tuple[str, ...]
    service_addresses: tuple[str, ...]

    @property
    def api_url(self) -> str:
        return f"https://{self.api}:6443"

    @property
    def api_int_url(self) -> str:
        return f"https://{self.api_int}:6443"


@dataclasses.dataclass(frozen=True)
class Release:
    """The payload to install. All data about releases is in `releases`.

    ``os_image`` is set only when the user overrides the boot image; otherwise `releases.os_image` knows it.
    """

    version: str
    stream: str
    pull_spec: str
    os_image: str
    architecture: str
    channel: str
    upstream: str = ""
    overridden: bool = False

    @property
    def is_okd(self) -> bool:
        return self.stream == "okd"


@dataclasses.dataclass(frozen=True)
class IgnitionFile:
    """A file on a node, as Ignition will write it."""

    path: str
    contents: bytes
    mode: int
    append: bool = False


@dataclasses.dataclass(frozen=True)
class IgnitionUnit:
    """A systemd unit on a node; ``contents`` None means drop-ins (name to contents) for a unit of the OS."""

    name: str
    contents: str | None = None
    enabled: bool | None = None
    dropins: tuple[tuple[str, str], ...] = ()
