"""A look at the file cloud before the first create: machine quota, and whether the cluster's names are taken."""

from __future__ import annotations

from moorage.config import findings
from moorage.platforms import contract
from tests.crash.filecloud import client as clients


def inspect(cluster: contract.Cluster, around: contract.Surroundings) -> contract.Report:
    client = clients.Client(around)
    limits = client.call("GET", "/v1/limits")
    ours = len(client.owned("machine", cluster.infra_id))
    wanted = 1 + cluster.config.control_plane_replicas
    machines = contract.Limit("machines", limits["machines"]["used"], max(0, wanted - ours), limits["machines"]["most"])
    mark = f"cluster:{cluster.infra_id}"
    taken = [
        item["spec"]["host"]
        for item in client.listed("record", host=cluster.config.cluster_domain)
        if mark not in item["tags"] and item["spec"]["host"] in (cluster.endpoints.api, cluster.endpoints.api_int)
    ]
    clashes = tuple(
        findings.Finding("metadata.name", f"the name {host} is taken by someone else", remedy="choose another name")
        for host in taken
    )
    image = cluster.config.platform.settings.model_dump()["image"]
    return contract.Report(clashes, (machines,), (contract.Reused("base image", image, "only read"),))
