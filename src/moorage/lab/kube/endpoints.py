"""The addresses behind services: the ready pods that a service selects, as Endpoints and as an EndpointSlice.

A service without a selector has endpoints that somebody else writes, as the API servers do for `default/kubernetes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import indexes, kinds, loop, problem, store, workloads

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

SERVICES: kinds.Key = ("", "services")
ENDPOINTS: kinds.Key = ("", "endpoints")
SLICES: kinds.Key = ("discovery.k8s.io", "endpointslices")

_PAUSE = 0.5
_SERVICE_NAME = "kubernetes.io/service-name"
_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"


def _selects(service: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    selector = service["spec"].get("selector") or {}
    return bool(selector) and selector.items() <= (pod["metadata"].get("labels") or {}).items()


def _port_of(port: Mapping[str, Any], pod: Mapping[str, Any]) -> int | None:
    """The number behind a service's port on this pod; None if the pod has no port of that name."""
    wanted = port.get("targetPort", port.get("port"))
    if isinstance(wanted, int):
        return wanted
    for container in pod["spec"].get("containers") or ():
        for each in container.get("ports") or ():
            if each.get("name") == wanted and each.get("protocol", "TCP") == port.get("protocol", "TCP"):
                return int(each["containerPort"])
    return None


class Endpoints:
    """Keeps the endpoints of every service with a selector."""

    def __init__(self, api: apis.Api) -> None:
        self._api = api
        self.loop: loop.Loop[store.Name] = loop.Loop(api, "endpoints", self._reconcile, self._all, pause=_PAUSE)
        self.loop.follow(SERVICES, lambda event: [event.name])
        self.loop.follow(indexes.PODS, self._of_pod)

    def _all(self) -> Iterable[store.Name]:
        return self._api.store.names(SERVICES)

    def _of_pod(self, event: store.Event) -> Iterable[store.Name]:
        if event.before is not None and event.type == store.MODIFIED and _seen(event.before) == _seen(event.entry):
            return
        for entry in self._api.store.entries(SERVICES, event.name[0]):
            before = event.before is not None and _selects(entry.object, event.before.object)
            if before or _selects(entry.object, event.entry.object):
                yield event.name[0], entry.object["metadata"]["name"]

    def _reconcile(self, name: store.Name) -> None:
        entry = self._api.store.get(SERVICES, name)
        if entry is None:
            self._forget(name)
            return
        service = entry.object
        if not service["spec"].get("selector") or service["metadata"].get("deletionTimestamp"):
            return
        pods = [
            each.object
            for each in self._api.store.entries(indexes.PODS, name[0])
            if _selects(service, each.object)
            and (each.object.get("status") or {}).get("podIP")
            and workloads.active(each.object)
        ]
        self._write_endpoints(service, pods)
        self._write_slice(service, pods)

    def _forget(self, name: store.Name) -> None:
        """Endpoints have no owner; a slice has, and goes with it."""
        if self._api.store.get(ENDPOINTS, name) is not None:
            try:
                self._api.delete(self._api.kind("", "Endpoints"), *name)
            except problem.Problem as refusal:
                if refusal.code != 404:
                    raise

    def _write_endpoints(self, service: Object, pods: list[Object]) -> None:
        groups: dict[tuple[Any, ...], tuple[list[Object], list[Object]]] = {}
        for pod in pods:
            ports = tuple(
                (port.get("name", ""), number, port.get("protocol", "TCP"))
                for port in service["spec"].get("ports") or ()
                if (number := _port_of(port, pod)) is not None
            )
            ready, waiting = groups.setdefault(ports, ([], []))
            serves = workloads.ready(pod) or service["spec"].get("publishNotReadyAddresses")
            (ready if serves else waiting).append(_address(pod))
        subsets = []
        for ports, (ready, waiting) in groups.items():
            subset: Object = {}
            if ready:
                subset["addresses"] = ready
            if waiting:
                subset["notReadyAddresses"] = waiting
            subset["ports"] = [
                {**({"name": label} if label else {}), "port": number, "protocol": protocol}
                for label, number, protocol in ports
            ]
            subsets.append(subset)
        meta = service["metadata"]
        wanted: Object = {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {
                "name": meta["name"],
                "namespace": meta["namespace"],
                "labels": dict(meta.get("labels") or {}),
            },
        }
        if subsets:
            wanted["subsets"] = subsets
        self._put(ENDPOINTS, wanted, "subsets")

    def _write_slice(self, service: Object, pods: list[Object]) -> None:
        if self._api.kinds.stored(*SLICES) is None:
            return
        meta = service["metadata"]
        ports = [
            {"name": port.get("name", ""), "port": number, "protocol": port.get("protocol", "TCP")}
            for port in service["spec"].get("ports") or ()
            if (number := next((found for pod in pods if (found := _port_of(port, pod)) is not None), None)) is not None
        ]
        wanted: Object = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                # One slice is enough here; a real one would begin another after a hundred addresses.
                "name": f"{meta['name']}-slice",
                "namespace": meta["namespace"],
                "labels": {
                    **(meta.get("labels") or {}),
                    _SERVICE_NAME: meta["name"],
                    _MANAGED_BY: "endpointslice-controller.k8s.io",
                },
                "ownerReferences": [workloads.reference(service)],
            },
            "addressType": "IPv4",
            "endpoints": [_endpoint(pod) for pod in pods],
            "ports": ports,
        }
        self._put(SLICES, wanted, "endpoints", "ports")

    def _put(self, key: kinds.Key, wanted: Object, *fields: str) -> None:
        meta = wanted["metadata"]
        known = self._api.store.get(key, (meta["namespace"], meta["name"]))
        if known is not None and all((known.object.get(each) or []) == (wanted.get(each) or []) for each in fields):
            return
        self._api.put(wanted)


def _target(pod: Mapping[str, Any]) -> Object:
    meta = pod["metadata"]
    return {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}


def _address(pod: Mapping[str, Any]) -> Object:
    made: Object = {"ip": pod["status"]["podIP"], "targetRef": _target(pod)}
    if pod["spec"].get("nodeName"):
        made["nodeName"] = pod["spec"]["nodeName"]
    return made


def _endpoint(pod: Mapping[str, Any]) -> Object:
    ready = workloads.ready(pod)
    made: Object = {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": ready, "serving": ready, "terminating": False},
        "targetRef": _target(pod),
    }
    if pod["spec"].get("nodeName"):
        made["nodeName"] = pod["spec"]["nodeName"]
    return made


def _seen(entry: store.Entry) -> tuple[Any, ...]:
    pod = entry.object
    return (
        pod["metadata"].get("labels"),
        pod["metadata"].get("deletionTimestamp"),
        (pod.get("status") or {}).get("podIP"),
        workloads.ready(pod),
    )
