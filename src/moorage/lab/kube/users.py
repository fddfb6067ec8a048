"""Who asks: a user as the API knows one, however it was that they proved who they are.

Names and groups that begin with ``system:`` mean something to the API itself; they are written down here once, because
what authentication says and what authorization hears must be the same words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

ANONYMOUS = "system:anonymous"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"
NODES = "system:nodes"
NODE_PREFIX = "system:node:"
BOOTSTRAPPERS = "system:bootstrappers"
BOOTSTRAP_PREFIX = "system:bootstrap:"
SERVICE_ACCOUNTS = "system:serviceaccounts"
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"

Extra = Mapping[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class User:
    """One who asks. ``extra`` is what else the proof told about them, such as the pod that a token is bound to."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Extra = dataclasses.field(default_factory=dict, hash=False)


def authenticated(name: str, groups: tuple[str, ...] = (), uid: str = "", extra: Extra | None = None) -> User:
    """A user who has proved who they are, and so belongs to those who have."""
    if name != ANONYMOUS and AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return User(name, groups, uid, extra or {})


def anonymous() -> User:
    """One who has proved nothing."""
    return User(ANONYMOUS, (UNAUTHENTICATED,))


def service_account(namespace: str, name: str, uid: str = "", extra: Extra | None = None) -> User:
    """The user that a service account is."""
    groups = (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")
    return authenticated(service_account_name(namespace, name), groups, uid, extra)


def service_account_name(namespace: str, name: str) -> str:
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


def service_account_of(username: str) -> tuple[str, str] | None:
    """Namespace and name of the service account that a user is, None if it is none."""
    namespace, colon, name = username.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
    whole = username.startswith(SERVICE_ACCOUNT_PREFIX) and colon and namespace and name and ":" not in name
    return (namespace, name) if whole else None


def node_name(user: User) -> str:
    """The node whose kubelet this is; empty if it is none."""
    if not user.name.startswith(NODE_PREFIX) or NODES not in user.groups:
        return ""
    return user.name.removeprefix(NODE_PREFIX)


def to_json(user: User) -> dict[str, Any]:
    """UserInfo, as reviews and certificate requests show it."""
    found: dict[str, Any] = {"username": user.name}
    if user.uid:
        found["uid"] = user.uid
    if user.groups:
        found["groups"] = list(user.groups)
    if user.extra:
        found["extra"] = {key: list(values) for key, values in user.extra.items()}
    return found
