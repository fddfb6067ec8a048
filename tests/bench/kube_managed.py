"""How long the bookkeeping of managed fields takes for the writes that a cluster makes all day.

A lease renewed by its holder and the 20 kB status of a node reported by its kubelet, each by the manager that has the
fields already; the best of several rounds, so that a busy machine does not tell against the code.
Run it as `python -m tests.bench.kube_managed`; exits 1 if slow.
"""

from __future__ import annotations

import json
import timeit
from collections.abc import Callable
from typing import Any

from moorage.lab.kube import apply, builtin_kinds, kinds, managed

NOW = "2024-05-01T00:00:00Z"
LATER = "2024-05-01T00:00:10Z"
LIMITS = {"lease renewed": 60.0, "node status reported": 400.0}
"""Microseconds that a write may take."""


def kind(name: str) -> kinds.Kind:
    return next(each for each in builtin_kinds.kinds() if each.name == name)


def lease(renewed: str) -> dict[str, Any]:
    spec = {"holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": renewed}
    meta = {"name": "n1", "namespace": "kube-node-lease", "uid": "1", "resourceVersion": "5"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def node(beat: str) -> dict[str, Any]:
    types = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    conditions = [
        {
            "type": each,
            "status": "True",
            "lastHeartbeatTime": beat,
            "lastTransitionTime": NOW,
            "reason": "r",
            "message": "m",
        }
        for each in types
    ]
    images = [
        {"names": [f"registry.example/{n}@sha256:{n:064x}", f"registry.example/{n}:1"], "sizeBytes": n}
        for n in range(130)
    ]
    resources = dict.fromkeys(("cpu", "memory", "pods", "ephemeral-storage", "hugepages-1Gi", "hugepages-2Mi"), "1")
    status = {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n1"}],
        "allocatable": resources,
        "capacity": resources,
        "conditions": conditions,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "images": images,
        "nodeInfo": dict.fromkeys(("architecture", "bootID", "kernelVersion", "kubeletVersion", "osImage"), "x"),
    }
    meta = {"name": "n1", "uid": "1", "labels": {"a": "1", "b": "2"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status}


def written(kind: kinds.Kind, make: Callable[[str], dict[str, Any]], subresource: str) -> Callable[[], None]:
    """A write to be timed; what is written comes from JSON, so that nothing of it is shared with what was before."""
    reset = managed.reset_fields(kind, subresource)

    def write(before: dict[str, Any] | None, after: dict[str, Any], time: str) -> None:
        managed.updated(kind.schema, before, after, "kubelet", subresource, time, kind.api_version, reset=reset)

    before = make(NOW)
    write(None, before, NOW)
    before = json.loads(json.dumps(before))
    after = json.loads(json.dumps({**make(LATER), "metadata": before["metadata"]}))
    sent = after["metadata"]["managedFields"]

    def again() -> None:
        after["metadata"]["managedFields"] = sent
        write(before, after, LATER)

    return again


def applied() -> Callable[[], None]:
    content = {**lease(NOW), "metadata": {"name": "n1"}}
    schema = kind("Lease").schema
    live = apply.apply(schema, None, content, "applier", False, "", NOW)

    def again() -> None:
        apply.apply(schema, live, content, "applier", False, "", LATER)

    return again


def microseconds(action: Callable[[], None]) -> float:
    return min(timeit.repeat(action, number=200, repeat=7)) / 200 * 1e6


def main() -> int:
    print(f"a node is {len(json.dumps(node(NOW)))} bytes")
    found = {
        "lease renewed": microseconds(written(kind("Lease"), lease, "")),
        "node status reported": microseconds(written(kind("Node"), node, "status")),
        "lease applied again": microseconds(applied()),
    }
    for what, took in found.items():
        print(f"{what:22} {took:7.1f} µs" + (f"  (at most {LIMITS[what]:.0f})" if what in LIMITS else ""))
    return int(any(found[what] > most for what, most in LIMITS.items()))


if __name__ == "__main__":
    raise SystemExit(main())
