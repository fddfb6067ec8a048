"""A store with a clock whose hands can be moved: all of an API that access control looks at.

The rules of writing are tested with `api`; here objects are put into the store as they are, so that a test of access
fails for reasons of access alone. `RECORDED` is what a real API server (1.33, Node and RBAC) said to the same objects.
"""

from __future__ import annotations

import base64
import datetime
import functools
import json
import pathlib
import uuid
from collections.abc import Callable
from typing import Any, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.engine import clock as clocks
from moorage.lab.kube import api as apis
from moorage.lab.kube import kinds, metadata, store, users

Object = dict[str, Any]
Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

RECORDED: dict[str, Any] = json.loads((pathlib.Path(__file__).with_name("data") / "access.json").read_text())

_PLURALS = {"Ingress": "ingresses", "NetworkPolicy": "networkpolicies"}


class Clock(clocks.Clock):
    """A clock that can be put forward."""

    ahead = datetime.timedelta()

    def wall(self) -> datetime.datetime:
        return super().wall() + self.ahead


class World:
    """What access control needs of an API."""

    def __init__(self) -> None:
        self.store = store.Store()
        self.kinds = kinds.Kinds()
        self.clock = Clock()
        self.kubelet_label_domains: tuple[str, ...] = ()

    def later(self, **time: float) -> None:
        self.clock.ahead += datetime.timedelta(**time)

    def kind(self, group: str, name: str) -> kinds.Kind:
        plural = _PLURALS.get(name, name.lower() + "s")
        return kinds.Kind(group, "v1", name, plural)

    def put(self, content: Object) -> store.Entry:
        content = json.loads(json.dumps(content))
        meta = content["metadata"]
        meta.setdefault("uid", str(uuid.uuid4()))
        group = content["apiVersion"].rpartition("/")[0]
        return self.store.put(self.kind(group, content["kind"]).key, (meta.get("namespace", ""), meta["name"]), content)

    def apply_status(self, kind: kinds.Kind, namespace: str, name: str, change: Callable[[Object], None]) -> None:
        entry = self.store.get(kind.key, (namespace, name))
        assert entry is not None
        content = store.copied(entry)
        change(content)
        self.store.put(kind.key, (namespace, name), content)

    def time(self) -> str:
        return metadata.timestamp(self.clock.wall())

    @property
    def api(self) -> apis.Api:
        return cast(apis.Api, self)


def recorded_world() -> World:
    """A world with the objects about which the real server was asked."""
    from moorage.lab.kube import roles

    world = World()
    roles.bootstrap(world.api)
    for each in RECORDED["objects"]:
        world.put(each)
    return world


def recorded_user(name: str) -> users.User:
    told = RECORDED["users"][name]
    return users.User(told["name"], tuple(told["groups"]))


def role(name: str, *rules: Object, namespace: str = "", **more: Any) -> Object:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    kind = "Role" if namespace else "ClusterRole"
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": meta, "rules": list(rules), **more}


def rule(verbs: str, group: str, *resources: str) -> Object:
    return {"verbs": verbs.split(), "apiGroups": [group], "resources": list(resources)}


def binding(name: str, to: str, *subjects: Object, namespace: str = "", kind: str = "ClusterRole") -> Object:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": to},
        "subjects": list(subjects),
    }


def user_subject(name: str) -> Object:
    return {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}


@functools.cache
def key(name: str, curve: bool = True) -> Key:
    """A key, the same for the same name."""
    return ec.generate_private_key(ec.SECP256R1()) if curve else rsa.generate_private_key(65537, 2048)


def private_pem(of: Key) -> str:
    return of.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def name(common: str, *organizations: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else parts)


def certificate(
    subject: x509.Name,
    *,
    issuer: x509.Name | None = None,
    signed_by: Key | None = None,
    ca: bool = False,
    hours: tuple[float, float] = (-1, 1),
    usage: x509.ObjectIdentifier | None = ExtendedKeyUsageOID.CLIENT_AUTH,
) -> x509.Certificate:
    """A certificate, valid from and until so many hours from now."""
    own = key("leaf")
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key((signed_by or own).public_key() if ca else own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(hours=hours[0]))
        .not_valid_after(now + datetime.timedelta(hours=hours[1]))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if usage is not None and not ca:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    return builder.sign(signed_by or own, hashes.SHA256())


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
