"""What a running cluster suffers and survives: lost machines, cut lines, drains, and an API that misbehaves on order.

One cluster is brought up for all stories; each begins when all of its nodes are Ready, and leaves it so.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.client
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from moorage.assets import keys, store
from moorage.cli import demo_requests
from moorage.lab import client
from tests import conftest
from tests.lab import admission, rack

SPEED = 200.0
WORKERS = ("worker-0", "worker-1", "worker-2")
MASTERS = ("master-0", "master-1", "master-2")
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ROUTERS = "/api/v1/namespaces/openshift-ingress/pods"
AWAY = (OSError, http.client.HTTPException, ValueError)
Object = dict[str, Any]


@dataclasses.dataclass
class Scene:
    """The cluster as its administrator sees it."""

    rack: rack.Rack
    kubeconfig: Path
    strange: tuple[str, ...]

    def ask(self, method: str, path: str, body: object = None) -> Object:
        return demo_requests.asked(self.kubeconfig, method, path, body)

    def look(self, path: str) -> Object:
        """What is there, or nothing while the API does not answer."""
        with contextlib.suppress(*AWAY):
            return self.ask("GET", path)
        return {}

    def ready(self, node: str) -> str:
        conditions = self.look(f"/api/v1/nodes/{node}").get("status", {}).get("conditions", [])
        return next((each["status"] for each in conditions if each["type"] == "Ready"), "")

    def all_ready(self) -> bool:
        return all(self.ready(name) == "True" for name in (*MASTERS, *WORKERS))

    def routers(self) -> set[str]:
        """The nodes on which routers are ready, and not about to leave."""
        return {
            pod["spec"].get("nodeName", "")
            for pod in self.look(ROUTERS).get("items", [])
            if not pod["metadata"].get("deletionTimestamp")
            and any(e["type"] == "Ready" and e["status"] == "True" for e in pod["status"].get("conditions", []))
        }

    def taints(self, node: str) -> set[str]:
        return {each["key"] for each in self.look(f"/api/v1/nodes/{node}").get("spec", {}).get("taints", [])}

    def until(self, true: Callable[[], object], what: str) -> None:
        self.rack.until(true, what, patience=90)

    def kubectl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.kubeconfig.parent)}
        return subprocess.run(
            ["kubectl", *words], env=environ, check=check, capture_output=True, text=True, timeout=120
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, keyring: keys.Keyring) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("faults")
    assets = folder / "cluster"
    assets.mkdir()
    (assets / "install-config.yaml").write_text(conftest.INSTALL_CONFIG)
    with store.opened(assets) as opened:
        opened.commit(store.State(kept={"keyring": keyring.to_state()}), {})
    conftest.make(assets)
    with rack.unhurried_lab(folder / "lab", SPEED) as lab:
        machines = rack.Rack(lab, assets, workers=3)
        machines.power_on()
        machines.until(machines.serves, "an API server")
        kubeconfig = folder / "kubeconfig"
        machines.until(lambda: _written(lab, kubeconfig), "a kubeconfig")
        strange = _strange_requests(machines, kubeconfig, folder)
        _install(machines, kubeconfig)
        yield Scene(machines, kubeconfig, strange)


def _written(lab: client.Lab, path: Path) -> bool:
    with contextlib.suppress(client.LabProblem):
        path.write_text(lab.control("GET", "/lab/kubeconfig"))
        return True
    return False


def _install(machines: rack.Rack, kubeconfig: Path) -> None:
    over = threading.Event()
    letting_in = threading.Thread(target=admission.approve, args=(kubeconfig, WORKERS, over))
    letting_in.start()
    try:
        ended = machines.moorage("wait-for", "bootstrap-complete")
        assert ended.returncode == 0, f"{ended.stderr}\n{machines.consoles()}"
        machines.balance(bootstrap=False)
        machines.plain.delete_machine("bootstrap")
        machines.addresses.pop("bootstrap")
        ended = machines.moorage("wait-for", "install-complete")
        assert ended.returncode == 0, f"{ended.stderr}\n{machines.consoles()}"
    finally:
        over.set()
        letting_in.join()


def _strange_requests(machines: rack.Rack, admin: Path, folder: Path) -> tuple[str, ...]:
    """Ask while the bootstrap still approves: as a machine for what is no node's, and as nobody's node for its own."""
    found: dict[str, bytes] = {}
    rack.edit_bootstrap(machines.assets, lambda files: found.update(files) or {})
    document = yaml.safe_load(found["auth/kubeconfig-kubelet"])
    leads = yaml.safe_load(admin.read_text())["clusters"][0]["cluster"]["server"]
    document["clusters"][0]["cluster"] |= {"server": leads, "tls-server-name": f"api-int.{rack.DOMAIN}"}
    machine = folder / "kubeconfig-kubelet"
    machine.write_text(yaml.safe_dump(document))
    asked = (
        (machine, "system:admin", "kubernetes.io/kube-apiserver-client-kubelet", "client auth"),
        (admin, "system:node:worker-9", "kubernetes.io/kubelet-serving", "server auth"),
    )
    names = []
    for path, subject, signer, usage in asked:
        content = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "strange-"},
            "spec": {"request": _request(subject), "signerName": signer, "usages": ["digital signature", usage]},
        }
        answers: list[Object] = []
        machines.until(lambda: _made(path, content, answers), f"a request for {subject}")  # noqa: B023
        names.append(str(answers[-1]["metadata"]["name"]))
    return tuple(names)


def _made(path: Path, content: Object, answers: list[Object]) -> bool:
    with contextlib.suppress(*AWAY):
        answers.append(demo_requests.asked(path, "POST", REQUESTS, content))
        return answers[-1].get("kind") == "CertificateSigningRequest"
    return False


def _request(name: str) -> str:
    subject = x509.Name(
        [
            x509.NameAttribute(oid.NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(oid.NameOID.COMMON_NAME, name),
        ]
    )
    alternatives = x509.SubjectAlternativeName([x509.DNSName("worker-9")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if name != "system:admin":
        builder = builder.add_extension(alternatives, critical=False)
    made = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


@pytest.fixture
def scene(cluster: Scene) -> Iterator[Scene]:
    """The cluster, at its best before and after."""
    cluster.until(cluster.all_ready, "all nodes are Ready")
    yield cluster
    cluster.rack.lab.control("DELETE", "/lab/faults")
    for name in (*MASTERS, *WORKERS):
        cluster.rack.strike(name, "heal")
        cluster.rack.strike(name, "start")


def test_nobody_lets_strangers_in(scene: Scene) -> None:
    for name in scene.strange:
        request = scene.ask("GET", f"{REQUESTS}/{name}")
        assert not request.get("status", {}).get("conditions"), request
        assert not request.get("status", {}).get("certificate")
    # The way in was open to those who belong here.
    granted = [each for each in scene.ask("GET", REQUESTS)["items"] if each.get("status", {}).get("certificate")]
    assert len(granted) >= 2 * (len(MASTERS) + len(WORKERS))


@pytest.mark.needs("kubectl")
def test_kubectl_sees_a_cluster(scene: Scene) -> None:
    nodes = scene.kubectl("get", "nodes", "--no-headers").stdout.splitlines()
    assert {line.split()[0]: line.split()[1] for line in nodes} == dict.fromkeys((*MASTERS, *WORKERS), "Ready")

    operators = [line.split() for line in scene.kubectl("get", "co", "--no-headers").stdout.splitlines()]
    assert len(operators) > 30
    assert {tuple(words[2:5]) for words in operators} == {("True", "False", "False")}

    version = json.loads(scene.kubectl("get", "clusterversion", "version", "-o", "json").stdout)
    assert version["status"]["history"][0]["state"] == "Completed"
    assert version["status"]["desired"]["version"] in scene.kubectl("get", "clusterversion").stdout

    requests = scene.kubectl("get", "csr", "--no-headers").stdout
    assert "Approved,Issued" in requests
    assert requests.count("Pending") == len(scene.strange)


def test_a_worker_that_dies_is_missed_and_comes_back(scene: Scene) -> None:
    scene.rack.strike("worker-2", "kill")
    scene.until(lambda: scene.ready("worker-2") == "Unknown", "it is missed")
    scene.until(lambda: "node.kubernetes.io/unreachable" in scene.taints("worker-2"), "it is tainted")
    assert scene.ready("worker-1") == "True"

    scene.rack.strike("worker-2", "start")
    scene.until(lambda: scene.ready("worker-2") == "True", "it is back")
    scene.until(lambda: scene.taints("worker-2") == set(), "nothing is held against it")
    ours = [
        each
        for each in scene.ask("GET", REQUESTS)["items"]
        if each["spec"]["signerName"].endswith("client-kubelet") and admission.node_of(each) == "worker-2"
    ]
    assert len(ours) == 1, "its certificate outlived the power cut"


def test_a_worker_that_is_cut_off_is_missed_and_heard_again(scene: Scene) -> None:
    scene.rack.strike("worker-1", "partition")
    scene.until(lambda: scene.ready("worker-1") == "Unknown", "it is missed")

    scene.rack.strike("worker-1", "heal")
    scene.until(lambda: scene.ready("worker-1") == "True", "it is heard again")


def test_the_api_stays_while_one_master_reboots(scene: Scene) -> None:
    before = len(scene.ask("GET", "/api/v1/nodes")["items"])
    scene.rack.strike("master-0", "reboot")

    def up() -> bool:
        # Whoever asked the master that went may have to ask once more; nobody has to wait for it to come back.
        assert scene.look("/api/v1/nodes") or scene.look("/api/v1/nodes") or scene.look("/api/v1/nodes")
        services = {each["name"]: each["services"] for each in scene.rack.lab.control("GET", "/lab")["machines"]}
        return "kube-apiserver" in services["master-0"]

    scene.until(up, "its API server is back")
    assert len(scene.ask("GET", "/api/v1/nodes")["items"]) == before
    scene.until(lambda: scene.ready("master-0") == "True", "its node is back")


def test_without_two_of_three_masters_there_is_nothing_to_answer_with(scene: Scene) -> None:
    alone = scene.kubeconfig.with_name("kubeconfig-master-2")
    document = yaml.safe_load(scene.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://{scene.rack.addresses['master-2']}:6443"
    alone.write_text(yaml.safe_dump(document))
    for name in ("master-0", "master-1"):
        scene.rack.strike(name, "kill")

    with pytest.raises(demo_requests.Refused, match="etcdserver: request timed out"):
        demo_requests.asked(alone, "GET", "/api/v1/nodes")
    assert scene.rack.lab.control("GET", "/lab")["clusters"][0]["state"] == "no API"
    scene.until(lambda: scene.look("/api/v1/nodes").get("kind") != "NodeList", "the balancer has nobody either")

    scene.rack.strike("master-0", "start")
    scene.until(lambda: scene.look("/api/v1/nodes").get("kind") == "NodeList", "two are enough")
    scene.rack.strike("master-1", "start")
    scene.until(scene.all_ready, "all is well again")


@pytest.mark.needs("kubectl")
def test_a_drain_moves_the_router_and_minds_the_budget(scene: Scene) -> None:
    scene.until(lambda: len(scene.routers()) == 2, "two routers")
    node = min(scene.routers())
    [free] = set(WORKERS) - scene.routers()
    labels = {"app": "sailor"}
    pod = {
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "sailor", "image": "example.com/sailor"}],
        },
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    app = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "sailor"}, "spec": spec}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "sailor"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    }
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    scene.ask("POST", deployments, app)
    scene.ask("POST", budgets, budget)
    healthy = f"{budgets}/sailor"
    scene.until(lambda: scene.look(healthy).get("status", {}).get("currentHealthy") == 1, "it runs under its budget")
    try:
        drain = ("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force")
        refused = scene.kubectl(*drain, "--timeout=4s", check=False)
        assert refused.returncode != 0
        assert "would violate the pod's disruption budget" in refused.stderr + refused.stdout

        scene.ask("DELETE", healthy)
        scene.kubectl(*drain, "--timeout=60s")
        left = scene.ask("GET", "/api/v1/namespaces/default/pods")["items"]
        assert all(each["spec"].get("nodeName") != node for each in left)
        scene.until(lambda: free in scene.routers() and node not in scene.routers(), "the router has moved")
    finally:
        scene.kubectl("uncordon", node)
        scene.ask("DELETE", f"{deployments}/sailor")


def test_a_wait_goes_on_while_the_api_fails_on_order(scene: Scene) -> None:
    scene.until(lambda: scene.rack.lab.control("GET", "/lab")["clusters"][0]["state"] == "installed", "it is installed")
    rule = {
        "action": "fail",
        "service": f"kube/{rack.DOMAIN}",
        "method": "GET",
        "path": "/apis/config.openshift.io/v1/clusterversions/version",
        "nth": 1,
        "remaining": 3,
        "status": 503,
    }
    scene.rack.lab.control("POST", "/lab/faults", rule)

    ended = scene.rack.moorage("wait-for", "install-complete")

    assert ended.returncode == 0, ended.stderr
    assert "the API answers 503 Service Unavailable" in ended.stderr
    struck = [
        call
        for call in scene.rack.lab.control("GET", f"/lab/calls?service=kube/{rack.DOMAIN}&path={rule['path']}")
        if call["status"] == 503
    ]
    assert len(struck) == 3
