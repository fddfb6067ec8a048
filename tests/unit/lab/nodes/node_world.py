"""A small cluster for stories about nodes: one machine serves its API, others have a kubelet's files on their disks.

Nothing is rendered or fetched: a machine's disk is written by hand, so that a story can spoil any of its files. Time
flies, and those who must not be faster than real seconds are told that those are short.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import datetime
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from moorage.engine import clock as clocks
from moorage.lab import names
from moorage.lab import site as sites
from moorage.lab.kube import certificates, options
from moorage.lab.nodes import cluster as clusters
from moorage.lab.nodes import (
    credentials,
    disk,
    etcd,
    facts,
    ignition,
    instance,
    kubelet,
    lifecycle,
    pacing,
    renders,
    static_pods,
)

Object = dict[str, Any]

SPEED = 200.0
# Real seconds, on a computer that has much else to do.
PATIENCE = 60.0
DAY = credentials.DAY
DOMAIN = "harbour.example.com"
API_INT = f"api-int.{DOMAIN}"
BOOTSTRAPPER, BOOTSTRAPPERS = "machine-config-server", "system:bootstrappers"
ABOUT = facts.Facts(
    domain=DOMAIN,
    infra_id="harbour-abcde",
    api_url=f"https://api.{DOMAIN}:6443",
    api_int_url=f"https://{API_INT}:6443",
    topology="HighlyAvailable",
    service_network="172.30.0.0/16",
    control_plane_replicas=1,
)
SERVERS = credentials.authority("loadbalancer-serving-signer", 100 * DAY)
KUBELETS = credentials.authority("kubelet-signer", 10 * DAY)
STRANGERS = credentials.authority("somebody else's signer", 10 * DAY)
KEY, PUBLIC = credentials.fresh_key()
FLAGS = {
    "master": "--node-labels=node-role.kubernetes.io/control-plane,node-role.kubernetes.io/master "
    "--register-with-taints=node-role.kubernetes.io/master=:NoSchedule --cloud-provider=",
    "worker": "--node-labels=node-role.kubernetes.io/worker --cloud-provider=",
}


def signed(
    signer: credentials.Pair, name: str, *groups: str, age: float = 0.0, life: datetime.timedelta = DAY
) -> credentials.Pair:
    """A client's certificate, of whose life the part ``age`` is over."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = serialization.load_pem_private_key(signer.key.encode(), None)
    begin = credentials.now() - life * age - datetime.timedelta(seconds=1)
    parts = [x509.NameAttribute(oid.NameOID.ORGANIZATION_NAME, group) for group in groups]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([*parts, x509.NameAttribute(oid.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.load_pem_x509_certificate(signer.certificate.encode()).subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + life)
        .add_extension(x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(private, hashes.SHA256())  # type: ignore[arg-type]
    )
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return credentials.Pair(certificate.public_bytes(serialization.Encoding.PEM).decode(), text.decode())


def kubeconfig(pair: credentials.Pair, *, host: str = API_INT, authority: str = SERVERS.certificate) -> bytes:
    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    cluster = {"server": f"https://{host}:6443", "certificate-authority-data": encoded(authority)}
    user = {"client-certificate-data": encoded(pair.certificate), "client-key-data": encoded(pair.key)}
    document = {
        "clusters": [{"name": "local", "cluster": cluster}],
        "users": [{"name": "kubelet", "user": user}],
        "contexts": [{"name": "kubelet", "context": {"cluster": "local", "user": "kubelet"}}],
        "current-context": "kubelet",
    }
    return yaml.safe_dump(document).encode()


BOOTSTRAP_KUBECONFIG = kubeconfig(signed(KUBELETS, BOOTSTRAPPER, BOOTSTRAPPERS))


def written(flags: str, files: dict[str, bytes]) -> ignition.Provisioned:
    unit = ignition.Unit("kubelet.service", f"ExecStart=/usr/bin/kubelet \\\n {flags} --v=2\n", enabled=True)
    found = {path: disk.File(content) for path, content in files.items()}
    return ignition.Provisioned(found, {}, {}, {"kubelet.service": unit}, {})


@dataclasses.dataclass
class World:
    """The cluster, and what its administrator does."""

    site: sites.Site
    cluster: clusters.Cluster
    server: instance.Instance

    @property
    def clock(self) -> clocks.Clock:
        return self.site.clock

    def machine(self, name: str, role: str = "worker", flags: str = "", **files: bytes) -> instance.Instance:
        """A machine with a kubelet's files; ``files`` are given by the last part of their path."""
        made = instance.Instance(self.site, name, b"", boot_seconds=1.0)
        told = {"machineconfiguration.openshift.io/currentConfig": f"rendered-{role}-0123"}
        content = {
            kubelet.BOOTSTRAP_KUBECONFIG: files.pop("kubeconfig", BOOTSTRAP_KUBECONFIG),
            "/etc/machine-config-daemon/node-annotations.json": json.dumps(told).encode(),
            **{f"/etc/kubernetes/manifests/{name}.yaml": text for name, text in files.items()},
        }
        made.provisioned = written(flags or FLAGS[role], content)
        return made

    def find(self, kind: str, name: str, namespace: str = "", group: str = "") -> Object | None:
        return self.cluster.find(group, kind, namespace, name)

    def node(self, name: str) -> Object:
        found = self.find("Node", name)
        assert found is not None, f"there is no Node {name}"
        return found

    def lease(self, name: str) -> Object:
        return self.find("Lease", name, "kube-node-lease", "coordination.k8s.io") or {}

    def condition(self, name: str, kind: str = "Ready") -> Object:
        found = (self.find("Node", name) or {}).get("status", {}).get("conditions", [])
        return next((each for each in found if each["type"] == kind), {})

    def ready(self, name: str) -> bool:
        return self.condition(name).get("status") == "True"

    def taints(self, name: str) -> list[tuple[str, str]]:
        return [(each["key"], each["effect"]) for each in self.node(name)["spec"].get("taints", [])]

    def requests(self, node: str, signer: str = certificates.KUBELET_CLIENT) -> list[Object]:
        """The requests that a node has made of a signer, oldest first."""
        kind = self.cluster.api.kind("certificates.k8s.io", "CertificateSigningRequest")
        found = [
            entry.object
            for entry in self.cluster.api.entries(kind)
            if entry.object["spec"]["signerName"] == signer
            and certificates.common_name(certificates.parsed(entry.object["spec"]["request"])) == f"system:node:{node}"
        ]
        return sorted(found, key=lambda request: int(request["metadata"]["resourceVersion"]))

    def decide(self, request: Object, kind: str = "Approved", message: str = "") -> None:
        def edit(content: Object) -> None:
            condition = {"type": kind, "status": "True", "reason": "ByHand", "message": message}
            content.setdefault("status", {}).setdefault("conditions", []).append(condition)

        self.cluster.change("certificates.k8s.io", "CertificateSigningRequest", "", request["metadata"]["name"], edit)

    def approve_all(self, *nodes: str) -> None:
        for node in nodes:
            for signer in (certificates.KUBELET_CLIENT, certificates.KUBELET_SERVING):
                for request in self.requests(node, signer):
                    if not (request.get("status") or {}).get("conditions"):
                        self.decide(request)

    def pod(self, name: str, node: str = "", **spec: Any) -> None:
        content = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {}), **spec}
        meta = {"name": name, "namespace": "default"}
        self.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": content})

    def delete(self, kind: str, name: str, namespace: str = "", grace: int | None = None) -> None:
        found = self.cluster.api.kind("", kind)
        self.cluster.api.delete(found, namespace, name, options.DeleteOptions(grace_seconds=grace))

    async def until(self, true: Callable[[], object], what: str) -> None:
        await until(true, what)

    async def joined(self, *machines: instance.Instance) -> None:
        """Switch machines on and let them in, until their Nodes are Ready."""
        names_ = [machine.name for machine in machines]
        for machine in machines:
            await machine.power_on()

        def all_ready() -> bool:
            self.approve_all(*names_)
            return all(self.ready(name) for name in names_)

        await until(all_ready, f"{', '.join(names_)} are Ready")


async def until(true: Callable[[], object], what: str) -> None:
    """Wait for something to become true, for as long as a slow computer may need."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while not true():
                await asyncio.sleep(0.01)
            return
    raise AssertionError(f"never: {what}")


@contextlib.contextmanager
def short_seconds() -> Iterator[None]:
    """Let those who never do something faster than real seconds do it much faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pacing, "_FASTEST_HEARTBEAT", 0.05)
        patch.setattr(kubelet, "_FASTEST_RETRY", 0.01)
        patch.setattr(kubelet, "_FASTEST_LOOK", 0.1)
        patch.setattr(lifecycle, "_FASTEST_LOOK", 0.02)
        yield


@contextlib.asynccontextmanager
async def world(about: facts.Facts = ABOUT, *, signer: bool = True) -> AsyncIterator[World]:
    """A cluster whose API is served; ``signer``: somebody signs what is approved, and renewals are approved."""
    site = sites.Site(clocks.Clock(SPEED))
    await site.start()
    shown = credentials.serving(SERVERS, "api", [API_INT, f"api.{DOMAIN}"], DAY)
    material = renders.ControlPlane(
        serving=(shown,),
        client_authorities=KUBELETS.certificate,
        server_authorities=SERVERS.certificate,
        csr_signer=KUBELETS,
        token_keys=(PUBLIC,),
        token_signing_key=KEY,
        admin_kubeconfig="",
    )
    found = clusters.Cluster(site, about, material)
    server = instance.Instance(site, "bootstrap", b"")
    server.state = instance.RUNNING
    found.bootstrap = server
    found.etcd.add(etcd.BOOTSTRAP, server)
    for component in (static_pods.ETCD, static_pods.API_SERVER):
        static_pods.place(component, server)
        await found.run(component, server)
    found.put(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "bootstrappers"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:node-bootstrapper",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": BOOTSTRAPPERS}],
        }
    )
    site.zones.hold(DOMAIN)
    site.zones.put(names.RecordSet(API_INT, "A", (server.address,)))
    if signer:
        for controller in (
            certificates.Signer(found.api, KUBELETS.certificate, KUBELETS.key, DAY.total_seconds()),
            certificates.Approver(found.api),
        ):
            found.spawn(controller.run(), type(controller).__name__)
    try:
        with short_seconds():
            yield World(site, found, server)
    finally:
        for machine in list(site.instances.values()):
            await machine.delete()
        await found.stop()
        await site.stop()


def story(tell: Callable[[World], Awaitable[None]], *, signer: bool = True) -> None:
    async def told() -> None:
        async with world(signer=signer) as found:
            await tell(found)

    asyncio.run(told())
