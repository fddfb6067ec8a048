"""What the demo asks of its cluster as an administrator: let the workers in, and list the nodes.

A real administrator uses ``oc``; the demo must work where neither that nor kubectl is installed.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509 import oid

from moorage.installer import kubeconfig

_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_EVERY = 0.3


class Refused(OSError):  # noqa: N818 - the API's own No, to be borne like a broken line
    """The API answered, but not with what was asked."""


def approve(path: Path, names: Sequence[str], over: threading.Event) -> None:
    """Let machines of these names in, and nobody else, until it is over."""
    while not over.wait(_EVERY):
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            for request in asked(path, "GET", _REQUESTS)["items"]:
                if not request.get("status", {}).get("conditions") and _node(request) in names:
                    _approve(path, request)


def nodes(path: Path) -> str:
    """The nodes as a table."""
    rows = [("NAME", "STATUS", "VERSION")]
    for node in asked(path, "GET", "/api/v1/nodes")["items"]:
        ready = [each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"] == ["True"]
        words = ("Ready" if ready else "NotReady", node["status"]["nodeInfo"]["kubeletVersion"])
        rows.append((node["metadata"]["name"], *words))
    return "".join(f"{name:14}{status:10}{version}\n" for name, status, version in rows)


def _node(request: dict[str, Any]) -> str:
    subject = x509.load_pem_x509_csr(base64.b64decode(request["spec"]["request"])).subject
    names = subject.get_attributes_for_oid(oid.NameOID.COMMON_NAME)
    return str(names[0].value).removeprefix("system:node:") if names else ""


def _approve(path: Path, request: dict[str, Any]) -> None:
    condition = {"type": "Approved", "status": "True", "reason": "DemoApprove", "message": "It is one of ours."}
    request.setdefault("status", {})["conditions"] = [condition]
    asked(path, "PUT", f"{_REQUESTS}/{request['metadata']['name']}/approval", request)


def asked(path: Path, method: str, where: str, body: object = None) -> dict[str, Any]:
    """What the API answers to the administrator."""
    access = kubeconfig.read(path)
    context = ssl.create_default_context(cadata=access.authority)
    with tempfile.TemporaryDirectory(prefix="moorage-") as folder:
        pair = Path(folder) / "client.pem"
        pair.touch(mode=0o600)
        pair.write_text(f"{access.client_certificate}\n{access.client_key}")
        context.load_cert_chain(pair)
    connection = http.client.HTTPSConnection(access.host, access.port, timeout=10, context=context)
    # The kubeconfig leads to an address; the certificate is for a name.
    connection.connect = lambda: _connect(connection, context, access)  # type: ignore[method-assign]
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, where, None if body is None else json.dumps(body), headers)
        reply = connection.getresponse()
        found: dict[str, Any] = json.loads(reply.read())
        if reply.status >= 400:
            raise Refused(f"{method} {where}: {found.get('message', reply.reason)}")
        return found
    finally:
        connection.close()


def _connect(connection: http.client.HTTPSConnection, context: ssl.SSLContext, access: kubeconfig.Access) -> None:
    http.client.HTTPConnection.connect(connection)
    connection.sock = context.wrap_socket(connection.sock, server_hostname=access.server_name)
