"""The cluster of tests/kube with the kinds of the machine-api in it, and clients of it such as controllers have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage.engine import clock as clocks
from moorage.lab.nodes import payload
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import connection
from tests.kube import calls
from tests.kube import cluster as clusters
from tests.kube import objects as kube_objects
from tests.kube.conftest import admin as admin
from tests.kube.conftest import cluster as cluster
from tests.kube.conftest import namespace as namespace
from tests.kube.conftest import unique as unique
from tests.machines import cutting
from tests.machines.mooring_fixture import moored as moored

GROUP = "machine.openshift.io"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every story here needs a cluster, and so what that is made of."""
    is_real = config.getoption("--kube") == "real"
    programs = ("kube-apiserver", "kube-controller-manager", "etcd") if is_real else ("kubectl",)
    for item in items:
        if "tests/machines/" in str(item.path):
            item.add_marker(pytest.mark.needs(*programs))


@pytest.fixture(scope="session")
def machine_kinds(cluster: clusters.Cluster) -> None:
    """Machines, MachineSets and MachineHealthChecks are served."""
    for definition in payload.definitions():
        if definition["spec"]["group"] == GROUP:
            cluster.admin.post(kube_objects.DEFINITIONS, definition).got(201)
    for plural in ("machines", "machinesets", "machinehealthchecks"):
        path = f"/apis/{GROUP}/v1beta1/{plural}"
        calls.eventually(lambda path=path: cluster.admin.get(path).code == 200, f"{plural} served")


@pytest.fixture
def client(cluster: clusters.Cluster, machine_kinds: None) -> clients.Client:
    """An administrator, as a controller calls."""
    return clients.Client(connection.from_kubeconfig(cluster.kubeconfig()), clocks.Clock())


@pytest.fixture
def cut_wire(cluster: clusters.Cluster) -> Iterator[Callable[[], cutting.Wire]]:
    """Makes ways to the cluster that can be cut."""
    with cutting.Wires(cluster.url) as wires:
        yield wires.add


@pytest.fixture
def through(cluster: clusters.Cluster, tmp_path: Path) -> Callable[[str], Path]:
    """An administrator's kubeconfig that leads to another address."""

    def write(url: str) -> Path:
        path = tmp_path / f"{url.rpartition(':')[2]}.kubeconfig"
        path.write_text(cluster.kubeconfig().read_text().replace(cluster.url, url))
        return path

    return write
