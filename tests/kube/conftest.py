"""One cluster for a session of stories, the lab's or a real one (`--kube=real`), and a namespace for each story."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kube import calls, embedded, objects, real
from tests.kube import cluster as clusters

_numbers = itertools.count(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every story here needs kubectl; on a real cluster, also what that is made of."""
    is_real = config.getoption("--kube") == "real"
    programs = ("kube-apiserver", "kube-controller-manager", "etcd") if is_real else ("kubectl",)
    for item in items:
        if "tests/kube/" in str(item.path):
            item.add_marker(pytest.mark.needs(*programs))


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    """The cluster all stories share."""
    folder = tmp_path_factory.mktemp("kube")
    if request.config.getoption("--kube") == "real":
        with real.running(folder) as (made, _processes):
            yield made
    else:
        with embedded.running(folder) as made:
            yield made


@pytest.fixture
def admin(cluster: clusters.Cluster) -> calls.Caller:
    """A cluster administrator."""
    return cluster.admin


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other story on the same cluster uses."""
    return lambda word: f"{word}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def namespace(admin: calls.Caller, unique: Callable[[str], str]) -> Iterator[str]:
    """A namespace of the story's own, with the default service account in it."""
    name = unique("story")
    admin.post("/api/v1/namespaces", objects.namespace(name)).got(201)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    calls.eventually(lambda: admin.get(account).code == 200, f"the default service account of {name}")
    yield name
    admin.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def harbours(admin: calls.Caller, unique: Callable[[str], str]) -> Iterator[objects.Custom]:
    """A kind of the story's own: harbours of a group nobody else uses."""
    custom = objects.Custom(unique("sea") + ".example.com")
    with custom.served(admin):
        yield custom


@pytest.fixture(scope="module")
def kept_harbours(cluster: clusters.Cluster) -> Iterator[objects.Custom]:
    """A kind that the stories of a file share, where none of them changes it."""
    with objects.Custom(f"sea-{os.getpid()}-{next(_numbers)}.example.com").served(cluster.admin) as custom:
        yield custom


@pytest.fixture
def definition(admin: calls.Caller, unique: Callable[[str], str]) -> Iterator[Callable[..., objects.Custom]]:
    """Makes kinds of the story's own with a schema; they go with the story."""
    made: list[objects.Custom] = []

    def make(spec: calls.Object, **changes: Any) -> objects.Custom:
        custom = objects.Custom(unique("sea") + ".example.com", spec, changes)
        custom.create(admin)
        made.append(custom)
        return custom

    yield make
    for custom in made:
        custom.delete(admin)
