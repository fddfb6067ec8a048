"""What stands in the cells of built-in kinds' tables where a path alone cannot say it.

The words are those that real servers choose. A function takes the object and gives the cell; a `kinds.Since` is shown
as the time that has passed.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from moorage.lab.kube import kinds, tables

Object = Mapping[str, Any]

NONE = "<none>"
UNSET = "<unset>"
UNKNOWN = "<unknown>"

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_ROLE = "node-role.kubernetes.io/"
_SHOWN = 3


def at(content: Object, path: str, default: Any = None) -> Any:
    """The value at a dotted path; the default if it is absent or empty."""
    found: Any = content
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return default if found in (None, "", [], {}) else found


def since(content: Object, path: str) -> kinds.Since:
    return kinds.Since(at(content, path, ""))


def labels(found: Object | None) -> str:
    """Labels as people write them."""
    return ",".join(f"{key}={value}" for key, value in sorted((found or {}).items())) or NONE


def selector(found: Object | None) -> str:
    """A label selector as people write it."""
    if not found:
        return NONE
    parts = [f"{key}={value}" for key, value in (found.get("matchLabels") or {}).items()]
    for each in found.get("matchExpressions") or []:
        key, values = each["key"], ",".join(sorted(each.get("values") or []))
        words = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        parts.append(words.get(each["operator"], f"!{key}"))
    return ",".join(sorted(parts)) or NONE


def names_of(containers: list[Object] | None) -> str:
    return ",".join(each.get("name", "") for each in containers or [])


def images_of(containers: list[Object] | None) -> str:
    return ",".join(each.get("image", "") for each in containers or [])


def condition(content: Object, kind: str) -> str:
    """The status of a condition, empty if it is not there."""
    return next((each["status"] for each in at(content, "status.conditions", []) if each["type"] == kind), "")


def access_modes(modes: list[str] | None) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or []))


def few(found: list[str]) -> str:
    """A list, cut after the first few."""
    shown = ",".join(found[:_SHOWN])
    return f"{shown} + {len(found) - _SHOWN} more..." if len(found) > _SHOWN else shown or NONE


def pod_ready(pod: Object) -> str:
    statuses = at(pod, "status.containerStatuses", [])
    ready = sum(bool(each.get("ready") and at(each, "state.running") is not None) for each in statuses)
    # A container that runs says so by an object which may be empty.
    ready = max(ready, sum(bool(each.get("ready") and "running" in (each.get("state") or {})) for each in statuses))
    return f"{ready}/{len(at(pod, 'spec.containers', []))}"


def pod_restarts(pod: Object) -> str:
    return str(sum(each.get("restartCount", 0) for each in at(pod, "status.containerStatuses", [])))


def pod_status(pod: Object) -> str:
    """One word for how a pod fares: its phase, unless a container or its deletion has more to say."""
    phase = at(pod, "status.phase", "")
    found = at(pod, "status.reason", phase)
    waiting = _initializing(pod)
    if waiting:
        found = waiting
    else:
        for each in reversed(at(pod, "status.containerStatuses", [])):
            found = _container_reason(each) or found
        running = any("running" in (each.get("state") or {}) for each in at(pod, "status.containerStatuses", []))
        if found == "Completed" and running:
            found = "Running" if condition(pod, "Ready") == "True" else "NotReady"
    if at(pod, "metadata.deletionTimestamp") and phase not in ("Succeeded", "Failed"):
        return "Unknown" if at(pod, "status.reason") == "NodeLost" else "Terminating"
    return str(found)


def _initializing(pod: Object) -> str:
    statuses = at(pod, "status.initContainerStatuses", [])
    for place, each in enumerate(statuses):
        state = each.get("state") or {}
        ended = state.get("terminated")
        if ended is not None and not ended.get("exitCode"):
            continue
        if ended is not None:
            return f"Init:{ended.get('reason') or 'ExitCode:' + str(ended.get('exitCode'))}"
        reason = at(state, "waiting.reason", "")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{place}/{len(at(pod, 'spec.initContainers', statuses))}"
    return ""


def _container_reason(status: Object) -> str:
    state = status.get("state") or {}
    ended = state.get("terminated")
    if reason := at(state, "waiting.reason", ""):
        return str(reason)
    if ended is None:
        return ""
    if ended.get("signal") and not ended.get("reason"):
        return f"Signal:{ended['signal']}"
    return str(ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}")


def node_status(node: Object) -> str:
    ready = condition(node, "Ready")
    words = ["Unknown" if not ready else "Ready" if ready == "True" else "NotReady"]
    if at(node, "spec.unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def node_roles(node: Object) -> str:
    roles = set()
    for key, value in at(node, "metadata.labels", {}).items():
        if key.startswith(_ROLE) and key != _ROLE:
            roles.add(key.removeprefix(_ROLE))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles)) or NONE


def node_address(kind: str) -> Any:
    def find(node: Object) -> str:
        addresses = at(node, "status.addresses", [])
        return next((str(each["address"]) for each in addresses if each["type"] == kind), NONE)

    return find


def service_external(service: Object) -> str:
    kind, outside = at(service, "spec.type"), at(service, "spec.externalIPs", [])
    if kind == "ExternalName":
        return str(at(service, "spec.externalName", ""))
    if kind == "LoadBalancer":
        found = [each.get("ip") or each.get("hostname") for each in at(service, "status.loadBalancer.ingress", [])]
        return ",".join([*(str(each) for each in found if each), *outside]) or "<pending>"
    return ",".join(outside) or NONE


def service_ports(service: Object) -> str:
    shown = []
    for port in at(service, "spec.ports", []):
        outside = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port['port']}{outside}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or NONE


def endpoint_addresses(endpoints: Object) -> str:
    found = []
    for subset in at(endpoints, "subsets", []):
        addresses = [str(each["ip"]) for each in subset.get("addresses") or []]
        ports = subset.get("ports") or []
        found += [f"{each}:{port['port']}" for port in ports for each in addresses] if ports else addresses
    return few(found)


def slice_ports(content: Object) -> str:
    return few([str(port.get("port", "*")) for port in content.get("ports") or []] or [UNSET])


def slice_addresses(content: Object) -> str:
    found = [address for each in content.get("endpoints") or [] for address in each.get("addresses") or []]
    return few(found or [UNSET])


def request_condition(request: Object) -> str:
    kinds_ = [each["type"] for each in at(request, "status.conditions", [])]
    words = [kind for kind in ("Approved", "Denied", "Failed") if kind in kinds_] or ["Pending"]
    if at(request, "status.certificate"):
        words.append("Issued")
    return ",".join(words)


def requested_duration(request: Object) -> str:
    seconds = at(request, "spec.expirationSeconds")
    return tables.duration(seconds) if seconds else NONE


def event_seen(event: Object) -> kinds.Since:
    last = at(event, "series.lastObservedTime") or at(event, "lastTimestamp")
    return kinds.Since(last) if last else event_first(event)


def event_first(event: Object) -> kinds.Since:
    return kinds.Since(at(event, "firstTimestamp") or at(event, "eventTime", ""))


def event_object(event: Object) -> str:
    kind, name = at(event, "involvedObject.kind", "").lower(), at(event, "involvedObject.name", "")
    return f"{kind}/{name}" if name else kind


def event_source(event: Object) -> str:
    who = at(event, "source.component") or at(event, "reportingComponent", "")
    where = at(event, "source.host") or at(event, "reportingInstance", "")
    return f"{who}, {where}" if where else who


def event_count(event: Object) -> object:
    return at(event, "series.count") or at(event, "count", 1)


def claim_status(content: Object) -> str:
    return "Terminating" if at(content, "metadata.deletionTimestamp") else str(at(content, "status.phase", ""))


def claim_capacity(claim: Object) -> str:
    return str(at(claim, "status.capacity.storage", "")) if at(claim, "spec.volumeName") else ""


def volume_claim(volume: Object) -> str:
    claim = at(volume, "spec.claimRef", {})
    return f"{claim.get('namespace', '')}/{claim['name']}" if claim.get("name") else ""


def job_status(job: Object) -> str:
    for kind, word in (("Complete", "Complete"), ("Failed", "Failed")):
        if condition(job, kind) == "True":
            return word
    if at(job, "metadata.deletionTimestamp"):
        return "Terminating"
    return next((kind for kind in ("Suspended", "FailureTarget") if condition(job, kind) == "True"), "Running")


def job_completions(job: Object) -> str:
    done, wanted = at(job, "status.succeeded", 0), at(job, "spec.completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallel = at(job, "spec.parallelism", 0)
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def job_duration(job: Object) -> object:
    begun, done = at(job, "status.startTime"), at(job, "status.completionTime")
    if not begun:
        return ""
    if not done:
        return kinds.Since(begun)
    passed = datetime.datetime.fromisoformat(done) - datetime.datetime.fromisoformat(begun)
    return tables.duration(passed.total_seconds())


def last_schedule(job: Object) -> object:
    return since(job, "status.lastScheduleTime") if at(job, "status.lastScheduleTime") else NONE


def subjects(kind: str) -> Any:
    def find(binding: Object) -> str:
        found = [each for each in binding.get("subjects") or [] if each.get("kind") == kind]
        named = (
            f"{each.get('namespace')}/{each['name']}" if kind == "ServiceAccount" else each["name"] for each in found
        )
        return ", ".join(named)

    return find


def autoscaler_targets(content: Object) -> str:
    shown = []
    for metric in at(content, "spec.metrics", []):
        target = at(metric, "resource.target", {})
        wanted = target.get("averageUtilization")
        goal = f"{wanted}%" if wanted else str(target.get("averageValue") or target.get("value") or UNKNOWN)
        shown.append(f"{at(metric, 'resource.name', metric.get('type', ''))}: {UNKNOWN}/{goal}")
    return ", ".join(shown) or NONE


def quota(what: str) -> Any:
    """Of a quota, what is used of it: the limits, or everything else."""

    def find(content: Object) -> str:
        hard, used = at(content, "status.hard", {}), at(content, "status.used", {})
        names = [name for name in sorted(hard) if name.startswith("limits.") == (what == "limits")]
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return find


def ingress_hosts(ingress: Object) -> str:
    hosts = [rule["host"] for rule in at(ingress, "spec.rules", []) if rule.get("host")]
    return few(hosts) if hosts else "*"


def ingress_address(ingress: Object) -> str:
    return ",".join(
        str(each.get("ip") or each.get("hostname")) for each in at(ingress, "status.loadBalancer.ingress", [])
    )


def service_reference(content: Object) -> str:
    found = at(content, "spec.service", {})
    return f"{found.get('namespace')}/{found.get('name')}" if found else "Local"


def availability(content: Object) -> str:
    found = next((each for each in at(content, "status.conditions", []) if each["type"] == "Available"), None)
    if found is None:
        return "Unknown"
    return "True" if found["status"] == "True" else f"{found['status']} ({found.get('reason', '')})"


def controller(content: Object) -> str:
    owners = at(content, "metadata.ownerReferences", [])
    return next((f"{each['kind'].lower()}/{each['name']}" for each in owners if each.get("controller")), NONE)
