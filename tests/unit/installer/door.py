"""A door to keep: a cluster's API in memory, a platform that tells of its machines, and machines that knock."""

from __future__ import annotations

import base64
import datetime
import ipaddress
from collections.abc import Mapping
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from moorage.engine import clock as clocks
from moorage.installer import approving, diagnosis
from moorage.machines import approval
from moorage.platforms import contract
from tests.unit.installer import memory_api

KEY = ec.generate_private_key(ec.SECP256R1())
MADE = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
#: The cluster's own clock is set quite differently from ours, as clocks are.
BIRTH = datetime.datetime(2025, 7, 1, 6, 0, 0, tzinfo=datetime.UTC)
WORKERS = ("berth-worker-0-aaaaa", "berth-worker-0-bbbbb")
UP = contract.Instance("1", "ovirt://1", "up", ready=True, addresses=("10.0.0.31",))


def machine(name: str) -> contract.Machine:
    return contract.Machine(name, "berth", "worker", {"cluster_id": "c"}, b"{}")


class Platform:
    """An actuator that only tells what there is; ``exists`` may be scripted to fail."""

    def __init__(self) -> None:
        self.instances: dict[str, contract.Instance | None] = dict.fromkeys(WORKERS, UP)
        self.troubles: dict[str, list[Exception]] = {}
        self.asked: list[str] = []

    def actuator(self, _around: contract.Surroundings) -> Any:
        return self

    def exists(self, machine: contract.Machine) -> contract.Instance | None:
        self.asked.append(machine.name)
        if self.troubles.get(machine.name):
            raise self.troubles[machine.name].pop(0)
        return self.instances.get(machine.name)


class Door:
    """A keeper, the API it watches, and the machines that knock."""

    def __init__(self, api: memory_api.MemoryApi) -> None:
        self.api = api
        self.platform = Platform()
        self.clock = clocks.ManualClock(wall=MADE + datetime.timedelta(minutes=30))
        self.told: list[str] = []
        self.keeper = self.arrive()
        api.put("/api/v1/namespaces/kube-system", {"metadata": {"creationTimestamp": _written(BIRTH)}})

    def arrive(self) -> approving.Doorkeeper:
        self.keeper = approving.Doorkeeper(
            [machine(name) for name in WORKERS],
            self.platform.actuator(self.around),
            memory_api.DIRECTORY,
            self.around,
            MADE,
            self.told.append,
        )
        return self.keeper

    @property
    def around(self) -> contract.Surroundings:
        return contract.Surroundings({}, self.clock, lambda _line: None)

    def knock(self, name: str, node: str, *, after: float = 1800.0, **changes: Any) -> None:
        """A new machine asks for its client certificate, so many seconds after the cluster's birth."""
        spec = {
            "username": approval.BOOTSTRAPPER,
            "groups": [
                "system:serviceaccounts:openshift-machine-config-operator",
                "system:serviceaccounts",
                "system:authenticated",
            ],
            "signerName": approval.CLIENT,
            "usages": ["digital signature", "client auth"],
        }
        self._ask(name, {**spec, "request": request_of(node), **changes}, after)

    def serve(self, name: str, node: str, address: str = "10.0.0.31") -> None:
        """A node asks for its serving certificate."""
        spec = {
            "username": f"system:node:{node}",
            "groups": ["system:nodes", "system:authenticated"],
            "signerName": approval.SERVING,
            "usages": ["digital signature", "server auth"],
        }
        self._ask(name, {**spec, "request": request_of(node, address)}, 1800.0)

    def register(self, node: str, *addresses: str) -> None:
        told = [{"type": "InternalIP", "address": each} for each in addresses]
        self.api.put(f"{diagnosis.NODES}/{node}", {"status": {"addresses": told}} if told else {})

    def _ask(self, name: str, spec: Mapping[str, Any], after: float) -> None:
        created = _written(BIRTH + datetime.timedelta(seconds=after))
        metadata = {"name": name, "creationTimestamp": created}
        self.api.put(f"{diagnosis.REQUESTS}/{name}", {"metadata": metadata, "spec": dict(spec)})


def _written(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def request_of(node: str, address: str = "") -> str:
    names = [
        x509.NameAttribute(oid.NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(oid.NameOID.COMMON_NAME, f"system:node:{node}"),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names))
    if address:
        alternatives = [x509.DNSName(node), x509.IPAddress(ipaddress.ip_address(address))]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return base64.b64encode(builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)).decode()
