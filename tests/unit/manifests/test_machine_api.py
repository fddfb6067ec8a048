"""The machine controllers as manifests: who they are, what they may do, and what they may not."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.assets import machine_api_manifests as manifests

WANTED = manifests.Wanted("quay", "quay.example.com/moorage:1", "quay-credentials")
FOUND: dict[str, Any] = manifests.manifests(WANTED)


def of(kind: str, namespace: str | None = None) -> list[dict[str, Any]]:
    listed = [each for each in FOUND.values() if each["kind"] == kind]
    return [each for each in listed if namespace in (None, each["metadata"].get("namespace"))]


def only(kind: str) -> dict[str, Any]:
    (found,) = of(kind)
    return found


def test_two_of_them_run_on_the_control_plane_and_elect_one() -> None:
    spec = only("Deployment")["spec"]
    pod = spec["template"]["spec"]

    assert spec["replicas"] == 2
    assert pod["nodeSelector"] == {"node-role.kubernetes.io/master": ""}
    assert pod["serviceAccountName"] == only("ServiceAccount")["metadata"]["name"]
    (container,) = pod["containers"]
    assert container["image"] == WANTED.image
    assert container["command"][:3] == ["moorage", "machine-api", "run"]
    assert {"--platform=quay", "--leader-elect"} <= set(container["command"])


def test_a_command_that_the_program_understands() -> None:
    from moorage.cli import main

    words = only("Deployment")["spec"]["template"]["spec"]["containers"][0]["command"][1:]
    arguments = main.parser(words).parse_args(words)

    assert (arguments.platform, arguments.leader_elect) == ("quay", True)
    assert arguments.metrics_address == f":{manifests.PORT}"


def test_they_can_start_on_nodes_that_wait_for_them() -> None:
    tolerated = {each["key"] for each in only("Deployment")["spec"]["template"]["spec"]["tolerations"]}

    assert "node.cloudprovider.kubernetes.io/uninitialized" in tolerated


def test_the_pod_has_no_privileges_and_writes_to_memory_alone() -> None:
    pod = only("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["volumes"] == [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}]
    assert "hostNetwork" not in pod


def test_every_role_is_bound_and_to_nobody_else() -> None:
    account = {"kind": "ServiceAccount", "name": manifests.NAME, "namespace": manifests.NAMESPACE}
    roles = {(each["metadata"]["name"], each["metadata"].get("namespace")) for each in of("Role")}
    bound = set()
    for each in (*of("RoleBinding"), *of("ClusterRoleBinding")):
        if each["roleRef"]["kind"] == "Role":
            bound.add((each["roleRef"]["name"], each["metadata"]["namespace"]))
        is_prometheus = each["metadata"]["name"].endswith("prometheus")
        assert each["subjects"] == [account] or is_prometheus

    assert bound == roles
    assert {each["roleRef"]["name"] for each in (*of("RoleBinding"), *of("ClusterRoleBinding"))} >= {
        each["metadata"]["name"] for each in of("ClusterRole")
    }


def allowed() -> list[tuple[str, dict[str, Any]]]:
    """Every rule, with the namespace that it holds in; empty means everywhere."""
    found = []
    for role in (*of("Role"), *of("ClusterRole")):
        for rule in role["rules"]:
            found.append((role["metadata"].get("namespace", ""), rule))
    return found


@pytest.mark.parametrize("part", ["apiGroups", "resources", "verbs"])
def test_no_right_is_for_everything(part: str) -> None:
    assert not [rule for _, rule in allowed() if "*" in rule[part]]


def test_secrets_are_read_by_name_outside_their_own_namespace_and_never_listed_or_written() -> None:
    rules = [(namespace, rule) for namespace, rule in allowed() if "secrets" in rule["resources"]]

    assert {namespace for namespace, _ in rules} == {manifests.NAMESPACE, "kube-system"}
    assert all(rule["verbs"] == ["get"] for _, rule in rules)
    assert [rule["resourceNames"] for namespace, rule in rules if namespace == "kube-system"] == [["quay-credentials"]]


def test_they_approve_for_kubelets_alone() -> None:
    (signers,) = [rule for _, rule in allowed() if "signers" in rule["resources"]]

    assert signers["verbs"] == ["approve"]
    assert sorted(signers["resourceNames"]) == [
        "kubernetes.io/kube-apiserver-client-kubelet",
        "kubernetes.io/kubelet-serving",
    ]


def test_nothing_lets_them_raise_their_own_rights() -> None:
    forbidden = {"impersonate", "escalate", "bind", "sign"}
    resources = {"roles", "rolebindings", "clusterroles", "clusterrolebindings", "serviceaccounts/token", "pods/exec"}

    for _, rule in allowed():
        assert not forbidden & set(rule["verbs"])
        assert not resources & set(rule["resources"])


def test_metrics_are_found_where_they_are_served() -> None:
    service, monitor, policy = only("Service"), only("ServiceMonitor"), only("NetworkPolicy")
    labels = only("Deployment")["spec"]["template"]["metadata"]["labels"]

    assert service["spec"]["selector"] == labels
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    assert policy["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": manifests.PORT}]}]


def test_one_of_them_may_be_taken_away_at_a_time() -> None:
    budget = only("PodDisruptionBudget")

    assert budget["spec"]["maxUnavailable"] == 1
    # One that does not come up is worth nothing, and must not hold up the drain of its node.
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budget["spec"]["selector"] == only("Deployment")["spec"]["selector"]


def test_files_lie_with_what_describes_machines_and_in_the_order_they_are_needed() -> None:
    assert all(name.startswith("99_moorage-machine-api_") for name in FOUND)
    kinds = [each["kind"] for _, each in sorted(FOUND.items())]
    assert kinds.index("ServiceAccount") < kinds.index("ClusterRoleBinding") < kinds.index("Deployment")
