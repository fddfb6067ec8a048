"""What a scraper reads, under the names that alerts know."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from moorage import errors
from moorage.machines.runtime import metrics, serving

MACHINE = {
    "apiVersion": "machine.openshift.io/v1beta1",
    "metadata": {"name": "a", "namespace": "ns", "creationTimestamp": "2024-05-01T00:00:00Z"},
    "spec": {"providerID": "ovirt://1"},
    "status": {"phase": "Running", "nodeRef": {"name": "node-a"}},
}
SET = {
    "apiVersion": "machine.openshift.io/v1beta1",
    "metadata": {"name": "s", "namespace": "ns", "creationTimestamp": "2024-05-01T00:00:00Z"},
    "status": {"replicas": 3, "readyReplicas": 2},
}


@pytest.fixture
def caches() -> Iterator[None]:
    bare = {**MACHINE, "metadata": {**MACHINE["metadata"], "name": "b"}, "spec": {}, "status": None}  # type: ignore[dict-item]
    end = metrics.follow(lambda: [MACHINE, bare], lambda: [SET])
    yield
    end()


@pytest.mark.usefixtures("caches")
@pytest.mark.parametrize(
    "line",
    [
        "mapi_machine_items 2.0",
        'mapi_machine_created_timestamp_seconds{api_version="machine.openshift.io/v1beta1",name="a",namespace="ns",'
        'node="node-a",phase="Running",spec_provider_id="ovirt://1"} 1.7145216e+09',
        "mapi_machineset_items 1.0",
        'mapi_machineset_created_timestamp_seconds{api_version="machine.openshift.io/v1beta1",name="s",namespace="ns"}'
        " 1.7145216e+09",
        'mapi_machine_set_status_replicas{name="s",namespace="ns"} 3.0',
        'mapi_machine_set_status_replicas_ready{name="s",namespace="ns"} 2.0',
        'mapi_machine_set_status_replicas_available{name="s",namespace="ns"} 0.0',
    ],
)
def test_the_caches_are_shown(line: str) -> None:
    assert line in metrics.text().decode().splitlines()


@pytest.mark.usefixtures("caches")
def test_a_machine_without_a_phase_is_counted_and_not_shown() -> None:
    assert 'name="b"' not in metrics.text().decode()


@pytest.mark.parametrize(
    ("counter", "name"),
    [
        (metrics.CREATE_FAILED, "mapi_instance_create_failed"),
        (metrics.UPDATE_FAILED, "mapi_instance_update_failed"),
        (metrics.DELETE_FAILED, "mapi_instance_delete_failed"),
    ],
)
def test_failures_of_instances_keep_the_name_that_alerts_know(counter: metrics.Failures, name: str) -> None:
    counter.labels("a", "ns", "NoCapacity").inc(2)

    line = f'{name}{{name="a",namespace="ns",reason="NoCapacity"}} 2.0'
    assert line in metrics.text().decode().splitlines()
    counter.forget("a", "ns", "NoCapacity")
    assert line not in metrics.text().decode()


def test_phases_and_health_checks_have_their_names() -> None:
    # The registry is the process's: others count Running machines in it.
    metrics.PHASE_TRANSITION.labels("Sailing").observe(100)
    metrics.NODES_COVERED.labels("h", "ns").set(3)
    metrics.REMEDIATIONS.labels("h", "ns").inc()
    metrics.SHORT_CIRCUIT.labels("h", "ns").set(1)

    lines = metrics.text().decode().splitlines()
    for line in (
        'mapi_machine_phase_transition_seconds_bucket{le="120.0",phase="Sailing"} 1.0',
        'mapi_machinehealthcheck_nodes_covered{name="h",namespace="ns"} 3.0',
        'mapi_machinehealthcheck_remediation_success_total{name="h",namespace="ns"} 1.0',
        'mapi_machinehealthcheck_short_circuit{name="h",namespace="ns"} 1.0',
    ):
        assert line in lines


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def test_health_and_readiness_name_what_is_wrong() -> None:
    wrong = {"cache": ""}
    served = serving.Serving("127.0.0.1:0", {"thread": lambda: ""}, {"cache": lambda: wrong["cache"]})
    served.start()
    try:
        assert asked(served.port, "/healthz") == (200, "[+]thread\n")
        assert asked(served.port, "/readyz?verbose") == (200, "[+]cache\n")
        wrong["cache"] = "not listed yet"
        assert asked(served.port, "/readyz") == (500, "[-]cache: not listed yet\n")
        assert asked(served.port, "/healthz")[0] == 200
        assert asked(served.port, "/other")[0] == 404
        assert "mapi_machine_phase_transition_seconds" in asked(served.port, "/metrics")[1]
        with pytest.raises(errors.MoorageError, match="nothing can listen") as taken:
            serving.Serving(f"127.0.0.1:{served.port}", {}, {}).start()
        assert "--metrics-address" in taken.value.remedy
    finally:
        served.stop()


def is_there(host: str) -> bool:
    try:
        with socket.socket(serving.family(host)) as found:
            found.bind((host, 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("where", ["[::1]:0", "localhost:0"])
def test_it_listens_where_it_is_told_whatever_the_family_of_the_address(where: str) -> None:
    host, _ = serving.address(where)
    served = serving.Serving(where, {}, {})
    if not is_there(host):
        with pytest.raises(errors.MoorageError, match="nothing can listen"):
            served.start()
        return
    served.start()
    try:
        with socket.create_connection((host, served.port), timeout=20) as caller:
            caller.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert b" 200 " in caller.makefile("rb").readline()
    finally:
        served.stop()


@pytest.mark.parametrize(
    ("host", "family"), [("::1", socket.AF_INET6), ("127.0.0.1", socket.AF_INET), ("localhost", socket.AF_INET)]
)
def test_an_address_has_its_family_and_a_name_the_older_one_if_it_has_both(
    host: str, family: socket.AddressFamily
) -> None:
    assert serving.family(host) == family


def test_where_there_is_no_such_address_the_next_step_is_told() -> None:
    with pytest.raises(errors.MoorageError, match="nothing can listen") as refusal:
        serving.Serving("192.0.2.1:0", {}, {}).start()
    assert "--metrics-address" in refusal.value.remedy


@pytest.mark.parametrize(
    ("text", "found"), [(":8081", ("", 8081)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9", ("::1", 9))]
)
def test_an_address_is_read(text: str, found: tuple[str, int]) -> None:
    assert serving.address(text) == found


@pytest.mark.parametrize("text", ["", "8081", "host:", "host:70000", "host:x"])
def test_an_address_without_a_port_is_refused(text: str) -> None:
    with pytest.raises(errors.ConfigError, match="no address"):
        serving.address(text)
