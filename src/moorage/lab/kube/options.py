"""How a write is asked for: by whom, in whose name fields are managed, and under which conditions.

Both kinds of options travel from a request's query and body to the rules of `api`. Whoever calls `api` from within the
lab (a controller, the runtime of a node) leaves the user away, and is allowed everything.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage.lab.kube import users

IGNORE = "Ignore"
WARN = "Warn"
STRICT = "Strict"

BACKGROUND = "Background"
FOREGROUND = "Foreground"
ORPHAN = "Orphan"

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

LAB = "moorage-lab"
"""The field manager of what the lab itself writes."""


@dataclasses.dataclass(frozen=True)
class Options:
    """How to create, update or patch. ``warnings`` is filled with what the client should be told beside the answer."""

    user: users.User | None = None
    manager: str = LAB
    dry_run: bool = False
    field_validation: str = IGNORE
    # Server-side apply takes fields over from other managers.
    force: bool = False
    warnings: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class DeleteOptions:
    """How to delete. ``propagation`` is one of the three policies, or empty for the kind's own habit."""

    user: users.User | None = None
    dry_run: bool = False
    grace_seconds: int | None = None
    propagation: str = ""
    # Preconditions: delete only the object with this uid, at this version.
    uid: str = ""
    resource_version: str = ""
