"""The parts of a control plane that run as static pods: what they are called, where they live, and how they are shown.

A static pod is a file in the machine's manifests folder. While that is there and the machine is up, the pod runs: as a
service on the machine's wire, which goes and comes back with the power and the network line.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from moorage.lab.nodes import instance

Object = dict[str, Any]

MANIFESTS = "/etc/kubernetes/manifests"


@dataclasses.dataclass(frozen=True)
class Component:
    """One part: ``service`` on the machine, pods called ``pod`` in a namespace, rolled out by the operator ``kind``."""

    service: str
    namespace: str
    pod: str
    kind: str = ""
    #: Cloud seconds from the decision to the running pod: an installer pod, images, the start itself.
    install_seconds: float = 60.0
    #: Cloud seconds until it runs after its machine has come up.
    start_seconds: float = 15.0

    @property
    def path(self) -> str:
        return f"{MANIFESTS}/{self.service}-pod.yaml"

    def pod_name(self, node: str) -> str:
        return f"{self.pod}-{node}"


ETCD = Component("etcd", "openshift-etcd", "etcd", "Etcd", 90.0)
API_SERVER = Component("kube-apiserver", "openshift-kube-apiserver", "kube-apiserver", "KubeAPIServer", 120.0, 30.0)
CONTROLLER_MANAGER = Component(
    "kube-controller-manager",
    "openshift-kube-controller-manager",
    "kube-controller-manager",
    "KubeControllerManager",
)
SCHEDULER = Component(
    "openshift-kube-scheduler", "openshift-kube-scheduler", "openshift-kube-scheduler", "KubeScheduler", 45.0
)
MACHINE_CONFIG_SERVER = Component(
    "machine-config-server", "openshift-machine-config-operator", "machine-config-server", install_seconds=45.0
)
CONTROL_PLANE = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, MACHINE_CONFIG_SERVER)


class Running:
    """A pod that nobody talks to in the lab: it is enough to know that it runs."""

    async def start(self) -> None:
        """Nothing has to be listened on."""

    async def stop(self) -> None:
        """Nothing is held."""


def place(component: Component, machine: instance.Instance, revision: int = 1) -> None:
    """Put the pod's file on the machine's disk; from now on it is to run there."""
    content = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"revision": str(revision)}}}
    machine.kept[component.path] = json.dumps(content).encode()


def placed(component: Component, machine: instance.Instance) -> bool:
    return component.path in machine.kept


def displace(component: Component, machine: instance.Instance) -> None:
    machine.kept.pop(component.path, None)


def runs(component: Component, machine: instance.Instance) -> bool:
    """Whether it runs and can be reached."""
    return machine.reachable and component.service in machine.wire.listening


def mirror(component: Component, node: str, address: str, *, ready: bool, since: str, uid: str = "") -> Object:
    """The Pod by which the API shows a static pod."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": component.pod_name(node),
            "namespace": component.namespace,
            "labels": {"app": component.pod, "revision": "1"},
            "annotations": {"kubernetes.io/config.source": "file", "kubernetes.io/config.mirror": component.service},
            **({"ownerReferences": [owner]} if uid else {}),
        },
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "priorityClassName": "system-node-critical",
            "priority": 2000001000,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": component.pod, "image": f"payload/{component.service}"}],
        },
        "status": status(component.pod, f"payload/{component.service}", address, ready=ready, since=since),
    }


def status(name: str, image: str, address: str, *, ready: bool, since: str) -> Object:
    """The status of a running pod with one container."""
    truth = str(ready)
    return {
        "phase": "Running",
        "hostIP": address,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": since,
        "conditions": [
            {"type": kind, "status": truth if kind.endswith("eady") else "True", "lastTransitionTime": since}
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [
            {
                "name": name,
                "image": image,
                "imageID": image,
                "ready": ready,
                "started": ready,
                "restartCount": 0,
                "state": {"running": {"startedAt": since}},
            }
        ],
    }


def is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
