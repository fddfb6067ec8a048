"""What is counted, under the names that dashboards and alerts of OpenShift clusters know.

Everything is in one registry, `REGISTRY`, that `serving` prints. What can be read off the objects themselves (how many
there are, in which phase) is not kept in step by anybody: `follow` reads it from the caches when it is asked for.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import prometheus_client
from prometheus_client import metrics_core, registry

REGISTRY = prometheus_client.CollectorRegistry()

_PHASE_BUCKETS = (5, 10, 20, 30, 60, 90, 120, 180, 240, 300, 360, 480, 600)
_CALL_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300)

Objects = Callable[[], Sequence[Mapping[str, Any]]]


class Failures(registry.Collector):
    """A counter whose name does not end in _total, as prometheus_client would have it: alerts know the name without."""

    def __init__(self, name: str, words: str, labels: Sequence[str]) -> None:
        self._name = name
        self._words = words
        self._labels = tuple(labels)
        self._counter = prometheus_client.Counter(name, words, self._labels, registry=None)
        REGISTRY.register(self)

    def labels(self, *values: str, **named: str) -> prometheus_client.Counter:
        return self._counter.labels(*values, **named)

    def forget(self, *values: str) -> None:
        """Of something that is gone."""
        self._counter.remove(*values)

    def collect(self) -> Iterable[metrics_core.Metric]:
        shown = metrics_core.Metric(self._name, self._words, "unknown")
        for metric in self._counter.collect():
            for sample in metric.samples:
                if sample.name == f"{self._name}_total":
                    shown.add_sample(self._name, sample.labels, sample.value)
        yield shown


_INSTANCE = ("name", "namespace", "reason")
CREATE_FAILED = Failures("mapi_instance_create_failed", "Instances that could not be created.", _INSTANCE)
UPDATE_FAILED = Failures("mapi_instance_update_failed", "Instances that could not be updated.", _INSTANCE)
DELETE_FAILED = Failures("mapi_instance_delete_failed", "Instances that could not be deleted.", _INSTANCE)

PHASE_TRANSITION = prometheus_client.Histogram(
    "mapi_machine_phase_transition_seconds",
    "Seconds from the creation of a Machine to its entry into a phase.",
    ["phase"],
    buckets=_PHASE_BUCKETS,
    registry=REGISTRY,
)
NODES_COVERED = prometheus_client.Gauge(
    "mapi_machinehealthcheck_nodes_covered",
    "Nodes that a MachineHealthCheck looks after.",
    ["name", "namespace"],
    registry=REGISTRY,
)
REMEDIATIONS = prometheus_client.Counter(
    "mapi_machinehealthcheck_remediation_success_total",
    "Machines that a MachineHealthCheck had replaced.",
    ["name", "namespace"],
    registry=REGISTRY,
)
SHORT_CIRCUIT = prometheus_client.Gauge(
    "mapi_machinehealthcheck_short_circuit",
    "Whether a MachineHealthCheck does nothing, as too many machines are unhealthy.",
    ["name", "namespace"],
    registry=REGISTRY,
)

CALLS = prometheus_client.Counter(
    "rest_client_requests_total",
    "Calls of the Kubernetes API; the code is broken where there was no answer.",
    ["method", "code"],
    registry=REGISTRY,
)
DEPTH = prometheus_client.Gauge("workqueue_depth", "Keys that wait for a worker.", ["name"], registry=REGISTRY)
QUEUED = prometheus_client.Histogram(
    "workqueue_queue_duration_seconds",
    "Seconds that a key waited for a worker.",
    ["name"],
    buckets=_CALL_BUCKETS,
    registry=REGISTRY,
)
RECONCILES = prometheus_client.Counter(
    "controller_runtime_reconcile_total",
    "Reconciliations, by how they ended: success, requeue_after or error.",
    ["controller", "result"],
    registry=REGISTRY,
)
RECONCILE_SECONDS = prometheus_client.Histogram(
    "controller_runtime_reconcile_time_seconds",
    "Seconds that a reconciliation took.",
    ["controller"],
    buckets=_CALL_BUCKETS,
    registry=REGISTRY,
)
RELISTS = prometheus_client.Counter(
    "moorage_informer_lists_total", "How often all objects of a kind were listed.", ["kind"], registry=REGISTRY
)
LEADING = prometheus_client.Gauge(
    "leader_election_master_status", "Whether this process leads.", ["name"], registry=REGISTRY
)

prometheus_client.ProcessCollector(registry=REGISTRY)


def text() -> bytes:
    """All of it, as a scraper reads it."""
    return prometheus_client.generate_latest(REGISTRY)


def follow(machines: Objects, machine_sets: Objects) -> Callable[[], None]:
    """Show what these caches hold from now on; what is returned ends that."""
    collector = _Caches(machines, machine_sets)
    REGISTRY.register(collector)
    return lambda: REGISTRY.unregister(collector)


class _Caches(registry.Collector):
    def __init__(self, machines: Objects, machine_sets: Objects) -> None:
        self._machines = machines
        self._machine_sets = machine_sets

    def describe(self) -> Iterable[metrics_core.Metric]:
        """Nothing, or registering would collect before the caches are full."""
        return ()

    def collect(self) -> Iterable[metrics_core.Metric]:
        yield from _of_machines(self._machines())
        yield from _of_machine_sets(self._machine_sets())


def _of_machines(machines: Sequence[Mapping[str, Any]]) -> Iterable[metrics_core.Metric]:
    yield _gauge("mapi_machine_items", "Machines there are.", value=len(machines))
    labels = ("name", "namespace", "spec_provider_id", "node", "api_version", "phase")
    created = _gauge("mapi_machine_created_timestamp_seconds", "When a Machine was created.", labels)
    for machine in machines:
        status = machine.get("status") or {}
        if not status.get("phase"):
            continue
        meta, spec = machine["metadata"], machine.get("spec") or {}
        node = (status.get("nodeRef") or {}).get("name", "")
        place = [meta["name"], meta["namespace"], spec.get("providerID") or "", node]
        created.add_metric([*place, machine["apiVersion"], status["phase"]], _unix(meta["creationTimestamp"]))
    yield created


def _of_machine_sets(machine_sets: Sequence[Mapping[str, Any]]) -> Iterable[metrics_core.Metric]:
    yield _gauge("mapi_machineset_items", "MachineSets there are.", value=len(machine_sets))
    labels = ("name", "namespace")
    words = "When a MachineSet was created."
    created = _gauge("mapi_machineset_created_timestamp_seconds", words, (*labels, "api_version"))
    name = "mapi_machine_set_status_replicas"
    counts = {
        "replicas": _gauge(name, "Machines of a MachineSet.", labels),
        "readyReplicas": _gauge(f"{name}_ready", "Machines of a MachineSet whose nodes are ready.", labels),
        "availableReplicas": _gauge(f"{name}_available", "Machines of a MachineSet ready for long enough.", labels),
    }
    for each in machine_sets:
        meta, status = each["metadata"], each.get("status") or {}
        place = [meta["name"], meta["namespace"]]
        created.add_metric([*place, each["apiVersion"]], _unix(meta["creationTimestamp"]))
        for field, gauge in counts.items():
            gauge.add_metric(place, status.get(field) or 0)
    yield created
    yield from counts.values()


def _gauge(
    name: str, words: str, labels: Sequence[str] = (), value: float | None = None
) -> metrics_core.GaugeMetricFamily:
    return metrics_core.GaugeMetricFamily(name, words, value=value, labels=labels if value is None else None)


def _unix(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment).timestamp()
