"""What the installer itself writes into a cluster: credentials, and the approval of its own workers."""

from __future__ import annotations

import base64
import datetime
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage.assets import objects
from moorage.engine import clock as clocks
from moorage.engine import secret
from moorage.installer import approving, delivery, kube, kubeconfig
from moorage.machines import approval
from moorage.platforms import contract
from tests.kube import calls, pki
from tests.kube import cluster as clusters
from tests.kube.test_requests import KUBELET, REQUESTS, body, conditions, signed

GROUPS = ("system:serviceaccounts:openshift-machine-config-operator", "system:serviceaccounts")


@pytest.fixture
def directory(cluster: clusters.Cluster, tmp_path: Path) -> Path:
    """An asset directory with the administrator's kubeconfig."""
    (tmp_path / "auth").mkdir()
    shutil.copy(cluster.kubeconfig(), tmp_path / "auth" / "kubeconfig")
    return tmp_path


@pytest.fixture
def bootstrapper(
    cluster: clusters.Cluster, admin: calls.Caller, unique: Callable[[str], str]
) -> Iterator[calls.Caller]:
    """Who new machines ask as, with the one right that they have."""
    name = unique("bootstrappers")
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:node-bootstrapper",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": approval.BOOTSTRAPPER}],
    }
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    admin.post(bindings, binding).got(201)
    yield cluster.caller(approval.BOOTSTRAPPER, GROUPS)
    admin.delete(f"{bindings}/{name}")


def deliver(directory: Path, namespace: str, password: str) -> str:
    """What was done for it."""
    wanted = contract.ClusterSecret((namespace,), "ovirt-credentials", {"ovirt_password": secret.Secret(password)})
    told: list[str] = []
    delivery.deliver(wanted, directory, clocks.Clock(), {}, lambda *_: None, told.append)
    return told[-1].rpartition(" ")[2] if told else ""


def test_credentials_are_created_left_alone_and_replaced(admin: calls.Caller, directory: Path, namespace: str) -> None:
    done = [deliver(directory, namespace, password) for password in ("first-one", "first-one", "second-one")]

    found = admin.get(f"/api/v1/namespaces/{namespace}/secrets/ovirt-credentials").got()
    assert done == ["created", "", "replaced"]
    assert base64.b64decode(found["data"]["ovirt_password"]) == b"second-one"


def test_two_who_create_the_same_thing_conflict(directory: Path, namespace: str) -> None:
    content = objects.secret(namespace, "twice", {"a": "b"})
    access = kubeconfig.read(directory / kubeconfig.FILE)

    with kube.Editor(access, clocks.Clock(), {}) as editor:
        made = editor.create(f"/api/v1/namespaces/{namespace}/secrets", content)
        with pytest.raises(kube.Conflicting, match="already exists"):
            editor.create(f"/api/v1/namespaces/{namespace}/secrets", content)
        editor.replace(f"/api/v1/namespaces/{namespace}/secrets/twice", {**made, "data": {}})
        with pytest.raises(kube.Conflicting, match="has been modified"):
            editor.replace(f"/api/v1/namespaces/{namespace}/secrets/twice", made)


class Platform:
    """Every machine there is, is up."""

    def exists(self, machine: contract.Machine) -> contract.Instance | None:
        return contract.Instance(machine.name, f"toy://{machine.name}", "up", ready=True, addresses=("10.9.8.7",))

    create = update = delete = exists  # type: ignore[assignment]


def test_a_worker_of_ours_is_let_in_and_a_stranger_is_not(
    admin: calls.Caller, bootstrapper: calls.Caller, directory: Path, unique: Callable[[str], str]
) -> None:
    # Given a worker that was made a moment ago, and somebody else with the same credentials.
    worker, stranger = unique("worker"), unique("stranger")
    for name in (worker, stranger):
        pem, _key = pki.request(f"system:node:{name}", ["system:nodes"])
        bootstrapper.post(REQUESTS, body(name, pem, KUBELET)).got(201)
    clock = clocks.Clock()
    around = contract.Surroundings({}, clock, lambda _line: None)
    told: list[str] = []
    wanted = [contract.Machine(worker, "berth", "worker", {}, b"")]
    made = clock.wall() - datetime.timedelta(minutes=10)
    keeper = approving.Doorkeeper(wanted, Platform(), directory, around, made, told.append)

    try:
        keeper.look()
    finally:
        keeper.close()

    assert f"{worker} was let in: its client certificate is approved ({worker})" in told
    assert conditions(admin.get(f"{REQUESTS}/{worker}").got()).keys() == {"Approved"}
    assert signed(admin, worker).subject.rfc4514_string() == f"CN=system:node:{worker},O=system:nodes"
    assert conditions(admin.get(f"{REQUESTS}/{stranger}").got()) == {}
    for name in (worker, stranger):
        admin.delete(f"{REQUESTS}/{name}")
