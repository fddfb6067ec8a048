"""What the controllers ask of the API in a life full of events, held against the rights of their manifests: both ways.

They run as their service account, and nothing that they ask is refused. Nothing is permitted either that they never
ask for: a right that nobody uses is one that only a thief will.
"""

from __future__ import annotations

import base64
import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib import parse

import pytest
import urllib3

from moorage.assets import machine_api_manifests, objects
from moorage.engine import clock as clocks
from moorage.machines import assembly
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import connection, kinds
from tests.kube import calls, embedded
from tests.unit.cli import test_machine_api as stories
from tests.unit.cli.test_machine_api import INFRA, SPACE, Harbour
from tests.unit.machines import test_approval as rules

#: Cloud seconds in a real one: an event that repeats is written again after 300 of them.
SPEED = 100.0
SETS = f"/apis/machine.openshift.io/v1beta1/namespaces/{SPACE}/machinesets"
CHECKS = f"/apis/machine.openshift.io/v1beta1/namespaces/{SPACE}/machinehealthchecks"
MARK = {"machine.openshift.io/cluster-api-cluster": INFRA}
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
#: Rights that the server looks for by itself when something else is asked.
IMPLIED = {
    ("machine.openshift.io", "machinesets/finalizers", "update"),
    ("certificates.k8s.io", "signers", "approve"),
}


class Asked(NamedTuple):
    """A call as rights are written."""

    group: str
    resource: str
    verb: str
    namespace: str
    name: str


def asked(method: str, url: str) -> Asked:
    parts = parse.urlsplit(url)
    words = [parse.unquote(word) for word in parts.path.strip("/").split("/")]
    group, words = ("", words[2:]) if words[0] == "api" else (words[1], words[3:])
    namespace, words = (words[1], words[2:]) if words[0] == "namespaces" and len(words) > 2 else ("", words)
    resource, name, sub = (*words, "", "")[:3]
    verb = VERBS.get(method) or ("watch" if "watch=1" in parts.query else "get" if name else "list")
    return Asked(group, f"{resource}/{sub}" if sub else resource, verb, namespace, name)


class Noting(clients.Client):
    """Writes down what was asked, and what was refused."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.noted: set[Asked] = set()
        self.forbidden: list[str] = []

    def _request(self, method: str, url: str, *given: Any, **more: Any) -> urllib3.BaseHTTPResponse:
        answer = super()._request(method, url, *given, **more)
        self.noted.add(asked(method, url))
        if answer.status == 403:
            self.forbidden.append(f"{method} {url}")
        return answer


@pytest.fixture
def harbour(tmp_path: Path) -> Iterator[Harbour]:
    work = tmp_path / "cluster"
    work.mkdir()
    with embedded.running(work, clocks.Clock(SPEED)) as made:
        yield Harbour(made, tmp_path / "quay")


@contextlib.contextmanager
def at_work(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> Iterator[Noting]:
    """The controllers, as their service account."""
    monkeypatch.setenv("MOORAGE_PLATFORMS", "quay=tests.unit.cli.quay")
    monkeypatch.setenv("QUAY_FOLDER", str(harbour.folder))
    monkeypatch.setattr("tests.unit.cli.quay.machine.capacity", lambda spec: {"vCPU": 2}, raising=False)
    account = f"system:serviceaccount:{SPACE}:{machine_api_manifests.NAME}"
    access = harbour.cluster.kubeconfig(account, ("system:serviceaccounts", f"system:serviceaccounts:{SPACE}"))
    client, stop = Noting(connection.from_kubeconfig(access), clocks.Clock(SPEED)), threading.Event()
    whole = assembly.Assembly(client, assembly.discover(client))
    thread = threading.Thread(target=whole.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield client
    finally:
        stop.set()
        thread.join(stories.PATIENCE)


def until(look: Callable[[], Any], what: str) -> Any:
    return calls.eventually(look, what, stories.PATIENCE)


def a_set_makes_one_and_adopts_another(harbour: Harbour) -> list[str]:
    orphan = stories.machine("orphan")
    harbour.put(stories.MACHINES, orphan)
    template = {"metadata": {"labels": MARK}, "spec": orphan["spec"]}
    pool = {"replicas": 2, "selector": {"matchLabels": MARK}, "template": template}
    harbour.put(SETS, stories.made("MachineSet", "pool", pool))
    sick = {"type": "Ready", "status": "Unknown", "timeout": "60s"}
    check = {"selector": {"matchLabels": MARK}, "unhealthyConditions": [sick], "nodeStartupTimeout": "0"}
    harbour.put(CHECKS, stories.made("MachineHealthCheck", "pool", check))
    until(lambda: len(harbour.instances()) == 2, "the set has its machines")
    (made,) = set(harbour.instances()) - {"orphan"}
    return ["orphan", made]


def a_machine_is_let_in(harbour: Harbour, name: str) -> None:
    until(lambda: harbour.phase(name) == "Provisioned", f"{name} has an instance")
    harbour.let_bootstrap()
    body = rules.csr(rules.subject(f"system:node:{name}"))
    harbour.bootstrapper().post(stories.REQUESTS, request("csr-client", body, rules.NEW_MACHINE)).got(201)
    until(lambda: decided(harbour, "csr-client"), f"{name} is let in")


def its_node_joins(harbour: Harbour, name: str) -> None:
    """A kubelet that waits for a cloud controller to tell it who and where it is."""
    taint = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": [taint]}}
    harbour.put("/api/v1/nodes", node)
    ready(harbour, name, "True")
    until(lambda: harbour.phase(name) == "Running", f"{name} is a node")
    path = f"/api/v1/nodes/{name}"

    def taints() -> list[str]:
        return [each["key"] for each in harbour.admin.get(path).got()["spec"].get("taints") or ()]

    until(lambda: taint["key"] not in taints(), "the node is complete")
    assert harbour.admin.get(path).got()["status"]["addresses"]


def it_asks_for_names_that_are_not_its_own(harbour: Harbour, name: str) -> None:
    """Its kubelet is looked at, by whom the cluster believes about kubelets."""
    bundle = {"ca-bundle.crt": harbour.cluster.ca.read_text()}
    space = "openshift-config-managed"
    harbour.put(f"/api/v1/namespaces/{space}/configmaps", objects.config_map(space, "csr-controller-ca", bundle))
    body = rules.csr(rules.subject(f"system:node:{name}"), rules.OWN)
    kubelet = harbour.cluster.caller(f"system:node:{name}", ("system:nodes",))
    kubelet.post(stories.REQUESTS, request("csr-serving", body, rules.ITSELF)).got(201)


def it_is_deleted_and_its_pods_leave_when_they_may(harbour: Harbour, client: Noting, name: str) -> None:
    apps, pods = "/apis/apps/v1/namespaces/default/daemonsets", "/api/v1/namespaces/default/pods"
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    daemons = {"selector": {"matchLabels": {"app": "agent"}}, "template": template}
    owner = harbour.admin.post(
        apps, {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": daemons}
    ).got(201)["metadata"]["uid"]
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": owner, "controller": True}
    harbour.put(pods, pod("agent-1", name, labels={"app": "agent"}, ownerReferences=[reference]))
    harbour.put(pods, pod("till", name, labels={"app": "till"}))
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "till"}}}
    harbour.put(
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "till"}, "spec": budget},
    )
    harbour.admin.delete(f"{stories.MACHINES}/{name}").got()
    told = Asked("", "events", "patch", SPACE, "")
    until(lambda: any(each._replace(name="") == told for each in list(client.noted)), "the drain is told of again")
    harbour.admin.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/till").got()
    harbour.admin.delete(f"{pods}/till", {"gracePeriodSeconds": 0})
    until(lambda: harbour.admin.get(f"{stories.MACHINES}/{name}").code == 404, f"{name} is gone")
    assert harbour.admin.get(f"/api/v1/nodes/{name}").code == 404


def another_falls_ill_and_is_replaced(harbour: Harbour, name: str) -> None:
    harbour.put("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    ready(harbour, name, "True")
    until(lambda: harbour.phase(name) == "Running", f"{name} is a node")
    ready(harbour, name, "Unknown")
    until(lambda: harbour.admin.get(f"{stories.MACHINES}/{name}").code == 404, f"{name} is remediated")


def pod(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "registry.example.com/i:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def ready(harbour: Harbour, node: str, status: str) -> None:
    condition = {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    body = {"status": {"conditions": [condition]}}
    harbour.admin.patch(f"/api/v1/nodes/{node}/status", body).got()


def request(name: str, body: bytes, who: dict[str, Any]) -> dict[str, Any]:
    spec = {"request": base64.b64encode(body).decode(), "signerName": who["signerName"], "usages": who["usages"]}
    kind = {"apiVersion": kinds.CSR.api_version, "kind": kinds.CSR.kind}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def decided(harbour: Harbour, name: str) -> bool:
    return bool((harbour.admin.get(f"{stories.REQUESTS}/{name}").got().get("status") or {}).get("conditions"))


def rights() -> list[tuple[str, dict[str, Any]]]:
    """Every rule that is given to the controllers, with the namespace that it holds in; empty means everywhere."""
    wanted = machine_api_manifests.Wanted("quay", "quay.example.com/moorage:1", "quay-credentials")
    found: list[dict[str, Any]] = [dict(each) for each in machine_api_manifests.manifests(wanted).values()]
    given = [each for each in found if re.fullmatch(r"(Cluster)?Role", each["kind"])]
    return [
        (each["metadata"].get("namespace", ""), rule)
        for each in given
        if not each["metadata"]["name"].endswith("prometheus")
        for rule in each["rules"]
    ]


def permits(namespace: str, rule: dict[str, Any], call: Asked) -> bool:
    return (
        namespace in ("", call.namespace)
        and call.group in rule["apiGroups"]
        and call.resource in rule["resources"]
        and call.verb in rule["verbs"]
        and (not rule.get("resourceNames") or call.name in rule["resourceNames"])
    )


@pytest.mark.needs("kubectl")
def test_every_right_is_used_and_every_use_is_a_right(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_work(harbour, monkeypatch) as client:
        first, second = a_set_makes_one_and_adopts_another(harbour)
        a_machine_is_let_in(harbour, first)
        its_node_joins(harbour, first)
        it_asks_for_names_that_are_not_its_own(harbour, first)
        it_is_deleted_and_its_pods_leave_when_they_may(harbour, client, first)
        another_falls_ill_and_is_replaced(harbour, second)
        until(lambda: len(harbour.instances()) == 2, "the set has its machines again")

    assert client.forbidden == []
    strays = [call for call in client.noted if not any(permits(*right, call) for right in rights())]
    assert strays == [], "the lab is more generous than the manifests"
    idle = {
        (group, resource, verb)
        for namespace, rule in rights()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if not any(
            permits(namespace, {**rule, "resources": [resource], "verbs": [verb]}, call) for call in client.noted
        )
    }
    assert idle == IMPLIED, "rights that nobody uses"
