"""Who may do what: users have roles, roles have permits, and every change needs one.

A client finds out like this: ``GET /`` names the authenticated user, ``/users/{id}/permissions`` its roles, and
``/roles/{id}/permits`` what those allow. Whoever lacks a permit is refused with 403 and no word on which one.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

from aiohttp import web

from moorage.lab.ovirt import documents, faults

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

USER = web.RequestKey("ovirt-user", str)

# The engine's numbers of its action groups, which are the ids of permits.
PERMITS = {
    "create_vm": 1,
    "delete_vm": 2,
    "edit_vm_properties": 3,
    "configure_vm_network": 9,
    "configure_vm_storage": 10,
    "change_vm_custom_properties": 14,
    "edit_admin_vm_properties": 15,
    "reboot_vm": 17,
    "stop_vm": 18,
    "shut_down_vm": 19,
    "run_vm": 22,
    "create_template": 200,
    "edit_template_properties": 201,
    "delete_template": 202,
    "configure_template_network": 204,
    "edit_cluster_configuration": 401,
    "create_disk": 1100,
    "attach_disk": 1101,
    "edit_disk_properties": 1102,
    "delete_disk": 1104,
    "login": 1300,
    "tag_management": 1301,
    "manipulate_affinity_groups": 1550,
}
ADMINISTRATIVE = frozenset(
    {
        "change_vm_custom_properties",
        "edit_admin_vm_properties",
        "edit_cluster_configuration",
        "tag_management",
        "manipulate_affinity_groups",
    }
)

_NEEDS = (
    ("POST", r"/vms", "create_vm"),
    ("DELETE", r"/vms/[^/]+", "delete_vm"),
    ("POST", r"/vms/[^/]+/start", "run_vm"),
    ("POST", r"/vms/[^/]+/stop", "stop_vm"),
    ("POST", r"/vms/[^/]+/shutdown", "shut_down_vm"),
    ("POST", r"/vms/[^/]+/(reboot|reset)", "reboot_vm"),
    ("*", r"/vms/[^/]+/nics.*", "configure_vm_network"),
    ("*", r"/vms/[^/]+/diskattachments.*", "configure_vm_storage"),
    ("*", r"/(vms|hosts|templates)/[^/]+/tags.*", "tag_management"),
    ("*", r"/vms/.*", "edit_vm_properties"),
    ("POST", r"/templates", "create_template"),
    ("DELETE", r"/templates/[^/]+", "delete_template"),
    ("*", r"/templates/[^/]+/nics.*", "configure_template_network"),
    ("*", r"/templates/.*", "edit_template_properties"),
    ("POST", r"/disks", "create_disk"),
    ("DELETE", r"/disks/[^/]+", "delete_disk"),
    ("*", r"/disks/.*", "edit_disk_properties"),
    ("*", r"/imagetransfers.*", "edit_disk_properties"),
    ("*", r"/tags.*", "tag_management"),
    ("*", r"/clusters/[^/]+/affinitygroups.*", "manipulate_affinity_groups"),
    ("*", r".*", "edit_cluster_configuration"),
)
_COMPILED = tuple((method, re.compile(path), permit) for method, path, permit in _NEEDS)

SUPER_USER = "00000000-0000-0000-0000-000000000001"
READ_ONLY = "def0000c-0000-0000-0000-def00000000c"


def needed(method: str, path: str) -> str:
    """The permit that a call needs; nothing for those that only look. ``path`` is below the API."""
    if method in ("GET", "HEAD", "OPTIONS"):
        return "login"
    return next(permit for verb, pattern, permit in _COMPILED if verb in ("*", method) and pattern.fullmatch(path))


class Permissions:
    """Users, roles and permissions; the entities are in the inventory."""

    def __init__(self, engine: engines.Engine) -> None:
        self._engine = engine

    def add_role(self, name: str, description: str, permits: list[str], identity: str = "") -> documents.Doc:
        """A role that allows these things."""
        role = {
            "id": identity or str(uuid.uuid4()),
            "name": name,
            "description": description,
            "administrative": True,
            "mutable": not identity,
            "_permits": list(permits),
        }
        return self._engine.inventory.add("roles", role)

    def add_user(self, principal: str, role: str) -> documents.Doc:
        """A user such as `admin@internal`, with a role on the whole system."""
        user = self._engine.inventory.add(
            "users",
            {
                "name": principal.partition("@")[0],
                "user_name": f"{principal}-authz",
                "principal": principal.partition("@")[0],
                "namespace": "*",
                "domain": {"name": "internal-authz"},
                "_login": principal,
            },
        )
        self.grant(user, role)
        return user

    def grant(self, user: documents.Doc, role: str) -> None:
        """Let a role be all that a user has."""
        for old in self._engine.inventory.find("permissions", user=user["id"]):
            self._engine.inventory.remove("permissions", old["id"])
        self._engine.inventory.add("permissions", {"user": {"id": user["id"]}, "role": {"id": role}})

    def limit(self, user: documents.Doc, permits: list[str]) -> None:
        """Give a user a role of its own with just these permits."""
        role = self.add_role(f"role-of-{user['name']}", "Given by the lab's controls", permits)
        self.grant(user, role["id"])

    def user(self, principal: str) -> documents.Doc | None:
        return next(iter(self._engine.inventory.find("users", _login=principal)), None)

    def of(self, principal: str) -> set[str]:
        """All that a user may do."""
        user = self.user(principal)
        if user is None:
            return set()
        inventory = self._engine.inventory
        roles = [each["role"]["id"] for each in inventory.find("permissions", user=user["id"])]
        return {permit for role in roles for permit in inventory.get("roles", role)["_permits"]}

    def check(self, principal: str, method: str, path: str) -> None:
        """Refuse (403) a call that the user has no permit for."""
        if needed(method, path) not in self.of(principal):
            raise faults.forbidden()


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    inventory = engine.inventory

    async def users(request: web.Request) -> documents.Reply:
        return documents.collection("users", inventory.all("users"))

    async def user(request: web.Request) -> documents.Reply:
        return documents.entity("user", inventory.get("users", request.match_info["user"]))

    async def permissions_of_user(request: web.Request) -> documents.Reply:
        found = inventory.get("users", request.match_info["user"])
        return documents.collection("permissions", inventory.find("permissions", user=found["id"]))

    async def inherited(request: web.Request) -> documents.Reply:
        """Permissions are given on the whole system here, so they hold for every object in it."""
        kind = request.match_info["kind"]
        inventory.get(
            {"datacenters": "data_centers", "storagedomains": "storage_domains"}.get(kind, kind),
            request.match_info["object"],
        )
        return documents.collection("permissions", inventory.all("permissions"))

    async def roles(request: web.Request) -> documents.Reply:
        return documents.collection("roles", inventory.all("roles"))

    async def role(request: web.Request) -> documents.Reply:
        return documents.entity("role", inventory.get("roles", request.match_info["role"]))

    async def permits(request: web.Request) -> documents.Reply:
        found = inventory.get("roles", request.match_info["role"])
        return documents.collection(
            "permits",
            [
                {
                    "id": str(PERMITS[name]),
                    "name": name,
                    "administrative": name in ADMINISTRATIVE,
                    "role": {"id": found["id"]},
                }
                for name in found["_permits"]
            ],
        )

    return [
        web.get("/users", users),
        web.get("/users/{user}", user),
        web.get("/users/{user}/permissions", permissions_of_user),
        web.get(
            "/{kind:clusters|datacenters|storagedomains|hosts|vms|templates|disks|networks}/{object}/permissions",
            inherited,
        ),
        web.get("/roles", roles),
        web.get("/roles/{role}", role),
        web.get("/roles/{role}/permits", permits),
    ]
