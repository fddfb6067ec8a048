"""What the things of a cluster are called in the engine, and the mark by which they are known for its own.

Names are for people and may be taken by others; the mark is what counts. Every VM, template, disk, tag and affinity
group bears it in its description, and VMs bear a tag besides, since the engine can search for that.
"""

from __future__ import annotations

from typing import Final

_MARK: Final = "moorage: "
#: The engine takes no longer correlation ids.
_LONGEST_CORRELATION: Final = 50


def mark(infra_id: str, remark: str = "") -> str:
    """The description of a thing of this cluster, with a remark of the user's behind it if there is one."""
    return f"{_MARK}{infra_id} {remark}".rstrip()


def marked(description: str | None, infra_id: str) -> bool:
    """Whether a description bears exactly this cluster's mark; ``abc-12345`` and ``abc-123456`` are two clusters."""
    found = description or ""
    return found == mark(infra_id) or found.startswith(f"{mark(infra_id)} ")


def tag(infra_id: str) -> str:
    """The tag on every VM of the cluster."""
    return infra_id


def bootstrap_tag(infra_id: str) -> str:
    """The tag that the bootstrap VM bears besides."""
    return f"{infra_id}-bootstrap"


def bootstrap(infra_id: str) -> str:
    return f"{infra_id}-bootstrap"


def template(infra_id: str) -> str:
    """The template of the boot image, and the disk that it is made from."""
    return f"{infra_id}-rhcos"


def temporary(infra_id: str) -> str:
    """The VM that lives only until the template has been made from it."""
    return f"{infra_id}-tmp"


def affinity_group(infra_id: str, name: str) -> str:
    return f"{infra_id}-{name}"


def correlation(infra_id: str, what: str) -> str:
    """An id under which the engine's jobs and events of one doing are found again, in another process too."""
    return f"{infra_id}-{what}"[:_LONGEST_CORRELATION]


def provider_id(vm_id: str) -> str:
    """How a Node names its VM."""
    return f"ovirt://{vm_id}"


def vm_id(provider: str) -> str:
    """The VM's id in a `provider_id`; empty if it is none."""
    return provider.removeprefix("ovirt://") if provider.startswith("ovirt://") else ""
