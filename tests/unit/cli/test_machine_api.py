"""`moorage machine-api run` as a cluster runs it: as its service account, with the rights of its manifests, no more."""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.assets import machine_api_manifests, objects
from moorage.cli import cluster_access, main
from moorage.engine import clock as clocks
from moorage.installer import names
from moorage.lab.nodes import payload
from tests.kube import calls, cluster, embedded
from tests.unit.machines import test_approval as rules

SPACE, INFRA, WORKER = "openshift-machine-api", "berth-x7k2p", "berth-x7k2p-worker-0-q7xk2"
MACHINES = f"/apis/machine.openshift.io/v1beta1/namespaces/{SPACE}/machines"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SERVED = ("infrastructures", "machines.machine", "machinesets", "machinehealthchecks", "servicemonitors")
#: Real seconds for a story to come about on a busy machine.
PATIENCE = 40.0


def machine(name: str) -> dict[str, Any]:
    value = {"size": 1, "userDataSecret": {"name": "worker-user-data"}}
    labels = {"machine.openshift.io/cluster-api-cluster": INFRA}
    return {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "Machine",
        "metadata": {"name": name, "namespace": SPACE, "labels": labels},
        "spec": {"providerSpec": {"value": value}},
    }


class Harbour:
    """A cluster in the lab with all that the controllers read, and a folder that is the platform."""

    def __init__(self, made: cluster.Cluster, folder: Path) -> None:
        self.cluster = made
        self.admin = made.admin
        self.folder = folder
        folder.mkdir()
        self.lock("first")
        for definition in payload.definitions():
            if str(definition["metadata"]["name"]).startswith(SERVED):
                self.put("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        for space in (SPACE, "openshift-config-managed", "openshift-monitoring"):
            self.put("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
        calls.eventually(lambda: self.admin.get(MACHINES).code == 200, "Machines are served")
        self.settle_in()

    def settle_in(self) -> None:
        install_config = yaml.safe_dump({"platform": {"quay": {"api_vips": ["10.0.0.250"]}}})
        self.put(
            "/api/v1/namespaces/kube-system/configmaps",
            objects.config_map("kube-system", "cluster-config-v1", {"install-config": install_config}),
        )
        self.put(
            f"/api/v1/namespaces/{SPACE}/secrets", objects.secret(SPACE, "worker-user-data", {"userData": "{pointer}"})
        )
        self.put(
            "/api/v1/namespaces/kube-system/secrets",
            objects.secret("kube-system", "quay-credentials", {"password": "first"}),
        )
        kind = {"type": "External", "external": {"platformName": "quay"}}
        infrastructure = objects.cluster_config("Infrastructure", spec={"platformSpec": kind})
        self.put("/apis/config.openshift.io/v1/infrastructures", infrastructure)
        status = {"infrastructureName": INFRA, "platformStatus": {"type": "External"}, "platform": "External"}
        self.admin.patch("/apis/config.openshift.io/v1/infrastructures/cluster/status", {"status": status}).got()
        wanted = machine_api_manifests.Wanted("quay", "quay.example.com/moorage:1", "quay-credentials")
        for manifest in machine_api_manifests.manifests(wanted).values():
            self.put(_collection(manifest), manifest)

    def put(self, path: str, body: Any) -> None:
        self.admin.post(path, body).got(201)

    def ask(self) -> None:
        """A new machine asks for its first certificate, with the credentials that all new machines have."""
        self.let_bootstrap()
        self.bootstrapper().post(REQUESTS, asking()).got(201)

    def bootstrapper(self) -> calls.Caller:
        groups = [group for group in rules.NEW_MACHINE["groups"] if group != "system:authenticated"]
        return self.cluster.caller(rules.NEW_MACHINE["username"], groups)

    def let_bootstrap(self) -> None:
        """New machines may ask."""
        api, account = "rbac.authorization.k8s.io", rules.NEW_MACHINE["username"]
        self.put(
            f"/apis/{api}/v1/clusterrolebindings",
            {
                "apiVersion": f"{api}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "system-bootstrap-node-bootstrapper"},
                "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "system:node-bootstrapper"},
                "subjects": [{"apiGroup": api, "kind": "User", "name": account}],
            },
        )

    def lock(self, password: str) -> None:
        """The platform takes this password from now on."""
        (self.folder / "password").write_text(password)

    def machine(self, name: str = WORKER) -> dict[str, Any]:
        found: dict[str, Any] = self.admin.get(f"{MACHINES}/{name}").got()
        return found

    def phase(self, name: str = WORKER) -> str:
        return str(self.machine(name).get("status", {}).get("phase", ""))

    def instances(self) -> list[str]:
        return sorted(file.stem for file in self.folder.glob("*.json"))

    @contextlib.contextmanager
    def controllers(self, *words: str) -> Iterator[Controllers]:
        """The command, as the pod would run it."""
        account = f"system:serviceaccount:{SPACE}:{machine_api_manifests.NAME}"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{SPACE}")
        access = self.cluster.kubeconfig(account, groups)
        environ = {
            **os.environ,
            "MOORAGE_PLATFORMS": "quay=tests.unit.cli.quay",
            "MOORAGE_CLOCK_SPEED": "20",
            "QUAY_FOLDER": str(self.folder),
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "TMPDIR": str(self.cluster.folder),
        }
        command = [sys.executable, "-m", "moorage", "machine-api", "run", f"--kubeconfig={access}", *words]
        log = self.cluster.folder / "controllers.log"
        with log.open("w") as output:
            process = subprocess.Popen(command, env=environ, stdout=output, stderr=output)
            try:
                yield Controllers(process, log)
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()


class Controllers:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def eventually(self, look: Callable[[], Any], what: str) -> Any:
        def alive() -> Any:
            assert self.process.poll() is None, f"it has ended:\n{self.log}"
            return look()

        try:
            return calls.eventually(alive, what, PATIENCE)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.log}") from None


def _collection(manifest: Any) -> str:
    kind = str(manifest["kind"]).lower()
    plural = "networkpolicies" if kind == "networkpolicy" else f"{kind}s"
    api, space = str(manifest["apiVersion"]), manifest["metadata"].get("namespace")
    root = f"/apis/{api}" if "/" in api else f"/api/{api}"
    return f"{root}/namespaces/{space}/{plural}" if space else f"{root}/{plural}"


@pytest.fixture
def harbour(tmp_path: Path) -> Iterator[Harbour]:
    work = tmp_path / "cluster"
    work.mkdir()
    with embedded.running(work) as made:
        yield Harbour(made, tmp_path / "quay")


@pytest.mark.needs("kubectl")
def test_a_machine_becomes_a_node_and_goes_with_the_rights_of_the_manifests_alone(harbour: Harbour) -> None:
    with harbour.controllers("--metrics-address=127.0.0.1:0", "--log-level=debug") as running:
        # A machine is made, and asks to be let in.
        harbour.put(MACHINES, machine(WORKER))
        running.eventually(lambda: harbour.phase() == "Provisioned", "the machine has an instance")
        assert json.loads((harbour.folder / f"{WORKER}.json").read_text())["data"] == "{pointer}"
        harbour.ask()
        running.eventually(lambda: decided(harbour), "it is let in")
        # Its node registers, and is told who it is.
        harbour.put("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": WORKER}})
        running.eventually(lambda: harbour.phase() == "Running", "the machine is a node")
        node = running.eventually(
            lambda: (
                (found := harbour.admin.get(f"/api/v1/nodes/{WORKER}").got()).get("spec", {}).get("providerID")
                and found
            ),
            "the node knows its instance",
        )
        assert node["spec"]["providerID"] == f"quay://{WORKER}"
        assert node["metadata"]["annotations"]["machine.openshift.io/machine"] == f"{SPACE}/{WORKER}"
        # Other credentials: the old ones are refused, the new ones are found.
        harbour.lock("second")
        secret = {"data": {"password": base64.b64encode(b"second").decode()}}
        harbour.admin.patch("/api/v1/namespaces/kube-system/secrets/quay-credentials", secret).got()
        harbour.put(MACHINES, machine(f"{WORKER}-2"))
        running.eventually(lambda: f"{WORKER}-2" in harbour.instances(), "the new password is used")
        # And its end.
        harbour.admin.delete(f"{MACHINES}/{WORKER}").got()
        running.eventually(lambda: harbour.admin.get(f"{MACHINES}/{WORKER}").code == 404, "the machine is gone")
        assert harbour.instances() == [f"{WORKER}-2"]
        assert harbour.admin.get(f"/api/v1/nodes/{WORKER}").code == 404

        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(PATIENCE) == 0, running.log
        lines = running.log
    assert "(403" not in lines, lines
    assert f"{WORKER} was let in" in lines
    assert "addresses that are nobody's own: 10.0.0.250" in lines
    assert not list(harbour.cluster.folder.glob("moorage-*")), "credentials were left behind"
    lease = harbour.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases/moorage-machine-api").got()
    assert not lease["spec"].get("holderIdentity"), "the lease was not given back"


@pytest.mark.needs("kubectl")
def test_sets_and_health_checks_need_no_other_rights(harbour: Harbour) -> None:
    where = MACHINES.removesuffix("/machines")
    mark = {"machine.openshift.io/cluster-api-cluster": INFRA}
    template = {"metadata": {"labels": mark}, "spec": machine("any")["spec"]}
    pool = {"replicas": 2, "selector": {"matchLabels": mark}, "template": template}
    sick = {"type": "Ready", "status": "False", "timeout": "300s"}
    check = {"selector": {"matchLabels": mark}, "unhealthyConditions": [sick], "maxUnhealthy": "40%"}

    with harbour.controllers("--log-level=debug") as running:
        harbour.put(f"{where}/machinesets", made("MachineSet", "pool", pool))
        harbour.put(f"{where}/machinehealthchecks", made("MachineHealthCheck", "pool", check))

        running.eventually(lambda: len(harbour.instances()) == 2, "the set has its machines")
        told = running.eventually(
            lambda: (
                (status := harbour.admin.get(f"{where}/machinehealthchecks/pool").got().get("status") or {})
                and status.get("expectedMachines") == 2
                and status
            ),
            "the check counts them",
        )
        harbour.admin.patch(f"{where}/machinesets/pool", {"spec": {"replicas": 1}}).got()
        running.eventually(lambda: len(harbour.instances()) == 1, "one of them goes")
        lines = running.log

    assert told["remediationsAllowed"] == 0
    assert "(403" not in lines, lines


def made(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": SPACE}
    return {"apiVersion": "machine.openshift.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}


def asking() -> dict[str, Any]:
    body = rules.csr(rules.subject(f"system:node:{WORKER}"))
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "csr-7"},
        "spec": {
            "request": base64.b64encode(body).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    }


def decided(harbour: Harbour) -> bool:
    status = harbour.admin.get(f"{REQUESTS}/csr-7").got().get("status") or {}
    return bool(status.get("conditions"))


@pytest.mark.needs("kubectl")
def test_health_and_metrics_are_served(harbour: Harbour, tmp_path: Path) -> None:
    with harbour.controllers("--no-leader-elect", f"--metrics-address=127.0.0.1:{_free_port()}") as running:
        port = running.process.args[-1].rpartition(":")[2]  # type: ignore[index]

        def asked(path: str) -> str:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                    return str(answer.read().decode())
            except OSError:
                return ""

        running.eventually(lambda: asked("/readyz"), "it is ready")
        harbour.ask()
        running.eventually(lambda: "mapi_current_pending_csr 1.0" in asked("/metrics"), "a request is counted")
        assert "mapi_max_pending_csr 100.0" in asked("/metrics")
        assert "[+]controller-approver" in asked("/healthz")


def _free_port() -> int:
    """A port that is free, below those that the kernel gives to connections."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def test_a_cluster_that_is_none_is_told_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["machine-api", "run", "--kubeconfig", str(tmp_path / "missing")]) == 1

    assert "kubeconfig" in capsys.readouterr().err


def test_help_loads_no_kubernetes() -> None:
    code = (
        "import sys; from moorage.cli import main; main.parser(['machine-api']); main.parser(['machines']);"
        "print([name for name in ('kubernetes', 'rich', 'prometheus_client', 'cryptography') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "environ", "expected"),
    [
        pytest.param(["--kubeconfig", "mine"], {"KUBERNETES_SERVICE_HOST": "x"}, "mine", id="named"),
        pytest.param([], {"KUBERNETES_SERVICE_HOST": "x", "KUBECONFIG": "theirs"}, None, id="in a pod"),
        pytest.param([], {"KUBECONFIG": "theirs"}, "theirs", id="of the environment"),
        pytest.param([], {}, None, id="none"),
    ],
)
def test_which_cluster(words: list[str], environ: dict[str, str], expected: str | None, tmp_path: Path) -> None:
    arguments = main.parser(["machine-api"]).parse_args(["--dir", str(tmp_path), "machine-api", "run", *words])

    assert cluster_access.chosen(arguments, environ) == (Path(expected) if expected else None)


@pytest.mark.parametrize("environ", [{"KUBECONFIG": "theirs"}, {"KUBERNETES_SERVICE_HOST": "x"}], ids=str)
def test_the_asset_directorys_cluster_comes_before_the_environments(environ: dict[str, str], tmp_path: Path) -> None:
    """In a pod too: who names a folder does not mean the cluster that the pod happens to run in."""
    made = tmp_path / "auth" / "kubeconfig"
    made.parent.mkdir()
    made.touch()
    arguments = argparse.Namespace(kubeconfig=None, dir=str(tmp_path))

    assert cluster_access.chosen(arguments, environ) == made


def test_names_are_resolved_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kubeconfig"
    server = {"server": "https://api.berth.example.com:6443", "certificate-authority-data": "x"}
    path.write_text(yaml.safe_dump({"clusters": [{"name": "berth", "cluster": server}]}))
    monkeypatch.setattr(names, "resolve", lambda host, *_: {"api.berth.example.com": ["127.7.0.1"]}[host])

    with cluster_access._resolvable(path, {names.RESOLVER: "127.0.0.1:53"}, clocks.Clock()) as usable:
        found = yaml.safe_load(usable.read_text())["clusters"][0]["cluster"]
        assert usable.stat().st_mode & 0o077 == 0

    assert found["server"] == "https://127.7.0.1:6443"
    assert found["tls-server-name"] == "api.berth.example.com"
    assert list(tmp_path.iterdir()) == [path]
