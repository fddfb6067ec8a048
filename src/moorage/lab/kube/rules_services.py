"""Services at write time: the addresses and node ports that are given out to them, and kept.

A cluster has one network of service addresses. Addresses that nobody asked for come from beyond its first part, which
is left to services that name their own; what is given out is what the services in the store hold.
"""

from __future__ import annotations

import ipaddress
import itertools
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import problem, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

SERVICES = ("", "services")
DEFAULT_NETWORK: Network = ipaddress.IPv4Network("172.30.0.0/16")
_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")
NODE_PORTS = range(30000, 32768)

_networks: weakref.WeakKeyDictionary[apis.Api, Network] = weakref.WeakKeyDictionary()


def use_network(api: apis.Api, network: Network) -> None:
    """Give the services of this cluster addresses of ``network`` from now on."""
    _networks[api] = network


def network_of(api: apis.Api) -> Network:
    """Where the services of this cluster have their addresses."""
    return _networks.get(api, DEFAULT_NETWORK)


def create(api: apis.Api, content: Object) -> None:
    """A new service gets an address, and node ports if it is of a type that has them."""
    spec = content.setdefault("spec", {})
    if spec.get("type") != "ExternalName":
        _give_address(api, content)
        spec.setdefault("ipFamilies", [f"IPv{network_of(api).version}"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    _give_ports(api, content)
    content.setdefault("status", {}).setdefault("loadBalancer", {})


def _give_address(api: apis.Api, content: Object) -> None:
    spec = content["spec"]
    addresses = spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
    if not addresses:
        addresses = [_free_address(api)]
    elif addresses[0] != "None":
        _check_address(api, content, addresses[0])
    spec["clusterIP"], spec["clusterIPs"] = addresses[0], addresses


def _used_addresses(api: apis.Api) -> set[str]:
    return {entry.object["spec"].get("clusterIP", "") for entry in api.store.entries(SERVICES)}


def _free_address(api: apis.Api) -> str:
    network, used = network_of(api), _used_addresses(api)
    size = network.num_addresses
    reserved = min(max(16, size // 16), 256, size - 1)
    for offset in itertools.chain(range(reserved, size - 1), range(1, reserved)):
        address = str(network[offset])
        if address not in used:
            return address
    raise problem.internal("failed to allocate a serviceIP: range is full")


def _check_address(api: apis.Api, content: Object, address: str) -> None:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        parsed = None
    wrong = ""
    if parsed is None or parsed not in network_of(api):
        wrong = "the provided network does not match the current range"
    elif {address, str(parsed)} & _used_addresses(api):
        wrong = "provided IP is already allocated"
    if wrong:
        told = f'Invalid value: []string{{"{address}"}}: failed to allocate IP {address}: {wrong}'
        _refuse(content, told, "spec.clusterIPs")


def _refuse(content: Object, message: str, field: str) -> None:
    cause = problem.Cause("FieldValueInvalid", message, field)
    raise problem.invalid("", "Service", content["metadata"]["name"], [cause])


def _give_ports(api: apis.Api, content: Object) -> None:
    spec = content["spec"]
    if spec.get("type") not in _WITH_NODE_PORTS or spec.get("allocateLoadBalancerNodePorts") is False:
        return
    meta = content["metadata"]
    used = {
        port["nodePort"]
        for entry in api.store.entries(SERVICES)
        if (entry.object["metadata"]["namespace"], entry.object["metadata"]["name"])
        != (meta.get("namespace"), meta["name"])
        for port in entry.object["spec"].get("ports") or ()
        if port.get("nodePort")
    }
    free = (port for port in NODE_PORTS if port not in used)
    for index, port in enumerate(spec.get("ports") or ()):
        wanted = port.get("nodePort")
        if wanted in used:
            _refuse(
                content, f"Invalid value: {wanted}: provided port is already allocated", f"spec.ports[{index}].nodePort"
            )
        if not wanted:
            port["nodePort"] = wanted = next(free)
        used.add(wanted)


def update(api: apis.Api, before: Mapping[str, Any], after: Object, subresource: str | None) -> None:
    """An address stays what it is; a service that becomes reachable from outside gets its ports."""
    if subresource == "status":
        return
    spec, old = after.setdefault("spec", {}), before["spec"]
    if spec.get("type") == "ExternalName":
        return
    if old.get("clusterIP") and not spec.get("clusterIP"):
        spec["clusterIP"], spec["clusterIPs"] = old["clusterIP"], old["clusterIPs"]
    if old.get("clusterIP") and spec["clusterIP"] != old["clusterIP"]:
        message = f'Invalid value: []string{{"{spec["clusterIP"]}"}}: may not change once set'
        _refuse(after, message, "spec.clusterIPs[0]")
    if not spec.get("clusterIP"):
        _give_address(api, after)
    for field in ("ipFamilies", "ipFamilyPolicy"):
        if field in old:
            spec.setdefault(field, old[field])
    # Left out is not taken away: who writes a service again from its first manifest keeps its ports.
    known = {(port.get("protocol"), port["port"]): port.get("nodePort") for port in old.get("ports") or ()}
    if spec.get("type") in _WITH_NODE_PORTS:
        for port in spec.get("ports") or ():
            kept = known.get((port.get("protocol"), port["port"]))
            if kept:
                port.setdefault("nodePort", kept)
    _give_ports(api, after)
