"""What the survey learns from the engine itself: whose certificate it has, who may sign in, what there is to choose.

The certificate is fetched without being trusted, since it is the very thing that trust is asked for; nothing secret
goes over that connection. All else goes through the platform's client. The SDK is loaded by the first sign-in, not
before.
"""

from __future__ import annotations

import dataclasses
import datetime
import http.client
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from moorage.engine import errors
from moorage.platforms import contract
from moorage.platforms.ovirt import credentials

if TYPE_CHECKING:
    from types import TracebackType

    from moorage.platforms.ovirt import client

PATIENCE: Final = 20.0
_LONGEST: Final = 1 << 20
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?\.?)(:[0-9]{1,5})?")
_NOT_AN_ENGINE = "check the name; it is the host that the engine's own web pages are at"
#: Templates that an installation made for itself go with its cluster.
_OWN: Final = "moorage: "

T = TypeVar("T", bound="Thing")


def host_of(typed: str) -> str:
    """The engine's host[:port] in what a person typed, a URL of it perhaps; `ValueError` says what is wrong."""
    given = typed.strip()
    if "://" in given:
        parts = urllib.parse.urlsplit(given)
        if parts.scheme != "https":
            raise ValueError("the engine is reached by https only")
        if "@" in parts.netloc:
            raise ValueError("user and password are asked for later")
        if not (parts.path.rstrip("/") in ("", "/ovirt-engine", "/ovirt-engine/api") or "/webadmin" in parts.path):
            raise ValueError(f"{parts.path} is not where an engine's API is; give its host alone")
        given = parts.netloc
    given = given.rstrip("/").lower()
    port = given.rpartition(":")[2] if not given.endswith("]") and ":" in given else "443"
    if not _HOST.fullmatch(given) or not 0 < int(port) < 65536:
        raise ValueError("give a host name such as engine.example.com, with :PORT if it is not 443")
    return given.removesuffix(":443")


@dataclasses.dataclass(frozen=True)
class Authority:
    """Certificates that vouch for an engine; the first is shown for trust."""

    pem: str = dataclasses.field(repr=False)

    @property
    def _first(self) -> x509.Certificate:
        return x509.load_pem_x509_certificates(self.pem.encode())[0]

    @property
    def fingerprint(self) -> str:
        """SHA-256, as browsers and openssl show it."""
        return self._first.fingerprint(hashes.SHA256()).hex(":").upper()

    @property
    def subject(self) -> str:
        return self._first.subject.rfc4514_string()

    @property
    def ends(self) -> datetime.datetime:
        return self._first.not_valid_after_utc

    def about(self) -> str:
        """What a person needs to decide."""
        begins = self._first.not_valid_before_utc
        return (
            f"subject {self.subject}, valid from {begins:%Y-%m-%d} to {self.ends:%Y-%m-%d}, "
            f"SHA-256 fingerprint {self.fingerprint}"
        )

    def bears(self, fingerprint: str) -> bool:
        """Whether somebody who wrote down a fingerprint means this."""
        return _bare(fingerprint) == _bare(self.fingerprint)


def _bare(fingerprint: str) -> str:
    return re.sub(r"^sha-?256[:=\s]+|[:\s]", "", fingerprint.strip(), flags=re.IGNORECASE).upper()


def looks_like_fingerprint(text: str) -> bool:
    return re.fullmatch(r"[0-9A-F]{64}", _bare(text)) is not None


def authority_in(text: str) -> Authority:
    """The certificates in a PEM text; `ValueError` if there are none."""
    try:
        found = x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        found = []
    if not found:
        raise ValueError("holds no certificate in PEM form")
    return Authority(text)


def authority_at(path: Path) -> Authority:
    """The certificates in a file; `ValueError` says what is wrong with it."""
    try:
        return authority_in(path.expanduser().read_text())
    except UnicodeDecodeError:
        raise ValueError(f"{path} holds no certificate in PEM form") from None
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise ValueError(f"{path} {problem}") from None


def known_to_system(host: str, timeout: float) -> bool:
    """Whether the engine's certificate is one that this computer trusts anyway; raises if nobody answers there."""
    try:
        _get(host, ssl.create_default_context(), timeout)
    except ssl.SSLCertVerificationError:
        return False
    return True


def fetch_authority(host: str, timeout: float) -> Authority:
    """The engine's own CA certificate, as it hands it to anybody."""
    blind = ssl.create_default_context()
    blind.check_hostname = False
    blind.verify_mode = ssl.CERT_NONE
    answer = _get(host, blind, timeout)
    try:
        return authority_in(answer.decode())
    except ValueError:
        raise errors.Terminal(
            f"{host} answers, but not as an oVirt engine: it has no CA certificate to give", remedy=_NOT_AN_ENGINE
        ) from None


def _get(host: str, context: ssl.SSLContext, timeout: float) -> bytes:
    url = f"https://{host}{credentials.CA_PATH}"
    try:
        with urllib.request.urlopen(url, timeout=timeout, context=context) as reply:
            return bytes(reply.read(_LONGEST))
    except urllib.error.HTTPError as refusal:
        refusal.close()
        if refusal.code >= 500:
            raise errors.Transient(
                f"the engine at {host} is not ready: HTTP {refusal.code}", remedy="wait until it has started"
            ) from None
        raise errors.Terminal(
            f"{host} answers, but not as an oVirt engine: HTTP {refusal.code}", remedy=_NOT_AN_ENGINE
        ) from None
    except urllib.error.URLError as problem:
        if isinstance(problem.reason, ssl.SSLCertVerificationError):
            raise problem.reason from None
        raise _unreachable(host, problem.reason) from None
    except (OSError, http.client.HTTPException) as problem:
        raise _unreachable(host, problem) from None


def _unreachable(host: str, reason: object) -> errors.Transient:
    words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return errors.Transient(
        f"no engine can be reached at {host}: {words}", remedy="check the name and port, and that the engine runs"
    )


@dataclasses.dataclass(frozen=True)
class Thing:
    """Something of the engine's to choose. ``note`` helps choosing."""

    id: str
    name: str
    note: str = ""

    @property
    def title(self) -> str:
        return f"{self.name} ({self.note})" if self.note else self.name


@dataclasses.dataclass(frozen=True)
class Place(Thing):
    """A cluster, and the data center that its storage belongs to."""

    data_center: str = ""


class Engine:
    """An engine that somebody signs in to, and what it has."""

    def __init__(self, who: credentials.Credentials, around: contract.Surroundings) -> None:
        from moorage.platforms.ovirt import client

        self._client: client.Client = client.Client(around, who)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def version(self) -> str:
        """Signs in, and tells what answers."""
        api = self._client.call("sign in", lambda api: api.get())
        product = api.product_info
        return str(product.version.full_version) if product and product.version else "of an unknown version"

    def clusters(self) -> list[Place]:
        """Clusters that can run such machines, by name."""
        found = self._list("list the clusters", lambda api: api.clusters_service().list(follow="data_center"))
        return _by_name(
            Place(
                cluster.id,
                cluster.name,
                f"data center {cluster.data_center.name}" if cluster.data_center and cluster.data_center.name else "",
                cluster.data_center.id if cluster.data_center else "",
            )
            for cluster in found
            if _runs_amd64(cluster) and cluster.virt_service is not False
        )

    def storage_domains(self, place: Place) -> list[Thing]:
        """Data domains that the cluster's machines can use now, the one with most space first."""
        found = self._list(
            f"list the storage domains of {place.name}",
            lambda api: (
                api.data_centers_service().data_center_service(place.data_center).storage_domains_service().list()
            ),
        )
        usable = [domain for domain in found if _word(domain.type) == "data" and _word(domain.status) == "active"]
        usable.sort(key=lambda domain: (-(domain.available or 0), domain.name))
        return [Thing(domain.id, domain.name, _space(domain)) for domain in usable]

    def networks(self, place: Place) -> list[Thing]:
        """Networks of the cluster that machines can be on, the management network first."""
        found = self._list(
            f"list the networks of {place.name}",
            lambda api: api.clusters_service().cluster_service(place.id).networks_service().list(),
        )
        usable = [network for network in found if not network.usages or "vm" in map(_word, network.usages)]
        usable.sort(key=lambda network: ("management" not in map(_word, network.usages or ()), network.name))
        return [Thing(network.id, network.name, network.description or "") for network in usable]

    def profiles(self, network: Thing) -> list[Thing]:
        """The vNIC profiles of a network."""
        found = self._list(
            f"list the vNIC profiles of {network.name}",
            lambda api: api.networks_service().network_service(network.id).vnic_profiles_service().list(),
        )
        return _by_name(Thing(profile.id, profile.name, profile.description or "") for profile in found)

    def templates(self, place: Place) -> list[Thing]:
        """Templates of the cluster that a person may have brought, by name; the engine's empty one is none."""
        found = self._list("list the templates", lambda api: api.templates_service().list())
        return _by_name(
            Thing(template.id, template.name, _version(template))
            for template in found
            if template.cluster is not None
            and template.cluster.id == place.id
            and template.name != "Blank"
            and _word(template.status) in ("ok", "")
            and not (template.description or "").startswith(_OWN)
        )

    def _list(self, what: str, use: Callable[[Any], Iterable[Any]]) -> list[Any]:
        return self._client.call(what, lambda api: list(use(api)))


def _by_name(things: Iterable[T]) -> list[T]:
    return sorted(things, key=lambda thing: (thing.name.lower(), thing.note))


def _word(value: object) -> str:
    """The engine's own word of an enumeration; empty if it did not say."""
    return str(getattr(value, "value", value) or "").lower()


def _runs_amd64(cluster: Any) -> bool:
    return _word(cluster.cpu.architecture if cluster.cpu else None) in ("", "undefined", "x86_64")


def _space(domain: Any) -> str:
    free = domain.available
    kind = _word(domain.storage.type) if domain.storage else ""
    if free is None:
        return kind
    total = free + (domain.used or 0)
    return ", ".join(filter(None, (kind, f"{_amount(free)} free of {_amount(total)}")))


def _amount(size: int) -> str:
    gib = size / 1024**3
    return f"{gib / 1024:.1f} TiB" if gib >= 1024 else f"{gib:.0f} GiB"


def _version(template: Any) -> str:
    version = template.version
    number = version.version_number if version is not None else None
    return f"version {number}" if number is not None and number > 1 else ""
