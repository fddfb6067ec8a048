"""Whether a user may do what they ask for, and the words in which they are refused.

A request is reduced to `Attributes`. Members of system:masters may do everything; a kubelet is judged by
`node_authorizer` first, and everybody by the roles they are bound to (`rbac`). The first who says yes is enough.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from moorage.lab.kube import node_authorizer, problem, rbac, users

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis


@dataclasses.dataclass(frozen=True, slots=True)
class Attributes:
    """What is asked for: a verb on a resource (``resource`` is its plural), or on a ``path`` that is no resource.

    A Namespace lies in itself: its name is its namespace, too. The name of a list or watch with the field selector
    metadata.name=x is x. ``fields`` are the requirements of the
    field selector that say "equals": a kubelet may list the pods of its own node only.
    """

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    fields: tuple[tuple[str, str], ...] = ()


def allowed(api: apis.Api, user: users.User, attributes: Attributes) -> tuple[bool, str]:
    """Whether the user may, and why; if not, what those who judge had to say about it."""
    if users.MASTERS in user.groups:
        return True, ""
    node, refused = node_authorizer.allowed(api, user, attributes)
    if node:
        return True, ""
    yes, reason = rbac.allowed(api, user, attributes)
    return yes, reason if yes else "\n".join(filter(None, (refused, reason)))


def require(api: apis.Api, user: users.User | None, attributes: Attributes) -> None:
    """Refuse what the user may not do. None is the lab itself, which may do everything."""
    if user is None:
        return
    yes, reason = allowed(api, user, attributes)
    if not yes:
        raise forbidden(user, attributes, reason)


def forbidden(user: users.User, attributes: Attributes, reason: str = "") -> problem.Problem:
    """The refusal, word for word as API servers say it."""
    why = _escaped(_cannot(user, attributes)) + (f": {reason}" if reason else "")
    if not attributes.resource:
        return problem.Problem(403, "Forbidden", f"forbidden: {why}", details={})
    return problem.forbidden(attributes.group, attributes.resource, attributes.name, why)


def _cannot(user: users.User, asked: Attributes) -> str:
    who = f'User "{user.name}" cannot {asked.verb}'
    if not asked.resource:
        return f'{who} path "{asked.path}"'
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    scope = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    return f'{who} resource "{resource}" in API group "{asked.group}" {scope}'


def _escaped(text: str) -> str:
    # A browser may show the answer, and a path is the asker's own choice.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
