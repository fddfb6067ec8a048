"""The guards at the door of the store: what a user may not write though they may write objects of this kind.

The verbs call these for every write, with None as the user when the lab itself writes. Authorization has been asked
before, by the one who knows the request; these look at the object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import certificate_requests, certificates, escalation, kinds, node_restriction, users

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = dict[str, Any]


def before_create(api: apis.Api, kind: kinds.Kind, content: Object, user: users.User | None) -> None:
    """Look at a new object, with its name and namespace in it, before it is written."""
    node_restriction.check_write(api, user, kind.key, None, content, "")
    escalation.check(api, user, kind.key, content["metadata"].get("namespace", ""), None, content)
    if kind.key == certificates.REQUESTS:
        certificate_requests.prepare_create(api, content, user)


def before_update(
    api: apis.Api,
    kind: kinds.Kind,
    before: Mapping[str, Any],
    after: Object,
    subresource: str | None,
    user: users.User | None,
) -> None:
    """Look at a changed object; subresource None means that the lab itself writes, status and all."""
    if kind.key == certificates.REQUESTS:
        certificate_requests.prepare_update(api, before, after, subresource, user)
    if subresource is None:
        return
    node_restriction.check_write(api, user, kind.key, before, after, subresource)
    escalation.check(api, user, kind.key, before["metadata"].get("namespace", ""), before, after)


def before_delete(kind: kinds.Kind, content: Mapping[str, Any], user: users.User | None) -> None:
    """Look at an object that somebody wants to delete."""
    node_restriction.check_delete(user, kind.key, content)
