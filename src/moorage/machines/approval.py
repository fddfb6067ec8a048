"""Who may join the cluster: a judgement on a node's request for a certificate, by rules alone and without a call.

A node asks twice. For its client certificate it has nothing to show but credentials that every new machine is given,
so it is let in only if a machine of that name was made, has no node yet, and was made a short while ago. For its
serving certificate it asks in its own name, and may have only names and addresses of its own machine in it. Nothing
else is ever approved. What is not approved stays pending: it may be somebody else's to judge.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime
import functools
import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from cryptography import exceptions, x509
from cryptography.x509 import oid

Object = Mapping[str, Any]

CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING: Final = "kubernetes.io/kubelet-serving"
BOOTSTRAPPER: Final = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
NODE: Final = "system:node:"
NODES: Final = "system:nodes"

#: Clocks may differ by so much, and a machine must ask within so long of being made.
EARLIEST: Final = datetime.timedelta(seconds=-10)
LATEST: Final = datetime.timedelta(hours=2)
#: Requests that have been pending for longer count no more: their nodes have asked anew.
RECENT: Final = datetime.timedelta(hours=1)
#: More requests than machines and nodes, by so many: somebody asks who should not, and it is time to stop.
SURPLUS: Final = 100

_BOOTSTRAPPER_GROUPS: Final = frozenset(
    {"system:serviceaccounts:openshift-machine-config-operator", "system:serviceaccounts", "system:authenticated"}
)
_NODE_GROUPS: Final = frozenset({NODES, "system:authenticated"})
#: The attribute of a request that holds the extensions it asks for (PKCS #9).
_ASKED_EXTENSIONS: Final = x509.ObjectIdentifier("1.2.840.113549.1.9.14")
_SIGNATURE, _ENCIPHERMENT = "digital signature", "key encipherment"
_UNREADABLE: Final = (
    binascii.Error,
    ValueError,
    TypeError,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
    exceptions.UnsupportedAlgorithm,
)
#: One block and nothing around it, as kubelets write it. The signer has a reader of its own: where the two could stop
#: at different blocks, one request would be judged and another one signed.
_ONE_BLOCK: Final = re.compile(
    rb"-----BEGIN CERTIFICATE REQUEST-----\n((?:[A-Za-z0-9+/=]+\n)+)-----END CERTIFICATE REQUEST-----\n*"
)
_PURPOSES: Final = {CLIENT: "client auth", SERVING: "server auth"}


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine that may become a node.

    ``names`` and ``addresses`` are what it is known to have; where nobody tells names it has its own alone. ``node``
    is the node it has become already. ``vouched`` is when somebody last stood for it: the two hours count from then,
    or else from ``created``.
    """

    name: str
    created: datetime.datetime
    names: tuple[str, ...] | None = None
    addresses: tuple[str, ...] = ()
    node: str = ""
    vouched: datetime.datetime | None = None

    @property
    def called(self) -> tuple[str, ...]:
        return (self.name,) if self.names is None else self.names

    @functools.cached_property
    def reached_at(self) -> frozenset[str]:
        """Its addresses, each in the one spelling in which they are compared."""
        return frozenset(map(_normal, self.addresses))


@dataclasses.dataclass(frozen=True)
class Approve:
    """It is what it says it is."""

    node: str
    purpose: str


@dataclasses.dataclass(frozen=True)
class Wait:
    """Not now; what is missing may come. See `Refuse` for ``renewable``."""

    reason: str
    renewable: bool = dataclasses.field(default=False, compare=False)


@dataclasses.dataclass(frozen=True)
class Refuse:
    """Not as it is asked.

    ``renewable``: it is about the machine and what belongs to it alone, so a certificate that the node has already
    could settle it.
    """

    reason: str
    renewable: bool = dataclasses.field(default=False, compare=False)


Verdict = Approve | Wait | Refuse


class _Objection(Exception):  # noqa: N818 - a rule's way to speak
    """What stands against a request."""

    renewable = False


class _Wrong(_Objection):
    """Why the request breaks a rule."""


class _NotYet(_Objection):
    """What the rule has to wait for."""


def judge(
    request: Object,
    machines: Sequence[Machine],
    nodes: Collection[str],
    pending: int,
    now: datetime.datetime,
    shown: x509.Certificate | None = None,
) -> Verdict:
    """Whether a CertificateSigningRequest is to be approved.

    ``nodes`` are the names of all nodes there are, ``pending`` is what `recently_pending` counts. ``shown`` is the
    certificate that the node's kubelet shows at the moment, if it was looked at and the cluster's CA has signed it.
    """
    try:
        if is_decided(request):
            raise _Wrong("it was decided already")
        asked = _parsed(request)
        signer = str(_spec(request).get("signerName") or "")
        if signer not in _PURPOSES:
            raise _Wrong(f"nodes do not ask {signer or 'nobody'} for certificates")
        node = _subject(asked)
        _check_usages(request, signer)
        if pending > max(len(machines), len(nodes)) + SURPLUS:
            raise _NotYet(f"{pending} requests are pending, far more than there are machines")
        if signer == CLIENT:
            _check_client(request, asked, node, machines, nodes)
        else:
            _check_serving(request, asked, node, machines, nodes, now, shown)
    except _NotYet as missing:
        return Wait(str(missing), missing.renewable)
    except _Wrong as wrong:
        return Refuse(str(wrong), wrong.renewable)
    return Approve(node, "client" if signer == CLIENT else "serving")


def recently_pending(requests: Iterable[Object], now: datetime.datetime) -> int:
    """How many requests of nodes wait for a decision and were made of late.

    Those of others do not count: whoever may ask for any certificate could else keep every node out.
    """
    return still_recent(filter(None, map(pending_since, requests)), now)


def pending_since(request: Object) -> datetime.datetime | None:
    """Since when a request of a node waits for a decision; None if it does not, or is not a node's."""
    return _created(request) if not is_decided(request) and _is_of_a_node(_spec(request)) else None


def still_recent(moments: Iterable[datetime.datetime], now: datetime.datetime) -> int:
    """How many of the moments at which requests were made are recent enough to count."""
    return sum(map((now - RECENT).__le__, moments))


def _is_of_a_node(spec: Object) -> bool:
    if spec.get("signerName") == CLIENT:
        return bool(spec.get("username") == BOOTSTRAPPER)
    return spec.get("signerName") == SERVING and NODES in (spec.get("groups") or ())


def claimed(request: Object) -> str:
    """The name of the node that the request says it is for, true or not; empty if it names none."""
    try:
        names = _parsed(request).subject.get_attributes_for_oid(oid.NameOID.COMMON_NAME)
    except _Wrong:
        return ""
    name = str(names[0].value) if len(names) == 1 else ""
    return name.removeprefix(NODE) if name.startswith(NODE) else ""


def is_decided(request: Object) -> bool:
    """Whether it was approved, denied or has failed."""
    return bool((request.get("status") or {}).get("conditions"))


def _check_client(
    request: Object,
    asked: x509.CertificateSigningRequest,
    node: str,
    machines: Sequence[Machine],
    nodes: Collection[str],
) -> None:
    spec = _spec(request)
    if spec.get("username") != BOOTSTRAPPER:
        raise _Wrong(f"{spec.get('username')} is not who new machines ask as")
    if frozenset(spec.get("groups") or ()) != _BOOTSTRAPPER_GROUPS:
        raise _Wrong("its groups are not those that new machines ask with")
    if list(asked.extensions):
        raise _Wrong("a client certificate has no names besides its subject")
    if node in nodes:
        raise _Wrong(f"there is a node {node} already")
    if any(each.name == node and not each.called for each in machines):
        raise _NotYet(f"its machine {node} has no instance yet, so nobody can ask for it")
    machine = _only([each for each in machines if node in each.called], node)
    if machine.node:
        raise _Wrong(f"its machine {machine.name} is the node {machine.node} already")
    at = _created(request)
    if at is None:
        raise _Wrong("it does not say when it was made")
    if not machine.created + EARLIEST <= at <= (machine.vouched or machine.created) + LATEST:
        raise _Wrong(f"it was made at {at:%Y-%m-%d %H:%M:%S} UTC, which is not when {machine.name} was new")


def _check_serving(
    request: Object,
    asked: x509.CertificateSigningRequest,
    node: str,
    machines: Sequence[Machine],
    nodes: Collection[str],
    now: datetime.datetime,
    shown: x509.Certificate | None,
) -> None:
    spec = _spec(request)
    if spec.get("username") != f"{NODE}{node}":
        raise _Wrong(f"{spec.get('username')} asks in the name of {node}")
    if not frozenset(spec.get("groups") or ()) >= _NODE_GROUPS:
        raise _Wrong("its groups are not those of a node")
    names, addresses = _alternatives(asked)
    if node not in nodes:
        raise _NotYet(f"there is no node {node} yet")
    if shown is not None and _renews(shown, node, names, addresses, now):
        return
    try:
        _check_belongings(node, names, addresses, machines, nodes)
    except _Objection as objection:
        objection.renewable = True
        raise


def _check_belongings(
    node: str, names: set[str], addresses: set[str], machines: Sequence[Machine], nodes: Collection[str]
) -> None:
    """Whether all of these are the node's machine's, and no other node's."""
    machine = _only([each for each in machines if each.node == node or (not each.node and node in each.called)], node)
    own = {name.rstrip(".").lower() for name in machine.called}
    if strange := sorted(name for name in names if name.lower() not in own):
        raise _Wrong(f"{', '.join(strange)} is not a name of {machine.name}")
    if addresses and not machine.addresses:
        raise _NotYet(f"the platform does not tell the addresses of {machine.name} yet")
    if strangers := sorted(addresses - machine.reached_at):
        raise _Wrong(f"{', '.join(strangers)} is not an address of {machine.name}")
    # Platforms know addresses from the guests, and a guest may say that it has its neighbour's.
    for other in machines:
        if other is not machine and other.node in nodes and (shared := sorted(addresses & other.reached_at)):
            raise _NotYet(f"{', '.join(shared)} is an address of {other.name} too")


def _renews(shown: x509.Certificate, node: str, names: set[str], addresses: set[str], now: datetime.datetime) -> bool:
    """Whether just the names of the certificate that the node has are asked for again."""
    if not shown.not_valid_before_utc <= now <= shown.not_valid_after_utc or _common_name(shown) != f"{NODE}{node}":
        return False
    try:
        return _alternatives(shown) == (names, addresses)
    except _Wrong:
        return False


def _parsed(request: Object) -> x509.CertificateSigningRequest:
    try:
        content = base64.b64decode(str(_spec(request).get("request") or ""), validate=True)
        asked = x509.load_der_x509_csr(_block(content))
        # All are read late, and may turn out to be nonsense.
        _, _, attributes = asked.extensions, asked.subject, [each.oid for each in asked.attributes]
        is_signed = asked.is_signature_valid
    except _UNREADABLE as wrong:
        raise _Wrong("it holds no certificate request that can be read") from wrong
    # Of two attributes that hold names, some readers take the first, and some take both.
    if attributes not in ([], [_ASKED_EXTENSIONS]):
        raise _Wrong("its request says more than a node's: names and addresses in one attribute are all it may have")
    if not is_signed:
        raise _Wrong("who asks does not have the key that is asked for")
    return asked


def _block(content: bytes) -> bytes:
    """What the only PEM block holds."""
    found = _ONE_BLOCK.fullmatch(content)
    if found is None:
        raise _Wrong(
            "it holds no certificate request that can be read in one way only: "
            "nodes send a single PEM block with nothing before or after it"
        )
    return base64.b64decode(found[1].replace(b"\n", b""), validate=True)


def _subject(asked: x509.CertificateSigningRequest) -> str:
    """The node that is asked for; its name and the nodes' organization must be all there is in the subject."""
    subject = asked.subject
    organizations = [each.value for each in subject.get_attributes_for_oid(oid.NameOID.ORGANIZATION_NAME)]
    if organizations != [NODES]:
        raise _Wrong(f"its organization is not {NODES} alone")
    name = _common_name(asked)
    if not name.startswith(NODE) or name == NODE:
        raise _Wrong(f"it is for {name or 'nobody'!r}, which is no node")
    if len(list(subject)) != 2:
        raise _Wrong("its subject says more than a node's")
    return name.removeprefix(NODE)


def _common_name(holder: x509.CertificateSigningRequest | x509.Certificate) -> str:
    names = holder.subject.get_attributes_for_oid(oid.NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def _check_usages(request: Object, signer: str) -> None:
    usages = list(_spec(request).get("usages") or ())
    wanted = {_SIGNATURE, _PURPOSES[signer]}
    if len(set(usages)) != len(usages) or set(usages) not in (wanted, wanted | {_ENCIPHERMENT}):
        raise _Wrong(f"it wants to be used for {', '.join(map(str, usages)) or 'nothing'}")


def _alternatives(holder: x509.CertificateSigningRequest | x509.Certificate) -> tuple[set[str], set[str]]:
    """The DNS names and the addresses that a certificate is for, or is to be for."""
    try:
        found = holder.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise _Wrong("a serving certificate needs a name or an address") from None
    if isinstance(holder, x509.CertificateSigningRequest) and len(list(holder.extensions)) != 1:
        raise _Wrong("it asks for more than names and addresses")
    if other := sorted(type(each).__name__ for each in found if not isinstance(each, x509.DNSName | x509.IPAddress)):
        raise _Wrong(f"nodes have no names of the kind {other[0]}")
    names = set(found.get_values_for_type(x509.DNSName))
    addresses = {_normal(str(address)) for address in found.get_values_for_type(x509.IPAddress)}
    if not names | addresses:
        raise _Wrong("a serving certificate needs a name or an address")
    return names, addresses


def _normal(address: str) -> str:
    """One spelling for each; an IPv4 address in IPv6's clothes is what the signer makes of it, too."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else str(found)


def _only(found: Sequence[Machine], node: str) -> Machine:
    if not found:
        raise _Wrong(f"no machine was made for {node}")
    if len(found) > 1:
        raise _Wrong(f"{', '.join(machine.name for machine in found)} are all called {node}")
    return found[0]


def _created(request: Object) -> datetime.datetime | None:
    text = str((request.get("metadata") or {}).get("creationTimestamp") or "")
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def _spec(request: Object) -> Object:
    spec = request.get("spec")
    return spec if isinstance(spec, Mapping) else {}
