"""Names that DNS and the cluster accept: pure checks of one text, shared by the rules and by the survey.

Each check yields what is wrong; nothing yielded means the text is fine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from moorage.config import findings

LABEL: Final = 63
NAME: Final = 253
# `*.apps.<name>` is one label of the zone file at most 63 long, where the asterisk is written \052: nine characters.
CLUSTER_NAME: Final = LABEL - 9

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def is_dns_name(name: str) -> bool:
    """Lower-case labels of letters, digits and inner hyphens, joined by dots (RFC 1123)."""
    return len(name) <= NAME and all(len(label) <= LABEL and _LABEL.fullmatch(label) for label in name.split("."))


def dns_name(field: str, name: str) -> Iterator[findings.Finding]:
    """What keeps ``name`` from being a DNS name."""
    if not name:
        yield findings.Finding(field, "is empty", remedy="give a name such as example.com")
        return
    if len(name) > NAME:
        yield findings.Finding(field, f"is {len(name)} characters long; a DNS name has at most {NAME}")
        return
    if is_dns_name(name):
        return
    repaired = _repair(name)
    yield findings.Finding(
        field,
        f"{name!r} is not a DNS name: {_first_fault(name)}",
        remedy=f"did you mean {repaired}?" if repaired else "use lower-case letters, digits, '-' and '.'",
    )


def base_domain(field: str, domain: str) -> Iterator[findings.Finding]:
    """A DNS name; the dot that ends absolute names is accepted."""
    yield from dns_name(field, domain.removesuffix(".") if domain != "." else "")


def cluster_name(field: str, name: str) -> Iterator[findings.Finding]:
    """A DNS name short enough for the cluster's own names to be built on it."""
    faults = list(dns_name(field, name))
    yield from faults
    if not faults and len(name) > CLUSTER_NAME:
        yield findings.Finding(
            field,
            f"is {len(name)} characters long; with '*.apps.' before it DNS leaves room for {CLUSTER_NAME}",
            remedy="choose a shorter name",
        )


def undotted(field: str, name: str) -> Iterator[findings.Finding]:
    """For platforms where the cluster's name must be a single label."""
    if "." in name:
        yield findings.Finding(
            field,
            "must not contain '.' on this platform, whose nodes answer for the cluster's domain themselves",
            remedy=f"did you mean {name.replace('.', '-')}?",
        )


def cluster_domain(name_field: str, name: str, domain: str) -> Iterator[findings.Finding]:
    """Name and domain, each sound, must fit together."""
    length = len(f"{name}.{domain.removesuffix('.')}")
    if length > NAME:
        yield findings.Finding(
            name_field,
            f"the cluster's domain, <metadata.name>.<baseDomain>, is {length} characters long; DNS allows {NAME}",
            remedy="choose a shorter name or domain",
        )


def _first_fault(name: str) -> str:
    for label in name.split("."):
        if not label:
            return "there is nothing before, after or between its dots"
        if len(label) > LABEL:
            return f"a part between dots has {len(label)} characters, more than {LABEL}"
        if _LABEL.fullmatch(label):
            continue
        if label != label.lower():
            return "it has upper-case letters"
        if label.startswith("-") or label.endswith("-"):
            return "a part begins or ends with '-'"
        bad = re.search(r"[^-a-z0-9]", label)
        if bad:
            return f"{bad.group()!r} is not allowed"
    return "it is malformed"


def _repair(name: str) -> str:
    candidate = re.sub(r"[\s_]+", "-", name.strip().lower())
    candidate = ".".join(label.strip("-") for label in candidate.split(".") if label.strip("-"))
    return candidate if candidate and candidate != name and is_dns_name(candidate) else ""
