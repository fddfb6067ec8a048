"""The nodes of the cluster, asked of its API with the kubelet's own credentials.

Masters ask the API beside them first: when the virtual address is what is broken, it is no help in mending it. After
that the virtual address itself is tried, under the name that the certificate has, so that no name has to be resolved.
"""

from __future__ import annotations

import base64
import dataclasses
import http.client
import json
import socket
import ssl
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from moorage.network import settings, view

# Whatever the API server has in memory will do: a list that is a second old hurts nobody, reading etcd would.
_LIST = "/api/v1/nodes?resourceVersion=0"
_ROLE = "node-role.kubernetes.io/"
_LARGEST = 64 * 1024 * 1024


class Unanswered(Exception):  # noqa: N818 - nobody answered, which is not an error of ours
    """The nodes could not be learned; the text says from whom and why not."""


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Where to connect to, and the name that is expected there."""

    host: str
    port: int
    name: str


def endpoints(wanted: settings.Settings, role: str, server: str) -> list[Endpoint]:
    """Where the API may be, in the order to try."""
    parts = urlsplit(server)
    name, port = parts.hostname or "", parts.port or 443
    found = [Endpoint("localhost", port, "localhost")] if role != view.WORKER else []
    if name not in ("localhost", ""):
        found += [Endpoint(each, port, name) for each in wanted.api_vips]
        found.append(Endpoint(name, port, name))
    return list(dict.fromkeys(found))


def nodes(wanted: settings.Settings, role: str, kubeconfig: Path, seconds: float = 5.0) -> tuple[view.Node, ...]:
    """The nodes, from the first endpoint that answers."""
    try:
        server, tls = _access(kubeconfig)
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as problem:
        raise Unanswered(f"{kubeconfig} cannot be used yet: {problem or type(problem).__name__}") from problem
    why = []
    for endpoint in endpoints(wanted, role, server):
        try:
            return parse(_get(endpoint, tls, seconds), wanted.vips)
        except (OSError, http.client.HTTPException, ValueError, Unanswered) as problem:
            why.append(f"{endpoint.host}: {problem or type(problem).__name__}")
    raise Unanswered("; ".join(why) or f"{kubeconfig} names no server")


def _access(path: Path) -> tuple[str, ssl.SSLContext]:
    """The server and the credentials of a kubeconfig's current context."""
    config = yaml.safe_load(path.read_bytes())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    tls = ssl.create_default_context(cadata=_data(cluster, "certificate-authority", path).decode())
    chain, key = _data(user, "client-certificate", path), _data(user, "client-key", path)
    # Python takes certificates of its own from files only; this one is gone before anybody can ask for it.
    with tempfile.NamedTemporaryFile() as together:
        together.write(chain if chain.strip() == key.strip() else chain + b"\n" + key)
        together.flush()
        tls.load_cert_chain(together.name)
    return str(cluster["server"]), tls


def _named(listed: Iterable[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next((each for each in listed if each.get("name") == name), None) or _missing(name)


def _missing(name: str) -> Mapping[str, Any]:
    raise ValueError(f"nothing in it is called {name!r}")


def _data(section: Mapping[str, Any], key: str, path: Path) -> bytes:
    """Either the data itself, or a file's, beside the kubeconfig where the path is relative."""
    if inline := section.get(f"{key}-data"):
        return base64.b64decode(inline)
    return (path.parent / str(section[key])).read_bytes()


def _get(endpoint: Endpoint, tls: ssl.SSLContext, seconds: float) -> bytes:
    with (
        socket.create_connection((endpoint.host, endpoint.port), timeout=seconds) as plain,
        tls.wrap_socket(plain, server_hostname=endpoint.name) as secure,
    ):
        connection = http.client.HTTPConnection(endpoint.name, endpoint.port, timeout=seconds)
        connection.sock = secure
        connection.request("GET", _LIST, headers={"Accept": "application/json", "Connection": "close"})
        reply = connection.getresponse()
        body = reply.read(_LARGEST)
        if reply.status != http.client.OK:
            raise Unanswered(f"{reply.status} {reply.reason}")
        return body


def parse(body: bytes, vips: Iterable[str] = ()) -> tuple[view.Node, ...]:
    """The nodes of a NodeList. Whether one is Ready does not matter: it may still carry an address."""
    found = json.loads(body)
    items = found.get("items") if isinstance(found, dict) else None
    if not isinstance(items, list):
        raise ValueError("the answer is no list of nodes")
    return tuple(sorted(each for each in (_node(item, set(vips)) for item in items) if each is not None))


def _node(item: Mapping[str, Any], vips: set[str]) -> view.Node | None:
    labels = item["metadata"].get("labels") or {}
    is_master = any(f"{_ROLE}{each}" in labels for each in ("master", "control-plane"))
    listed = (item.get("status") or {}).get("addresses") or ()
    # A kubelet that starts while it carries a virtual address may take it for its own.
    addresses = [each["address"] for each in listed if each.get("type") == "InternalIP" and each["address"] not in vips]
    if not addresses:
        return None
    role = view.MASTER if is_master else view.WORKER
    return view.Node(item["metadata"]["name"], role, tuple(dict.fromkeys(addresses)))
