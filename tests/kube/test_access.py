"""Who may do what: roles and bindings, what is refused and in which words, and how one asks beforehand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kube import calls, objects
from tests.kube import cluster as clusters

RBAC = "/apis/rbac.authorization.k8s.io/v1"
API = "rbac.authorization.k8s.io/v1"
EDITOR = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "update"]}]


def role(name: str, rules: list[calls.Object], kind: str = "Role") -> calls.Object:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "rules": rules}


def binding(name: str, user: str, to: str, kind: str = "Role", subject: str = "User") -> calls.Object:
    return {
        "apiVersion": API,
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "subjects": [{"kind": subject, "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": kind, "name": to, "apiGroup": "rbac.authorization.k8s.io"},
    }


@pytest.fixture
def editor(
    cluster: clusters.Cluster, admin: calls.Caller, namespace: str, unique: Callable[[str], str]
) -> calls.Caller:
    """Somebody who may edit the config maps of one namespace."""
    name = unique("editor")
    admin.post(f"{RBAC}/namespaces/{namespace}/roles", role("editor", EDITOR)).got(201)
    admin.post(f"{RBAC}/namespaces/{namespace}/rolebindings", binding("editor", name, "editor")).got(201)
    found = cluster.caller(name)
    calls.eventually(lambda: found.get(f"/api/v1/namespaces/{namespace}/configmaps").code == 200, "the role in force")
    return found


def test_a_user_is_confined_to_a_namespace(editor: calls.Caller, admin: calls.Caller, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    editor.post(f"{path}/configmaps", objects.config_map("chart")).got(201)

    user = calls_user(editor)
    refusal = editor.delete(f"{path}/configmaps/chart").refused(403, "Forbidden")
    assert refusal["message"] == (
        f'configmaps "chart" is forbidden: User "{user}" cannot delete resource "configmaps" in API group "" '
        f'in the namespace "{namespace}"'
    )
    assert refusal["details"] == {"name": "chart", "kind": "configmaps"}
    refusal = editor.get("/api/v1/namespaces/default/configmaps").refused(403, "Forbidden")
    assert refusal["message"] == (
        f'configmaps is forbidden: User "{user}" cannot list resource "configmaps" in API group "" '
        'in the namespace "default"'
    )
    assert editor.get("/api/v1/configmaps").code == 403
    assert editor.get(f"{path}/secrets").code == 403
    assert editor.patch(f"{path}/configmaps/chart", {"data": {}}).code == 403
    refusal = editor.post("/apis/apps/v1/namespaces/default/deployments", {}).refused(403, "Forbidden")
    assert 'cannot create resource "deployments" in API group "apps"' in refusal["message"]
    # What does not exist is refused all the same: nobody learns by asking.
    assert editor.get(f"{path}/secrets/nothing").code == 403


def calls_user(caller: calls.Caller) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    info = caller.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", body).got(201)["status"]["userInfo"]
    return str(info["username"])


def test_a_rule_may_name_objects_and_subresources(
    cluster: clusters.Cluster, admin: calls.Caller, namespace: str, unique: Callable[[str], str]
) -> None:
    user = unique("clerk")
    rules: list[calls.Object] = [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get"]},
    ]
    admin.post(f"{RBAC}/namespaces/{namespace}/roles", role("clerk", rules)).got(201)
    admin.post(f"{RBAC}/namespaces/{namespace}/rolebindings", binding("clerk", user, "clerk")).got(201)
    admin.post(f"/apis/apps/v1/namespaces/{namespace}/deployments", objects.workload("Deployment", "d", 0)).got(201)
    for name in ("mine", "yours"):
        admin.post(f"/api/v1/namespaces/{namespace}/secrets", objects.secret(name, {"a": "1"})).got(201)
    clerk = cluster.caller(user)
    secrets = f"/api/v1/namespaces/{namespace}/secrets"

    calls.eventually(lambda: clerk.get(f"{secrets}/mine").code == 200, "the role in force")

    assert clerk.get(f"{secrets}/yours").code == 403
    assert clerk.get(secrets).code == 403
    deployment = f"/apis/apps/v1/namespaces/{namespace}/deployments/d"
    assert clerk.get(f"{deployment}/scale").code == 200
    refusal = clerk.get(deployment).refused(403, "Forbidden")
    assert 'deployments.apps "d" is forbidden' in refusal["message"]


def test_a_group_can_be_bound_to_a_cluster_role(
    cluster: clusters.Cluster, admin: calls.Caller, namespace: str, unique: Callable[[str], str]
) -> None:
    """The built-in role view lets see all but secrets, in the namespace of the binding."""
    group = unique("viewers")
    admin.post(f"{RBAC}/namespaces/{namespace}/rolebindings", binding("v", group, "view", "ClusterRole", "Group")).got(
        201
    )
    viewer = cluster.caller(unique("viewer"), (group,))

    calls.eventually(lambda: viewer.get(f"/api/v1/namespaces/{namespace}/pods").code == 200, "the binding in force")

    assert viewer.get(f"/api/v1/namespaces/{namespace}/secrets").code == 403
    assert viewer.get(f"/apis/apps/v1/namespaces/{namespace}/deployments").code == 200
    assert viewer.get("/api/v1/pods").code == 403


def test_a_bootstrapper_only_makes_requests(
    cluster: clusters.Cluster, admin: calls.Caller, unique: Callable[[str], str]
) -> None:
    name = unique("bootstrap")
    body = {
        "apiVersion": API,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "subjects": [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {
            "kind": "ClusterRole",
            "name": "system:node-bootstrapper",
            "apiGroup": "rbac.authorization.k8s.io",
        },
    }
    admin.post(f"{RBAC}/clusterrolebindings", body).got(201)
    bootstrapper = cluster.caller(name)
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

    calls.eventually(lambda: bootstrapper.get(requests).code == 200, "the binding in force")

    assert bootstrapper.get("/api/v1/nodes").code == 403
    assert bootstrapper.get("/api/v1/namespaces/kube-system/secrets").code == 403
    assert bootstrapper.delete(f"{requests}/any").code == 403
    assert bootstrapper.put(f"{requests}/any/approval", {}).code == 403
    admin.delete(f"{RBAC}/clusterrolebindings/{name}").got()
    calls.eventually(lambda: bootstrapper.get(requests).code == 403, "the binding gone")


def test_nobody_gives_what_he_does_not_have(
    cluster: clusters.Cluster, admin: calls.Caller, namespace: str, unique: Callable[[str], str]
) -> None:
    """Given somebody who may write roles and bindings, then not such as would give more than he may himself."""
    user = unique("climber")
    rules: list[calls.Object] = [
        *EDITOR,
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"]},
    ]
    rules[-1]["verbs"] = ["get", "list", "create", "update", "patch", "delete"]
    roles, bindings = (f"{RBAC}/namespaces/{namespace}/{plural}" for plural in ("roles", "rolebindings"))
    admin.post(roles, role("climber", rules)).got(201)
    admin.post(bindings, binding("climber", user, "climber")).got(201)
    climber = cluster.caller(user)
    calls.eventually(lambda: climber.get(roles).code == 200, "the role in force")

    climber.post(roles, role("same", EDITOR)).got(201)
    more = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    refused = climber.post(roles, role("more", more))
    refused.refused(403, "Forbidden", "is attempting to grant RBAC permissions not currently held")
    refused = climber.post(bindings, binding("top", user, "cluster-admin", "ClusterRole"))
    refused.refused(403, "Forbidden", "is attempting to grant RBAC permissions not currently held")


def test_a_binding_cannot_be_turned_to_another_role(admin: calls.Caller, namespace: str) -> None:
    path = f"{RBAC}/namespaces/{namespace}/rolebindings"
    admin.post(path, binding("b", "alice", "view", "ClusterRole")).got(201)

    refused = admin.put(f"{path}/b", binding("b", "alice", "edit", "ClusterRole"))

    refused.refused(422, "Invalid", "cannot change roleRef")


def attributes(namespace: str, verb: str, resource: str, **more: str) -> calls.Object:
    return {"namespace": namespace, "verb": verb, "resource": resource, **more}


def test_one_can_ask_beforehand(editor: calls.Caller, admin: calls.Caller, namespace: str) -> None:
    def may(verb: str, resource: str, where: str = namespace) -> bool:
        spec = {"resourceAttributes": attributes(where, verb, resource)}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
        answer = editor.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body).got(201)
        return bool(answer["status"]["allowed"])

    assert may("create", "configmaps")
    assert not may("delete", "configmaps")
    assert not may("create", "configmaps", "default")
    assert not may("*", "*")

    user = calls_user(editor)
    spec = {"user": user, "resourceAttributes": attributes(namespace, "list", "configmaps")}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    said = admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body).got(201)["status"]
    assert said["allowed"] is True
    assert said["reason"] == f'RBAC: allowed by RoleBinding "editor/{namespace}" of Role "editor" to User "{user}"'
    local = {**body, "kind": "LocalSubjectAccessReview", "metadata": {"namespace": namespace}}
    path = f"/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews"
    assert admin.post(path, local).got(201)["status"]["allowed"] is True
    assert editor.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body).code == 403


def test_the_rules_of_oneself_can_be_listed(editor: calls.Caller, namespace: str) -> None:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}

    status = editor.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body).got(201)["status"]

    mine = [rule for rule in status["resourceRules"] if rule.get("resources") == ["configmaps"]]
    assert mine == EDITOR
    assert any("/healthz" in rule.get("nonResourceURLs", []) for rule in status["nonResourceRules"])


def test_kubectl_asks_beforehand(cluster: clusters.Cluster, editor: calls.Caller, namespace: str) -> None:
    kubeconfig = cluster.kubeconfig(calls_user(editor), ())
    where = ("-n", namespace)
    assert "yes" in cluster.kubectl("auth", "can-i", "create", "configmaps", *where, kubeconfig=kubeconfig)
    assert "no" in cluster.kubectl("auth", "can-i", "delete", "configmaps", *where, kubeconfig=kubeconfig, code=1)
    assert "yes" in cluster.kubectl("auth", "can-i", "*", "*")
    listed = cluster.kubectl("auth", "can-i", "--list", *where, kubeconfig=kubeconfig)
    assert any("configmaps" in line and "create" in line for line in listed.splitlines())
    said = cluster.kubectl("get", "secrets", *where, kubeconfig=kubeconfig, code=1)
    assert "Error from server (Forbidden): secrets is forbidden" in said


def test_nodes_touch_only_their_own(
    cluster: clusters.Cluster, admin: calls.Caller, unique: Callable[[str], str]
) -> None:
    mine, other = unique("node"), unique("node")
    node = cluster.caller(f"system:node:{mine}", ("system:nodes",))
    body = objects.node(mine)
    # A kubelet cannot take a role for itself.
    refused = node.post("/api/v1/nodes", body)
    refused.refused(403, "Forbidden", "is not allowed to set the following labels: node-role.kubernetes.io/worker")
    del body["metadata"]["labels"]["node-role.kubernetes.io/worker"]

    node.post("/api/v1/nodes", body).got(201)
    node.patch(f"/api/v1/nodes/{mine}/status", {"status": {"phase": "Running"}}, calls.STRATEGIC).got()
    refused = node.post("/api/v1/nodes", objects.node(other))
    refused.refused(403, "Forbidden", f'node "{mine}" is not allowed to modify node "{other}"')
    assert node.get("/api/v1/namespaces/kube-system/secrets").code == 403
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": mine}, "spec": {}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    node.post(leases, lease).got(201)
    assert node.post(leases, {**lease, "metadata": {"name": other}}).code == 403
    admin.delete(f"/api/v1/nodes/{mine}").got()
    admin.delete(f"{leases}/{mine}")
