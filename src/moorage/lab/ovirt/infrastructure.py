"""What the datacentre stands on: data centers, clusters, hosts, networks, storage, and the API's own front page.

All of it is given; nobody makes or changes it through the API. The status of a storage domain is that of its use in a
data center, so it is told there (``/datacenters/{id}/storagedomains``) and not in the list of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from moorage.lab.ovirt import documents, links, permissions, shape

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

_VERSION = {"major": 4, "minor": 5, "build": 7, "revision": 0, "full_version": "4.5.7-1.el9"}
_INSTANCE = "8d1b3c2e-5d0a-4c7e-9b41-0f6d2c9c8a11"
# The elements that are only listed and shown: their paths, and the kinds in the inventory.
_SHOWN = {
    "cluster": "clusters",
    "cpu_profile": "cpu_profiles",
    "data_center": "data_centers",
    "host": "hosts",
    "instance_type": "instance_types",
    "network": "networks",
    "operating_system": "operation_systems",
    "vnic_profile": "vnic_profiles",
}


def without_status(domain: documents.Doc) -> documents.Doc:
    """A storage domain as it is seen outside of a data center."""
    return {key: value for key, value in domain.items() if key != "status" or value == "unattached"}


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    handlers = _Infrastructure(engine)
    found: list[web.AbstractRouteDef] = [
        web.get("", handlers.front),
        web.get("/", handlers.front),
        web.get("/datacenters/{center}/clusters", handlers.clusters_of_center),
        web.get("/datacenters/{center}/networks", handlers.networks_of_center),
        web.get("/datacenters/{center}/storagedomains", handlers.storage_of_center),
        web.get("/datacenters/{center}/storagedomains/{domain}", handlers.one_storage_of_center),
        web.get("/clusters/{cluster}/networks", handlers.networks_of_cluster),
        web.get("/clusters/{cluster}/cpuprofiles", handlers.cpu_profiles_of_cluster),
        web.get("/networks/{network}/vnicprofiles", handlers.profiles_of_network),
        web.get("/storagedomains", handlers.storage),
        web.get("/storagedomains/{domain}", handlers.one_storage),
        web.get("/storagedomains/{domain}/disks", handlers.disks_of_storage),
    ]
    for tag, kind in _SHOWN.items():
        found += _plain(engine, tag, kind)
    return found


def _plain(engine: engines.Engine, tag: str, kind: str) -> list[web.AbstractRouteDef]:
    async def listed(request: web.Request) -> documents.Reply:
        return documents.collection(kind, engine.inventory.all(kind))

    async def one(request: web.Request) -> documents.Reply:
        return documents.entity(tag, engine.inventory.get(kind, request.match_info["id"]))

    path = f"/{links.TOP[tag]}"
    return [web.get(path, listed), web.get(f"{path}/{{id}}", one)]


class _Infrastructure:
    def __init__(self, engine: engines.Engine) -> None:
        self._engine = engine
        self._inventory = engine.inventory

    async def front(self, request: web.Request) -> documents.Reply:
        """Who answers, who asks, and how much there is."""
        user = self._engine.permissions.user(request[permissions.USER]) or {}
        me = {"id": user["id"]}
        return documents.entity(
            "api",
            {
                "authenticated_user": me,
                "effective_user": me,
                "product_info": {
                    "name": "oVirt Engine",
                    "vendor": "ovirt.org",
                    "version": _VERSION,
                    "instance_id": _INSTANCE,
                },
                "special_objects": {
                    "blank_template": {"id": shape.BLANK},
                    "root_tag": {"id": shape.ROOT_TAG},
                },
                "summary": {
                    "hosts": self._count("hosts", "up"),
                    "storage_domains": self._count("storage_domains", "active"),
                    "users": {"active": 1, "total": len(self._inventory.all("users"))},
                    "vms": self._count("vms", "up"),
                },
                "time": self._engine.clock.wall(),
            },
        )

    def _count(self, kind: str, active: str) -> documents.Doc:
        return {
            "active": len(self._inventory.find(kind, status=active)),
            "total": len(self._inventory.all(kind)),
        }

    async def clusters_of_center(self, request: web.Request) -> documents.Reply:
        return documents.collection("clusters", self._inventory.find("clusters", data_center=self._center(request)))

    async def networks_of_center(self, request: web.Request) -> documents.Reply:
        return documents.collection("networks", self._inventory.find("networks", data_center=self._center(request)))

    async def storage_of_center(self, request: web.Request) -> documents.Reply:
        center = self._center(request)
        return documents.collection("storage_domains", [self._attached(each, center) for each in self._used(center)])

    async def one_storage_of_center(self, request: web.Request) -> documents.Reply:
        center = self._center(request)
        domain = self._inventory.get("storage_domains", request.match_info["domain"])
        return documents.entity("storage_domain", self._attached(domain, center))

    async def networks_of_cluster(self, request: web.Request) -> documents.Reply:
        """A network within a cluster says whether it is needed there, and where."""
        cluster = self._inventory.get("clusters", request.match_info["cluster"])
        at = links.href("cluster", cluster)
        return documents.collection(
            "networks",
            [
                {**each, "cluster": {"id": cluster["id"]}, "status": "operational", "required": True}
                | {"href": f"{at}/networks/{each['id']}"}
                for each in self._inventory.all("networks")
                if cluster["id"] in each["_clusters"]
            ],
        )

    async def cpu_profiles_of_cluster(self, request: web.Request) -> documents.Reply:
        cluster = self._inventory.get("clusters", request.match_info["cluster"])
        return documents.collection("cpu_profiles", self._inventory.find("cpu_profiles", cluster=cluster["id"]))

    async def profiles_of_network(self, request: web.Request) -> documents.Reply:
        network = self._inventory.get("networks", request.match_info["network"])
        return documents.collection("vnic_profiles", self._inventory.find("vnic_profiles", network=network["id"]))

    async def storage(self, request: web.Request) -> documents.Reply:
        return documents.collection("storage_domains", self._inventory.all("storage_domains"), without_status)

    async def one_storage(self, request: web.Request) -> documents.Reply:
        domain = self._inventory.get("storage_domains", request.match_info["domain"])
        return documents.entity("storage_domain", without_status(domain))

    async def disks_of_storage(self, request: web.Request) -> documents.Reply:
        domain = self._inventory.get("storage_domains", request.match_info["domain"])
        return documents.collection(
            "disks",
            [
                each
                for each in self._inventory.all("disks")
                if domain["id"] in [there["id"] for there in each.get("storage_domains", ())]
            ],
        )

    def _center(self, request: web.Request) -> str:
        return str(self._inventory.get("data_centers", request.match_info["center"])["id"])

    def _used(self, center: str) -> list[documents.Doc]:
        return [
            each
            for each in self._inventory.all("storage_domains")
            if center in [there["id"] for there in each["data_centers"]]
        ]

    def _attached(self, domain: documents.Doc, center: str) -> documents.Doc:
        return {
            **domain,
            "data_center": {"id": center},
            "href": f"{links.API}/datacenters/{center}/storagedomains/{domain['id']}",
        }
