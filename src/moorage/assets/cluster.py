"""Who the cluster is: its marks, its password, the moments its certificates count from, the names it answers to.

All randomness and all time of the graph is here and in `keys`; every other asset is a pure function of these and of
the install-config, so any of them can be computed again and comes out the same.
"""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import json
import secrets
import string
import uuid

from moorage.assets import keys, values
from moorage.assets import platform as platforms
from moorage.assets.graph import asset
from moorage.config import model

_PASSWORD_ALPHABET = "".join(sorted(set(string.ascii_letters + string.digits) - set("0O1Il")))
_INFRA_NAME_LENGTH = 21

DAY = 24
YEAR = 24 * 365
DECADE = 24 * 365 * 10


@dataclasses.dataclass(frozen=True)
class Marks:
    """The random part of the cluster's identity: outlives a change of its name."""

    suffix: str
    uuid: str


@dataclasses.dataclass(frozen=True)
class Password:
    """The first administrator's password, as drawn."""

    text: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Hashed:
    """A password and its bcrypt hash, which the cluster gets instead of it."""

    text: str = dataclasses.field(repr=False)
    hash: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Issued:
    """When certificates of one lifetime were issued."""

    at: str
    hours: int

    @property
    def start(self) -> datetime.datetime:
        return datetime.datetime.fromisoformat(self.at)

    @property
    def end(self) -> datetime.datetime:
        return self.start + datetime.timedelta(hours=self.hours)


def worn(issued: Issued, moment: datetime.datetime) -> str | None:
    """Why certificates issued then must not start a cluster now; None while they may.

    A bootstrap takes up to an hour and the operators rotate on their own schedule afterwards, so half of a 24 h
    lifetime (at most 30 days of a longer one) has to be left.
    """
    margin = min(datetime.timedelta(hours=issued.hours) / 2, datetime.timedelta(days=30))
    if moment < issued.end - margin:
        return None
    lifetime = {DAY: "24 h", YEAR: "1 year", DECADE: "10 years"}[issued.hours]
    state = "have expired" if moment >= issued.end else f"expire at {issued.end:%Y-%m-%d %H:%M} UTC"
    return f"certificates that live {lifetime} {state}: made again (keys, CAs and infraID that live longer stay)"


@asset(kept=True)
def keyring(key_source: keys.KeySource) -> keys.Keyring:
    """All RSA keys of the cluster."""
    return keys.Keyring({}, key_source)


@asset(kept=True)
def marks() -> Marks:
    """The random part of the cluster's identity."""
    alphabet = string.ascii_lowercase + string.digits
    return Marks("".join(secrets.choice(alphabet) for _ in range(5)), str(uuid.uuid4()))


@asset(kept=True)
def kubeadmin() -> Password:
    """The first administrator's password."""
    groups = ["".join(secrets.choice(_PASSWORD_ALPHABET) for _ in range(5)) for _ in range(4)]
    return Password("-".join(groups))


@asset(files=("auth/kubeadmin-password",))
def kubeadmin_password(kubeadmin: Password) -> bytes:
    """The password file for the person who installs; another password may be put there."""
    return kubeadmin.text.encode()


def _changed_password(hashed: Hashed, kubeadmin_password: bytes) -> str | None:
    if hashed.text == kubeadmin_password.decode().strip():
        return None
    return "auth/kubeadmin-password: yours is used for kubeadmin"


@asset(kept=True, stale=_changed_password)
def kubeadmin_hashed(kubeadmin_password: bytes) -> Hashed:
    """The password with its bcrypt hash: kept, because hashing is salted and slow."""
    import bcrypt

    text = kubeadmin_password.decode().strip()
    return Hashed(text, bcrypt.hashpw(text.encode(), bcrypt.gensalt(10)).decode())


@asset()
def kubeadmin_hash(kubeadmin_hashed: Hashed) -> str:
    """The bcrypt hash of the kubeadmin password."""
    return kubeadmin_hashed.hash


@asset(kept=True, stale=worn)
def issued_day(moment: datetime.datetime) -> Issued:
    """From when the certificates that live 24 h count."""
    return Issued(moment.isoformat(), DAY)


@asset(kept=True, stale=worn)
def issued_year(moment: datetime.datetime) -> Issued:
    """From when the certificates that live a year count."""
    return Issued(moment.isoformat(), YEAR)


@asset(kept=True, stale=worn)
def issued_decade(moment: datetime.datetime) -> Issued:
    """From when the certificates that live ten years count."""
    return Issued(moment.isoformat(), DECADE)


@asset()
def cluster_id(install_config: model.InstallConfig, marks: Marks) -> values.ClusterID:
    """The infraID, which marks every resource of the cluster, and its UUID."""
    name = install_config.name[:_INFRA_NAME_LENGTH].replace(".", "-").rstrip("-")
    return values.ClusterID(f"{name}-{marks.suffix}", marks.uuid)


@asset()
def endpoints(install_config: model.InstallConfig, platform: platforms.Manifests) -> values.Endpoints:
    """Names and addresses of the cluster's API."""
    domain = install_config.cluster_domain
    vips = platform.api_vips(install_config)
    services = [ipaddress.ip_network(network) for network in install_config.networking.service_network]
    return values.Endpoints(
        cluster_domain=domain,
        api=f"api.{domain}",
        api_int=f"api-int.{domain}",
        internal_host=vips[0] if vips else f"api-int.{domain}",
        api_vips=vips,
        ingress_vips=platform.ingress_vips(install_config),
        service_addresses=tuple(str(network[1]) for network in services),
    )


@asset(files=("metadata.json",))
def metadata(context: platforms.Context, platform: platforms.Manifests) -> bytes:
    """All that destroy needs to find the cluster's resources again."""
    content = {
        "clusterName": context.config.name,
        "clusterID": context.cluster_id.uuid,
        "infraID": context.infra_id,
        platform.name: dict(platform.metadata(context)),
    }
    return json.dumps(content, indent=1).encode() + b"\n"


@asset(files=("terraform.*.auto.tfvars.json",))
def companions(context: platforms.Context, platform: platforms.Manifests) -> values.Files:
    """Files for other tools that know the platform: nothing here reads them."""
    return platform.companion_files(context)
