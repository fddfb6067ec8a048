"""What the operators of a cluster make: namespaces, routers and their authority, routes, the roles of masters.

The installer looks for these at the end of an installation, and users afterwards; when they are made, and whether they
work, is the operators' own business (`operators`).
"""

from __future__ import annotations

from typing import Any

from moorage.lab.nodes import cluster as clusters
from moorage.lab.nodes import router

Object = dict[str, Any]
MASTER, WORKER = "node-role.kubernetes.io/master", "node-role.kubernetes.io/worker"


def prepare(cluster: clusters.Cluster, ingress: router.Ingress) -> None:
    """What is there before the first operator is done: namespaces, the routers' Deployment and their authority."""
    for name in (router.NAMESPACE, "openshift-config-managed", "openshift-console", "openshift-authentication"):
        if cluster.find("", "Namespace", "", name) is None:
            cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    if cluster.find("apps", "Deployment", router.NAMESPACE, "router-default") is None:
        cluster.put(router.deployment(2 if cluster.facts.highly_available else 1))
    cluster.put(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "default-ingress-cert", "namespace": "openshift-config-managed"},
            "data": {"ca-bundle.crt": ingress.authority.certificate},
        }
    )


def as_worker(wanted: bool, master: Object) -> None:
    """Let workloads onto a master, or keep them off."""
    labels = master["metadata"].setdefault("labels", {})
    taints = [each for each in master["spec"].get("taints") or () if each["key"] != MASTER]
    if wanted:
        labels[WORKER] = ""
    else:
        labels.pop(WORKER, None)
        taints.append({"key": MASTER, "effect": "NoSchedule"})
    if taints != (master["spec"].get("taints") or []):
        master["spec"]["taints"] = taints


def route(cluster: clusters.Cluster, namespace: str, name: str, host: str) -> None:
    """A Route that the routers have taken up."""
    if cluster.find("route.openshift.io", "Route", namespace, name) is not None:
        return
    admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": cluster.api.time()}
    cluster.put(
        {
            "apiVersion": "route.openshift.io/v1",
            "kind": "Route",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "host": host,
                "to": {"kind": "Service", "name": name, "weight": 100},
                "tls": {"termination": "reencrypt", "insecureEdgeTerminationPolicy": "Redirect"},
            },
            "status": {"ingress": [{"host": host, "routerName": "default", "conditions": [admitted]}]},
        }
    )
