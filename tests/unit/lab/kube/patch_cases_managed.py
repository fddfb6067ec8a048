"""The sequences of `patch_cases` about who manages which fields after plain writes."""

from __future__ import annotations

from tests.unit.lab.kube.patch_cases import (
    CM,
    DISK,
    LEASE,
    NODE,
    ONE,
    READY,
    TWO,
    WIDGET,
    apply,
    case,
    container,
    create,
    data,
    deployment,
    labels,
    merge,
    spec,
    status,
    update,
)

SEEN = {"lastUpdateTime": "2024-01-01T00:00:00Z", "lastTransitionTime": "2024-01-01T00:00:00Z"}
RESET = {"metadata": {"managedFields": [{}]}}

UPDATE_CASES = (
    case("update-create", "Deployment", create(ONE)),
    case(
        "update-create-service",
        "Service",
        create(
            spec(
                ports=[
                    {"port": 80, "name": "w"},
                    {"port": 53, "protocol": "UDP", "name": "d"},
                ],
                selector={"a": "b"},
            )
        ),
    ),
    case(
        "update-create-two",
        "Deployment",
        create(TWO, "first"),
        update(spec(replicas=3), "second"),
        update(spec(replicas=4), "first"),
        update({}, "third"),
    ),
    case(
        "update-create-probes",
        "Deployment",
        create(
            deployment(
                container(
                    "one",
                    readinessProbe={"httpGet": {"path": "/", "port": 80}},
                    resources={"requests": {"cpu": "1"}},
                    env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    lifecycle={"preStop": {"exec": {"command": ["x"]}}},
                ),
                strategy={"type": "Recreate"},
            )
        ),
    ),
    case(
        "update-lease",
        "Lease",
        create(LEASE, "kubelet"),
        update(spec(renewTime="2024-01-01T00:00:10.000000Z"), "kubelet"),
        update(spec(holderIdentity="o"), "other"),
        update(spec(holderIdentity=None), "third"),
    ),
    case(
        "update-node-status",
        "Node",
        create(NODE, "kubelet"),
        update(
            status(
                conditions=[READY, DISK],
                capacity={"cpu": "4", "memory": "1Gi"},
                nodeInfo={"kubeletVersion": "v1"},
                addresses=[{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"}],
                images=[{"names": ["a"], "sizeBytes": 1}],
            ),
            "kubelet",
            "status",
        ),
        update(status(conditions=[{**READY, "status": "False"}, DISK]), "kubelet", "status"),
        update(status(conditions=[DISK]), "other", "status"),
        update({**status(conditions=[READY]), **labels(y="2")}, "other"),
    ),
    case(
        "update-labels",
        "ConfigMap",
        create({**CM, **labels(a="1", b="2")}),
        update(labels(a="9"), "two"),
        update(labels(a=None), "three"),
        update({"metadata": {"labels": None}}, "four"),
    ),
    case(
        "update-annotations",
        "ConfigMap",
        create(CM),
        update({"metadata": {"annotations": {"a": "1"}}}, "two"),
        update({"metadata": {"annotations": {"a": None}}}, "two"),
    ),
    case(
        "update-reset",
        "ConfigMap",
        create(CM),
        update(RESET, "two"),
        update(data(a="3"), "three"),
        apply(data(b="2"), "four"),
    ),
    case("update-reset-empty-list", "ConfigMap", create(CM), update({"metadata": {"managedFields": []}}, "two")),
    case(
        "update-managed-null",
        "ConfigMap",
        create(CM),
        update({"metadata": {"managedFields": None}, **data(a="3")}, "two"),
    ),
    case(
        "update-managed-rewritten",
        "ConfigMap",
        create(CM),
        update(
            {
                "metadata": {
                    "managedFields": [
                        {
                            "manager": "me",
                            "operation": "Apply",
                            "apiVersion": "v1",
                            "time": "2020-01-01T00:00:00Z",
                            "fieldsType": "FieldsV1",
                            "fieldsV1": {"f:data": {"f:a": {}}},
                        }
                    ]
                }
            },
            "two",
        ),
        apply(data(b="5"), "me"),
    ),
    case(
        "update-managed-invalid",
        "ConfigMap",
        create(CM),
        update(
            {
                "metadata": {
                    "managedFields": [
                        {
                            "manager": "me",
                            "operation": "Frob",
                            "apiVersion": "v1",
                            "fieldsType": "FieldsV1",
                            "fieldsV1": {},
                        }
                    ]
                }
            },
            "two",
        ),
    ),
    case(
        "update-managed-by-status", "Widget", create(WIDGET), update({**RESET, **status(phase="Up")}, "two", "status")
    ),
    case(
        "update-widget-lists",
        "Widget",
        create(WIDGET),
        update(spec(tags=["b", "c"]), "two"),
        update(spec(ports=[{"port": 1, "protocol": "UDP", "note": "n"}, {"port": 2, "protocol": "TCP"}]), "three"),
        update(spec(place={"rack": "9", "row": "2"}, args=["x", "y"]), "four"),
        update(spec(free={"deep": {"x": 2, "list": []}, "more": {}}), "five"),
        update({"spec": None}, "six"),
    ),
    case(
        "update-widget-status",
        "Widget",
        create({**WIDGET, **status(phase="Lost")}),
        update(status(phase="Up", conditions=[{"type": "A", "status": "True"}]), "ctl", "status"),
        update(status(conditions=[{"type": "A", "status": "False"}, {"type": "B", "status": "True"}]), "two", "status"),
    ),
    case(
        "update-eleven",
        "ConfigMap",
        create(data(z="0")),
        *(update(data(**{f"k{n:02}": "1"}), f"m{n:02}") for n in range(12)),
    ),
    case(
        "update-scale",
        "Deployment",
        create(ONE),
        merge(spec(replicas=5), "kubectl-scale", "scale"),
        merge(spec(replicas=6), "kubectl-scale", "scale"),
        merge(spec(replicas=6), "idle", "scale"),
        update(spec(replicas=7), "tester"),
        merge(spec(replicas=1), "again", "scale"),
    ),
    case("update-scale-widget", "Widget", create(WIDGET), merge(spec(replicas=5), "kubectl-scale", "scale")),
    case("update-default-manager", "ConfigMap", create(CM, ""), update(data(a="2"), "")),
    case(
        "update-finalizer-odd",
        "ConfigMap",
        create(
            {
                **CM,
                "metadata": {"finalizers": ["x.io/a"]},
            }
        ),
        update(data(k="&<>"), "two"),
    ),
    case("update-widget-set-odd", "Widget", create(spec(tags=["<a&b>", 'q"q', "ü"]))),
    case(
        "update-template-label",
        "Deployment",
        create(ONE),
        update({"spec": {"template": {"metadata": {"annotations": {"r": "1"}}}}}, "kubectl-rollout"),
    ),
    case(
        "update-deployment-status",
        "Deployment",
        create(ONE),
        update(
            status(
                observedGeneration=1,
                replicas=2,
                conditions=[{"type": "Available", "status": "True", "reason": "r", "message": "m", **SEEN}],
            ),
            "kcm",
            "status",
        ),
        update({**labels(x="1"), **status(replicas=1)}, "kcm", "status"),
    ),
)
