"""What the demo asks of its cluster as an administrator, where kubectl is not installed or too slow to ask often."""

from __future__ import annotations

import http.client
import json
import ssl
import tempfile
from pathlib import Path
from typing import Any

from moorage.installer import kubeconfig


class Refused(OSError):  # noqa: N818 - the API's own No, to be borne like a broken line
    """The API answered, but not with what was asked."""


def nodes(path: Path) -> str:
    """The nodes as a table."""
    rows = [("NAME", "STATUS", "VERSION")]
    for node in asked(path, "GET", "/api/v1/nodes")["items"]:
        ready = [each["status"] for each in node["status"].get("conditions") or () if each["type"] == "Ready"] == [
            "True"
        ]
        words = ("Ready" if ready else "NotReady", node["status"]["nodeInfo"]["kubeletVersion"])
        rows.append((node["metadata"]["name"], *words))
    width = max(len(name) for name, _, _ in rows)
    return "".join(f"{name:{width}}   {status:8}   {version}\n" for name, status, version in rows)


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
        headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
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
