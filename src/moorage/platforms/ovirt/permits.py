"""Whether the user may do what the installation does: the engine tells the user's roles, and their permits.

Only what a creator does not get by creating is asked for: who makes a VM, disk or template becomes its operator and may
start, change and remove it. A permission without a place holds everywhere; those on vNIC, disk and CPU profiles come
without one as well, so that a yes may be too good to be true, but a no is a no.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from ovirtsdk4 import types

from moorage.config import findings, model
from moorage.engine import errors
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import config as sections
from moorage.platforms.ovirt import places

Where = Literal["system", "data center", "cluster", "storage domain"]


@dataclasses.dataclass(frozen=True)
class Need:
    """A permit of the engine's, where it is needed and what for."""

    permit: str
    where: Where
    why: str


def needs(config: model.InstallConfig) -> Iterator[Need]:
    """What the installation of this cluster asks of its user."""
    wanted = sections.settings(config)
    pools = [sections.defaults(config, role) for role in places.ROLES]
    yield Need("create_vm", "cluster", "machines are made")
    yield Need("create_disk", "storage domain", "disks are made")
    yield Need("tag_management", "system", "machines are tagged, so that destroy finds them")
    if not wanted.template:
        yield Need("create_template", "data center", "the boot image becomes a template")
    if wanted.affinity_groups:
        yield Need("manipulate_affinity_groups", "cluster", "machines are kept on different hosts")
    if any(pool.hugepages for pool in pools):
        yield Need("change_vm_custom_properties", "cluster", "machines use huge pages")
    if any(pool.auto_pinning_policy == "resize_and_pin" for pool in pools):
        yield Need("edit_admin_vm_properties", "cluster", "machines are pinned to processors")


def check(
    client: clients.Client, front: types.Api, config: model.InstallConfig, found: places.Places
) -> Iterator[findings.Finding]:
    """What the user lacks, as far as the engine tells."""
    user = front.authenticated_user or front.effective_user
    if user is None:
        yield _unknown("the engine does not say who asks")
        return
    try:
        held = _held(client, user.id)
    except (errors.Unauthorized, errors.NotFound) as refusal:
        yield _unknown(refusal.words or refusal.message)
        return
    for need in needs(config):
        if not any(need.permit in permits and _reaches(each, need.where, found) for each, permits in held):
            yield findings.Finding(
                places.HERE,
                f"user {client.who.username} lacks the permit {need.permit} on the {need.where}: {need.why}",
                remedy="have an administrator give the user a role that contains it there, or use another user",
            )


def _unknown(why: str) -> findings.Finding:
    return findings.Finding(
        places.HERE,
        f"whether the user may do what is needed cannot be told: {why}",
        "warning",
        "a refusal will stop the installation where it happens; nothing is lost by it",
    )


def _held(client: clients.Client, user_id: str) -> Sequence[tuple[types.Permission, frozenset[str]]]:
    """The user's permissions, those by groups included, with the permits of their roles."""
    permissions = client.call(
        "look at the user's permissions",
        lambda api: clients.everything(
            api.users_service().user_service(user_id).permissions_service(), follow="role.permits"
        ),
    )
    roles: dict[str, frozenset[str]] = {}
    for each in permissions:
        if each.role is not None and each.role.id not in roles:
            roles[each.role.id] = _permits(client, each.role)
    return [(each, roles[each.role.id]) for each in permissions if each.role is not None]


def _permits(client: clients.Client, role: types.Role) -> frozenset[str]:
    listed: Any = role.permits
    if not listed:
        # An engine that does not follow the link names the role alone.
        listed = client.call(
            "look at a role of the user",
            lambda api: clients.everything(api.roles_service().role_service(role.id).permits_service()),
        )
    return frozenset(str(permit.name).lower() for permit in listed)


def _reaches(permission: types.Permission, where: Where, found: places.Places) -> bool:
    """Whether a permission holds at a place: on itself, or on what contains it."""
    at = {
        "cluster": permission.cluster,
        "data center": permission.data_center,
        "storage domain": permission.storage_domain,
    }
    elsewhere = (permission.host, permission.vm, permission.vm_pool, permission.template, permission.disk)
    if not any((*at.values(), *elsewhere)):
        return True
    center = at["data center"]
    if where != "system" and center is not None and center.id == found.center_id:
        return True
    place = {"cluster": found.cluster, "storage domain": found.storage}.get(where)
    there = at.get(where)
    return place is not None and there is not None and there.id == place.id
