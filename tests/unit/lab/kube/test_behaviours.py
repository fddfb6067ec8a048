"""What single kinds do at write time. The words of refusals are those of a real API server, which was asked."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from moorage.lab.kube import options, rules_pods, rules_services
from tests.unit.lab.kube import controllers_world as worlds

Object = worlds.Object


@pytest.fixture
def world() -> worlds.World:
    return worlds.World()


def _pod(world: worlds.World, **spec: Any) -> Object:
    return world.put("v1", "Pod", "p", spec={**worlds.template()["spec"], **spec})


def test_a_new_pod_is_pending_and_tolerates_short_outages(world: worlds.World) -> None:
    pod = _pod(world)
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert pod["spec"]["serviceAccountName"] == pod["spec"]["serviceAccount"] == "default"
    assert pod["spec"]["priority"] == 0
    assert [(each["key"], each["tolerationSeconds"]) for each in pod["spec"]["tolerations"]] == [
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    ]
    assert pod["metadata"]["generation"] == 1


def test_a_pod_that_tolerates_everything_is_given_no_more_tolerations(world: worlds.World) -> None:
    assert _pod(world, tolerations=[{"operator": "Exists"}])["spec"]["tolerations"] == [{"operator": "Exists"}]


def test_a_pod_of_an_account_that_is_not_there_is_refused(world: worlds.World) -> None:
    refusal = worlds.refused(lambda: _pod(world, serviceAccountName="robot"))
    assert (refusal.code, refusal.message) == (
        403,
        'pods "p" is forbidden: error looking up service account default/robot: serviceaccount "robot" not found',
    )
    world.put("v1", "ServiceAccount", "robot")
    assert _pod(world, serviceAccountName="robot")["spec"]["serviceAccountName"] == "robot"


def test_priorities_come_from_their_classes(world: worlds.World) -> None:
    assert _pod(world, priorityClassName="system-node-critical")["spec"]["priority"] == 2_000_001_000
    world.delete("Pod", "p")
    refusal = worlds.refused(lambda: _pod(world, priorityClassName="urgent"))
    assert refusal.message == 'pods "p" is forbidden: no PriorityClass with name urgent was found'
    world.put("scheduling.k8s.io/v1", "PriorityClass", "urgent", value=7)
    assert _pod(world, priorityClassName="urgent")["spec"]["priority"] == 7


_BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1"}}], "Burstable"),
        ([{"limits": _BOTH, "requests": _BOTH}], "Guaranteed"),
        ([{"limits": _BOTH, "requests": {"cpu": "500m"}}], "Burstable"),
        ([{"limits": _BOTH}, {}], "Burstable"),
    ],
)
def test_the_quality_of_a_pod(resources: list[Object], quality: str) -> None:
    assert rules_pods.quality({"containers": [{"resources": each} for each in resources]}) == quality


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"restartPolicy": "Never"}, "spec: Forbidden: pod updates may not change fields other than"),
        ({"nodeName": "n1"}, "spec: Forbidden: pod updates may not change fields other than"),
        ({"terminationGracePeriodSeconds": 1}, "spec: Forbidden: pod updates may not change fields other than"),
        ({"tolerations": []}, "spec: Forbidden: pod updates may not change fields other than"),
        ({"containers": []}, ""),
        (
            {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]},
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
    ],
)
def test_the_spec_of_a_pod_is_settled(world: worlds.World, change: Object, message: str) -> None:
    _pod(world)
    refusal = worlds.refused(lambda: world.client("Pod", "p", lambda content: content["spec"].update(change)))
    assert refusal.code == 422
    assert message in refusal.message


def test_a_few_things_of_a_pod_may_change(world: worlds.World) -> None:
    _pod(world)

    def change(content: Object) -> None:
        content["spec"]["containers"][0]["image"] = "img:2"
        content["spec"]["activeDeadlineSeconds"] = 5
        content["spec"]["tolerations"].append({"key": "x", "operator": "Exists"})

    assert world.client("Pod", "p", change)["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("spec", "phase", "asked", "grace"),
    [
        ({}, "Pending", None, 0),
        ({"nodeName": "n1"}, "Running", None, 30),
        ({"nodeName": "n1", "terminationGracePeriodSeconds": 7}, "Running", None, 7),
        ({"nodeName": "n1"}, "Running", 3, 3),
        ({"nodeName": "n1"}, "Running", 0, 0),
        ({"nodeName": "n1"}, "Running", -1, 1),
        ({"nodeName": "n1"}, "Succeeded", None, 0),
        ({"nodeName": "n1"}, "Failed", 9, 0),
        ({"nodeName": "n1"}, "Pending", None, 30),
    ],
)
def test_how_long_a_deleted_pod_may_take(spec: Object, phase: str, asked: int | None, grace: int) -> None:
    assert rules_pods.grace_seconds({"spec": spec, "status": {"phase": phase}}, asked) == grace


def test_a_bound_pod_is_ended_by_its_node_and_an_unbound_one_goes_at_once(world: worlds.World) -> None:
    world.put("v1", "Pod", "bound", spec={"nodeName": "n1", **worlds.template()["spec"]})
    world.put("v1", "Pod", "free", spec=worlds.template()["spec"])
    world.delete("Pod", "bound")
    world.delete("Pod", "free")
    assert world.names("Pod") == ["bound"]
    meta = world.get("Pod", "bound")["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 30
    assert meta["deletionTimestamp"] > meta["creationTimestamp"]
    world.delete("Pod", "bound", grace_seconds=0)
    assert world.names("Pod") == []


def test_plain_strings_of_a_secret_become_data(world: worlds.World) -> None:
    made = world.put("v1", "Secret", "s", data={"a": "YQ=="}, stringData={"b": "b"})
    assert (made["data"], made["type"]) == ({"a": "YQ==", "b": "Yg=="}, "Opaque")
    assert "stringData" not in made
    changed = world.client("Secret", "s", lambda content: content.update(stringData={"a": "c"}))
    assert changed["data"] == {"a": "Yw==", "b": "Yg=="}
    refusal = worlds.refused(lambda: world.client("Secret", "s", lambda content: content.update(type="x")))
    assert refusal.message == 'Secret "s" is invalid: type: Invalid value: "x": field is immutable'


@pytest.mark.parametrize(
    ("kind", "change", "field"),
    [
        ("ConfigMap", {"data": {"a": "other"}}, "data"),
        ("ConfigMap", {"binaryData": {"z": "YQ=="}}, "binaryData"),
        ("ConfigMap", {"immutable": False}, "immutable"),
        ("Secret", {"data": {"a": "Yg=="}}, "data"),
        ("Secret", {"immutable": False}, "immutable"),
    ],
)
def test_what_is_sealed_stays_as_it_is(world: worlds.World, kind: str, change: Object, field: str) -> None:
    world.put("v1", kind, "x", data={"a": "YQ=="}, immutable=True)
    world.client(kind, "x", lambda content: content["metadata"].update(labels={"may": "change"}))
    refusal = worlds.refused(lambda: world.client(kind, "x", lambda content: content.update(change)))
    assert (refusal.code, refusal.message) == (
        422,
        f'{kind} "x" is invalid: {field}: Forbidden: field is immutable when `immutable` is set',
    )


def _service(world: worlds.World, name: str, **spec: Any) -> Object:
    return world.put("v1", "Service", name, spec={"ports": [{"port": 80}], **spec})


def test_services_get_addresses_of_their_own(world: worlds.World) -> None:
    found = [_service(world, f"s{number}")["spec"] for number in range(3)]
    assert len({each["clusterIP"] for each in found}) == 3
    assert all(each["clusterIPs"] == [each["clusterIP"]] for each in found)
    assert found[0]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert _service(world, "headless", clusterIP="None")["spec"]["clusterIPs"] == ["None"]


@pytest.mark.parametrize(
    ("address", "wrong"),
    [
        ("172.30.0.7", "provided IP is already allocated"),
        ("11.0.0.1", "the provided network does not match the current range"),
    ],
)
def test_an_address_must_be_free_and_of_the_cluster(world: worlds.World, address: str, wrong: str) -> None:
    _service(world, "first", clusterIP="172.30.0.7")
    refusal = worlds.refused(lambda: _service(world, "second", clusterIP=address))
    assert refusal.message == (
        f'Service "second" is invalid: spec.clusterIPs: Invalid value: []string{{"{address}"}}:'
        f" failed to allocate IP {address}: {wrong}"
    )


def test_the_address_of_a_service_stays(world: worlds.World) -> None:
    made = _service(world, "s")

    def forget(content: Object) -> None:
        for field in ("clusterIP", "clusterIPs"):
            del content["spec"][field]

    assert world.client("Service", "s", forget)["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    change = {"clusterIP": "172.30.0.9", "clusterIPs": ["172.30.0.9"]}
    refusal = worlds.refused(lambda: world.client("Service", "s", lambda content: content["spec"].update(change)))
    assert refusal.message == (
        'Service "s" is invalid: spec.clusterIPs[0]: Invalid value: []string{"172.30.0.9"}: may not change once set'
    )


def test_node_ports_are_given_out_once_and_kept(world: worlds.World) -> None:
    first, second = (_service(world, name, type="NodePort")["spec"]["ports"][0]["nodePort"] for name in "ab")
    assert first != second
    assert {first, second} <= set(rules_services.NODE_PORTS)
    refusal = worlds.refused(lambda: _service(world, "c", type="NodePort", ports=[{"port": 80, "nodePort": first}]))
    assert refusal.message == (
        f'Service "c" is invalid: spec.ports[0].nodePort: Invalid value: {first}: provided port is already allocated'
    )
    kept = world.client("Service", "a", lambda content: content["spec"]["ports"][0].pop("nodePort"))
    assert kept["spec"]["ports"][0]["nodePort"] == first


def test_a_full_network_says_so(world: worlds.World) -> None:
    rules_services.use_network(world.api, ipaddress.IPv4Network("10.9.8.0/30"))
    _service(world, "a")
    _service(world, "b")
    assert worlds.refused(lambda: _service(world, "c")).code == 500


_WORKLOAD = {"selector": {"matchLabels": {"a": "b"}}, "template": worlds.template(a="b")}


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "DaemonSet"])
def test_the_selector_of_a_workload_is_settled_and_fits_its_template(world: worlds.World, kind: str) -> None:
    world.put("apps/v1", kind, "w", spec=_WORKLOAD)
    change = {"selector": {"matchLabels": {"a": "c"}}, "template": worlds.template(a="c")}
    refusal = worlds.refused(lambda: world.client(kind, "w", lambda content: content["spec"].update(change)))
    assert refusal.message == (
        f'{kind}.apps "w" is invalid: spec.selector: Invalid value: v1.LabelSelector{{MatchLabels:map[string]string'
        '{"a":"c"}, MatchExpressions:[]v1.LabelSelectorRequirement(nil)}: field is immutable'
    )
    refusal = worlds.refused(
        lambda: world.put("apps/v1", kind, "x", spec={**_WORKLOAD, "template": worlds.template(z="b")})
    )
    assert refusal.message == (
        f'{kind}.apps "x" is invalid: spec.template.metadata.labels: Invalid value: map[string]string{{"z":"b"}}:'
        " `selector` does not match template `labels`"
    )


def test_most_of_a_stateful_set_is_settled(world: worlds.World) -> None:
    world.put("apps/v1", "StatefulSet", "w", spec={**_WORKLOAD, "serviceName": "x"})
    world.client("StatefulSet", "w", lambda content: content["spec"].update(replicas=4))
    refusal = worlds.refused(
        lambda: world.client("StatefulSet", "w", lambda content: content["spec"].update(serviceName="y"))
    )
    assert "spec: Forbidden: updates to statefulset spec for fields other than 'replicas'" in refusal.message


def test_a_daemon_set_counts_its_templates(world: worlds.World) -> None:
    note = "deprecated.daemonset.template.generation"
    world.put("apps/v1", "DaemonSet", "w", spec=_WORKLOAD)
    world.client("DaemonSet", "w", lambda content: content["spec"].update(minReadySeconds=1))
    assert world.get("DaemonSet", "w")["metadata"]["annotations"][note] == "1"
    world.client(
        "DaemonSet", "w", lambda content: content["spec"]["template"]["spec"]["containers"][0].update(image="n")
    )
    assert world.get("DaemonSet", "w")["metadata"]["annotations"][note] == "2"


def test_a_node_is_tainted_until_it_is_seen_to_be_ready(world: worlds.World) -> None:
    node = world.api.create(world.kind("Node"), "", {"metadata": {"name": "n"}}).object
    assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]


def test_a_claim_is_settled_but_a_bound_one_may_grow(world: worlds.World) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    assert world.put("v1", "PersistentVolumeClaim", "c", spec=spec)["status"] == {"phase": "Pending"}
    more = {"resources": {"requests": {"storage": "2Gi"}}}

    def grow(content: Object) -> None:
        content["spec"].update(more)

    assert worlds.refused(lambda: world.client("PersistentVolumeClaim", "c", grow)).message.startswith(
        'PersistentVolumeClaim "c" is invalid: spec: Forbidden: spec is immutable after creation except'
    )
    world.change("PersistentVolumeClaim", "c", lambda content: content.update(status={"phase": "Bound"}))
    assert world.client("PersistentVolumeClaim", "c", grow)["spec"]["resources"] == more["resources"]


@pytest.mark.parametrize(
    ("about", "where", "right"),
    [("default", "default", True), ("", "default", True), ("other", "default", False), ("", "other", False)],
)
def test_an_event_is_where_its_object_is(world: worlds.World, about: str, where: str, right: bool) -> None:
    world.put("v1", "Namespace", "other")
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": about}}
    if right:
        world.api.create(world.kind("Event"), where, event)
        return
    refusal = worlds.refused(lambda: world.api.create(world.kind("Event"), where, event))
    assert refusal.message == (
        f'Event "e" is invalid: involvedObject.namespace: Invalid value: "{about}": does not match event.namespace'
    )


def test_a_budget_allows_nothing_before_somebody_has_counted(world: worlds.World) -> None:
    made = world.put("policy/v1", "PodDisruptionBudget", "b", spec={"minAvailable": 1})
    assert set(made["status"].values()) == {0}


def test_custom_kinds_are_none_of_our_business(world: worlds.World) -> None:
    made = world.put("example.com/v1", "Widget", "w", stringData={"a": "b"})
    assert made["stringData"] == {"a": "b"}
    assert made["metadata"]["generation"] == 1


def test_a_rehearsal_gives_no_address_away(world: worlds.World) -> None:
    content = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}
    shown = world.api.create(world.kind("Service"), "default", content, options.Options(dry_run=True)).object
    assert _service(world, "t")["spec"]["clusterIP"] == shown["spec"]["clusterIP"]
