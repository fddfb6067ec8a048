"""The columns of what runs: pods, nodes, services and the kinds that make pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moorage.lab.kube import cells, headings, kinds

Object = Mapping[str, Any]
Columns = tuple[kinds.Column, ...]


def of_core() -> dict[str, Columns]:
    """The core group, but for volumes."""
    return {
        "ConfigMap": (headings.NAME, headings.column("Data", _data), headings.AGED),
        "Secret": (headings.NAME, headings.column("Type", "type"), headings.count("Data", "data"), headings.AGED),
        "ServiceAccount": (headings.NAME, headings.count("Secrets", "secrets"), headings.AGED),
        "Namespace": (headings.NAME, headings.column("Status", "status.phase"), headings.AGED),
        "Endpoints": (headings.NAME, headings.column("Endpoints", cells.endpoint_addresses), headings.AGED),
        "Event": _event(),
        "Node": _node(),
        "Pod": _pod(),
        "PodTemplate": (
            headings.NAME,
            headings.column(
                "Containers", lambda content: cells.names_of(cells.at(content, "template.spec.containers"))
            ),
            headings.column("Images", lambda content: cells.images_of(cells.at(content, "template.spec.containers"))),
            headings.column("Pod Labels", lambda content: cells.labels(cells.at(content, "template.metadata.labels"))),
        ),
        "ReplicationController": (
            headings.NAME,
            *_replicas(),
            headings.AGED,
            *headings.TEMPLATE,
            headings.wide("Selector", lambda content: cells.labels(cells.at(content, "spec.selector"))),
        ),
        "ResourceQuota": (
            headings.NAME,
            headings.column("Request", cells.quota("requests")),
            headings.column("Limit", cells.quota("limits")),
            headings.AGED,
        ),
        "Service": (
            headings.NAME,
            headings.column("Type", "spec.type"),
            headings.column("Cluster-IP", "spec.clusterIP", default=cells.NONE),
            headings.column("External-IP", cells.service_external),
            headings.column("Port(s)", cells.service_ports),
            headings.AGED,
            headings.wide("Selector", lambda content: cells.labels(cells.at(content, "spec.selector"))),
        ),
    }


def of_apps() -> dict[str, Columns]:
    """The group apps."""

    def ready(content: Object) -> str:
        return f"{cells.at(content, 'status.readyReplicas', 0)}/{cells.at(content, 'spec.replicas', 0)}"

    return {
        "ControllerRevision": (
            headings.NAME,
            headings.column("Controller", cells.controller),
            headings.number("Revision", "revision", "string"),
            headings.AGED,
        ),
        "Deployment": (
            headings.NAME,
            headings.column("Ready", ready),
            headings.number("Up-to-date", "status.updatedReplicas", "string"),
            headings.number("Available", "status.availableReplicas", "string"),
            headings.AGED,
            *headings.TEMPLATE,
            headings.SELECTOR,
        ),
        "ReplicaSet": (headings.NAME, *_replicas(), headings.AGED, *headings.TEMPLATE, headings.SELECTOR),
        "StatefulSet": (headings.NAME, headings.column("Ready", ready), headings.AGED, *headings.TEMPLATE),
        "DaemonSet": (
            headings.NAME,
            headings.number("Desired", "status.desiredNumberScheduled"),
            headings.number("Current", "status.currentNumberScheduled"),
            headings.number("Ready", "status.numberReady"),
            headings.number("Up-to-date", "status.updatedNumberScheduled"),
            headings.number("Available", "status.numberAvailable"),
            headings.column(
                "Node Selector", lambda content: cells.labels(cells.at(content, "spec.template.spec.nodeSelector"))
            ),
            headings.AGED,
            *headings.TEMPLATE,
            headings.SELECTOR,
        ),
    }


def of_autoscaling() -> dict[str, Columns]:
    """The group autoscaling."""

    def reference(content: Object) -> str:
        target = cells.at(content, "spec.scaleTargetRef", {})
        return f"{target.get('kind', '')}/{target.get('name', '')}"

    return {
        "HorizontalPodAutoscaler": (
            headings.NAME,
            headings.column("Reference", reference),
            headings.column("Targets", cells.autoscaler_targets),
            headings.column("MinPods", lambda content: str(cells.at(content, "spec.minReplicas", cells.UNSET))),
            headings.number("MaxPods", "spec.maxReplicas", "string"),
            headings.number("Replicas", "status.currentReplicas", "string"),
            headings.AGED,
        )
    }


def of_batch() -> dict[str, Columns]:
    """The group batch."""
    of_jobs = headings.containers("spec.jobTemplate.spec.template.spec.containers")
    return {
        "Job": (
            headings.NAME,
            headings.column("Status", cells.job_status),
            headings.column("Completions", cells.job_completions),
            headings.column("Duration", cells.job_duration),
            headings.AGED,
            *headings.TEMPLATE,
            headings.SELECTOR,
        ),
        "CronJob": (
            headings.NAME,
            headings.column("Schedule", "spec.schedule"),
            headings.column("Timezone", "spec.timeZone", default=cells.NONE),
            headings.column(
                "Suspend", lambda content: str(bool(cells.at(content, "spec.suspend"))).capitalize(), "boolean"
            ),
            headings.count("Active", "status.active", "integer"),
            headings.column("Last Schedule", cells.last_schedule),
            headings.AGED,
            *of_jobs,
            headings.wide(
                "Selector", lambda content: cells.selector(cells.at(content, "spec.jobTemplate.spec.selector"))
            ),
        ),
    }


def of_policy() -> dict[str, Columns]:
    """The group policy."""

    def number(path: str) -> Callable[[Object], object]:
        return lambda content: str(cells.at(content, path, "N/A"))

    return {
        "PodDisruptionBudget": (
            headings.NAME,
            headings.column("Min Available", number("spec.minAvailable")),
            headings.column("Max Unavailable", number("spec.maxUnavailable")),
            headings.number("Allowed Disruptions", "status.disruptionsAllowed"),
            headings.AGED,
        )
    }


def _data(content: Object) -> object:
    return len(content.get("data") or {}) + len(content.get("binaryData") or {})


def _replicas() -> Columns:
    return (
        headings.number("Desired", "spec.replicas"),
        headings.number("Current", "status.replicas"),
        headings.number("Ready", "status.readyReplicas"),
    )


def _event() -> Columns:
    return (
        headings.column("Last Seen", cells.event_seen),
        headings.column("Type", "type"),
        headings.column("Reason", "reason"),
        headings.column("Object", cells.event_object),
        headings.wide("Subobject", "involvedObject.fieldPath"),
        headings.wide("Source", cells.event_source),
        headings.column("Message", lambda content: cells.at(content, "message", "").strip()),
        headings.wide("First Seen", cells.event_first),
        headings.wide("Count", cells.event_count),
        kinds.Column("Name", ".metadata.name", format="name", priority=1),
    )


def _node() -> Columns:
    return (
        headings.NAME,
        headings.column("Status", cells.node_status),
        headings.column("Roles", cells.node_roles),
        headings.AGED,
        headings.column("Version", "status.nodeInfo.kubeletVersion"),
        headings.wide("Internal-IP", cells.node_address("InternalIP")),
        headings.wide("External-IP", cells.node_address("ExternalIP")),
        headings.wide("OS-Image", "status.nodeInfo.osImage", cells.UNKNOWN),
        headings.wide("Kernel-Version", "status.nodeInfo.kernelVersion", cells.UNKNOWN),
        headings.wide("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", cells.UNKNOWN),
    )


def _pod() -> Columns:
    return (
        headings.NAME,
        headings.column("Ready", cells.pod_ready),
        headings.column("Status", cells.pod_status),
        headings.column("Restarts", cells.pod_restarts),
        headings.AGED,
        headings.wide("IP", "status.podIP", cells.NONE),
        headings.wide("Node", "spec.nodeName", cells.NONE),
        headings.wide("Nominated Node", "status.nominatedNodeName", cells.NONE),
        headings.wide("Readiness Gates", _gates),
    )


def _gates(pod: Object) -> str:
    gates = cells.at(pod, "spec.readinessGates", [])
    met = sum(cells.condition(pod, gate["conditionType"]) == "True" for gate in gates)
    return f"{met}/{len(gates)}" if gates else cells.NONE
