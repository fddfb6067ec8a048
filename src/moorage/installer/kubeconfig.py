"""The administrator's kubeconfig: read for access, and given the certificates of the cluster's ingress.

The file is also the user's: `oc login` and `oc project` write to it, people rename contexts and leave comments. So only
the text of the values that change is replaced, in place, and everything else stays as it was to the byte.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from moorage import errors
from moorage.assets import store

FILE = "auth/kubeconfig"
_OUR_CONTEXT = "admin"
_AUTHORITY = "certificate-authority-data"


class KubeconfigError(errors.MoorageError):
    """The kubeconfig cannot be used."""


@dataclasses.dataclass(frozen=True)
class Access:
    """How to reach a cluster's API, and as whom."""

    url: str
    host: str
    port: int
    server_name: str
    authority: str
    client_certificate: str = ""
    client_key: str = dataclasses.field(default="", repr=False)
    token: str = dataclasses.field(default="", repr=False)


def read(path: Path) -> Access:
    """The access that ``path`` gives: through the context `admin`, or else the current one."""
    try:
        content = yaml.safe_load(path.read_bytes())
    except FileNotFoundError:
        raise KubeconfigError(
            f"there is no {path}", remedy="run: moorage create ignition-configs, or name the directory with --dir"
        ) from None
    except OSError as problem:
        raise KubeconfigError(f"{path} cannot be read: {problem.strerror}", remedy="check its permissions") from None
    except yaml.YAMLError as problem:
        raise _useless(path, "it is not YAML") from problem
    return access(path, content)


def access(path: Path, content: object) -> Access:
    """The access that the content of a kubeconfig gives; ``path`` is how to call it."""
    cluster, user = _chosen(path, content)
    for unsupported in ("proxy-url", "insecure-skip-tls-verify"):
        if cluster.get(unsupported):
            raise _useless(path, f"{unsupported} is not supported here")
    server = str(cluster.get("server") or "")
    parts = urllib.parse.urlsplit(server)
    try:
        port = parts.port or 443
    except ValueError:
        port = 0
    if parts.scheme != "https" or not parts.hostname or not port:
        raise _useless(path, f"its server {server!r} is not an https address")
    return Access(
        url=server.rstrip("/"),
        host=parts.hostname,
        port=port,
        server_name=str(cluster.get("tls-server-name") or parts.hostname),
        authority=_material(path, cluster, "certificate-authority"),
        client_certificate=_material(path, user, "client-certificate"),
        client_key=_material(path, user, "client-key"),
        token=str(user.get("token") or ""),
    )


def trust(path: Path, certificates: str) -> bool:
    """Let the kubeconfig trust ``certificates`` (PEM) too; whether it had to be changed for that.

    Done for every entry of our cluster, once each: certificates that are there already are not added again.
    """
    added = _parsed(certificates)
    if not added:
        raise KubeconfigError("what should be trusted holds no certificate")
    url = read(path).url
    # A link is the user's arrangement: what it points at is replaced, the link stays.
    place = path.resolve()
    text = place.read_text(encoding="utf-8")
    changed = text
    for node in reversed(list(_authorities(yaml.compose(text, Loader=yaml.SafeLoader), url))):
        known = _decoded(path, _AUTHORITY, node.value)
        present = {_der(certificate) for certificate in _parsed(known)}
        missing = [certificate for certificate in added if _der(certificate) not in present]
        if missing:
            together = f"{known.rstrip()}\n" + "".join(map(_pem, missing))
            changed = _replaced(changed, node, base64.b64encode(together.encode()).decode())
    if changed == text:
        return False
    store.write_alone(place, changed.encode())
    return True


def is_trustworthy(certificates: str) -> bool:
    """Whether the text is PEM that `trust` can use."""
    return bool(_parsed(certificates))


def _chosen(path: Path, content: object) -> tuple[dict[str, Any], dict[str, Any]]:
    if not isinstance(content, dict):
        raise _useless(path, "it holds no settings")
    contexts = _named(content, "contexts", "context")
    # The user may have logged in elsewhere since: the context we wrote is the one that leads to this cluster.
    name = _OUR_CONTEXT if _OUR_CONTEXT in contexts else str(content.get("current-context") or "")
    if name not in contexts:
        raise _useless(path, f"it has no context {name or _OUR_CONTEXT!r}")
    context = contexts[name]
    try:
        cluster = _named(content, "clusters", "cluster")[str(context.get("cluster"))]
        user = _named(content, "users", "user")[str(context.get("user"))]
    except KeyError as missing:
        raise _useless(path, f"its context {name!r} names {missing}, which is not there") from None
    return cluster, user


def _named(content: dict[str, Any], entries: str, inner: str) -> dict[str, dict[str, Any]]:
    listed = content.get(entries)
    if not isinstance(listed, list):
        return {}
    return {
        str(entry["name"]): entry[inner]
        for entry in listed
        if isinstance(entry, dict) and "name" in entry and isinstance(entry.get(inner), dict)
    }


def _material(path: Path, entry: dict[str, Any], key: str) -> str:
    """PEM text, embedded or in a file beside the kubeconfig."""
    embedded = entry.get(f"{key}-data")
    if embedded:
        return _decoded(path, f"{key}-data", str(embedded))
    named = entry.get(key)
    if not named:
        return ""
    try:
        return (path.parent / str(named)).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as problem:
        raise _useless(path, f"the {key} {named} cannot be read") from problem


def _decoded(path: Path, key: str, text: str) -> str:
    try:
        return base64.b64decode(text, validate=False).decode("ascii")
    except (binascii.Error, UnicodeDecodeError) as problem:
        raise _useless(path, f"its {key} is not PEM in base64") from problem


def _useless(path: Path, why: str) -> KubeconfigError:
    return KubeconfigError(
        f"{path} cannot be used: {why}",
        remedy=f"correct it, or move it away and run: moorage create ignition-configs --dir {path.parent.parent}",
    )


def _authorities(root: yaml.Node | None, url: str) -> Iterator[yaml.ScalarNode]:
    """The places where the text says which authorities the cluster at ``url`` is trusted by."""
    for entry in _children(_at(root, "clusters")):
        cluster = _at(entry, "cluster")
        server, authority = _at(cluster, "server"), _at(cluster, _AUTHORITY)
        same = isinstance(server, yaml.ScalarNode) and str(server.value).rstrip("/") == url
        if same and isinstance(authority, yaml.ScalarNode):
            yield authority


def _children(node: yaml.Node | None) -> Sequence[yaml.Node]:
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def _at(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _replaced(text: str, node: yaml.ScalarNode, value: str) -> str:
    quote = node.style if node.style in ("'", '"') else ""
    # A block scalar reaches up to the start of the next line.
    end = "\n" if node.style in ("|", ">") else ""
    return f"{text[: node.start_mark.index]}{quote}{value}{quote}{end}{text[node.end_mark.index :]}"


def _parsed(pem: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem.encode())
    except ValueError:
        return []


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
