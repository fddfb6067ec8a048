"""Images of containers that are really run: there is no registry and nothing is pulled, but a pull can be made to fail.

A pull is a call like any other to those who order faults: of the service ``registry``, for the manifest of the image.
So whatever can happen to a call can keep a container from starting, and is told in the words of a container runtime.
"""

from __future__ import annotations

import http

from moorage import lab
from moorage.lab import faults
from moorage.lab import site as sites

SERVICE = "registry"


class Unpulled(Exception):  # noqa: N818 - told in the status of the container
    """The image cannot be had; says why."""


async def pull(site: sites.Site, image: str) -> None:
    """Pretend to pull an image; `Unpulled` if somebody ordered that it fails."""
    host, repository, version = _parts(image)
    struck = site.faults.struck(SERVICE, "GET", f"/v2/{repository}/manifests/{version}")
    for rule in struck:
        await lab.sleep(site.clock, rule.seconds if rule.action == faults.DELAY else 0.0)
    for rule in struck:
        if rule.action == faults.FAIL:
            raise Unpulled(_refused(image, host, repository, version, rule.status))
        if rule.action in (faults.DROP, faults.APPLY_THEN_DROP):
            why = f'pinging container registry {host}: Get "https://{host}/v2/": EOF'
            raise Unpulled(f"initializing source docker://{image}: {why}")


def _refused(image: str, host: str, repository: str, version: str, status: int) -> str:
    reading = f"reading manifest {version} in {host}/{repository}"
    why = {404: "manifest unknown", 401: "unauthorized: authentication required", 403: "denied: access forbidden"}
    other = (
        f"received unexpected HTTP status: {status} {http.HTTPStatus(status).phrase if status < 512 else ''}".strip()
    )
    return f"initializing source docker://{image}: {reading}: {why.get(status, other)}"


def _parts(image: str) -> tuple[str, str, str]:
    """Host, repository, and tag or digest."""
    name, _, digest = image.partition("@")
    host, _, path = name.rpartition("/") if "/" not in name else name.partition("/")
    repository, _, tag = path.partition(":")
    return host or "docker.io", repository, digest or tag or "latest"
