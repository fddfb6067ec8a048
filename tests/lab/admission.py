"""An administrator who lets machines in by name, as a user of ``platform: none`` would with ``oc``."""

from __future__ import annotations

import base64
import contextlib
import http.client
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509 import oid

from moorage.cli import demo_requests

_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_EVERY = 0.3


def approve(path: Path, names: Sequence[str], over: threading.Event) -> None:
    """Let machines of these names in, and nobody else, until it is over."""
    while not over.wait(_EVERY):
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            for request in demo_requests.asked(path, "GET", _REQUESTS)["items"]:
                if not request.get("status", {}).get("conditions") and node_of(request) in names:
                    _approve(path, request)


def node_of(request: dict[str, Any]) -> str:
    subject = x509.load_pem_x509_csr(base64.b64decode(request["spec"]["request"])).subject
    names = subject.get_attributes_for_oid(oid.NameOID.COMMON_NAME)
    return str(names[0].value).removeprefix("system:node:") if names else ""


def _approve(path: Path, request: dict[str, Any]) -> None:
    condition = {"type": "Approved", "status": "True", "reason": "Administrator", "message": "It is one of ours."}
    request.setdefault("status", {})["conditions"] = [condition]
    demo_requests.asked(path, "PUT", f"{_REQUESTS}/{request['metadata']['name']}/approval", request)
