"""bootkube, run for real: the order of its work, and that nothing can interrupt it for good."""

from __future__ import annotations

import pytest

RELEASE = f"quay.io/openshift-release-dev/ocp-release@sha256:{'a' * 64}"
INFRASTRUCTURE = "/assets/manifests/cluster-infrastructure-02-config.yml"
NETWORK = "/assets/manifests/cluster-network-02-config.yml"
PODS = (
    "openshift-kube-apiserver/kube-apiserver,openshift-kube-scheduler/openshift-kube-scheduler,"
    "openshift-kube-controller-manager/kube-controller-manager,openshift-cluster-version/cluster-version-operator"
)

COMMANDS = [
    (
        "api-render",
        "payload.example/cluster-config-api /usr/bin/render --asset-output-dir=/assets/api-bootstrap "
        "--rendered-manifest-dir=/assets/manifests --cluster-profile=self-managed-high-availability "
        "--payload-version=4.20.33",
    ),
    (
        "auth-api-render",
        "payload.example/cluster-authentication-operator render "
        "--asset-output-dir=/assets/auth-api-bootstrap/manifests "
        "--rendered-manifest-dir=/assets/manifests --cluster-profile=self-managed-high-availability "
        "--payload-version=4.20.33",
    ),
    (
        "config-render",
        "payload.example/cluster-config-operator /usr/bin/cluster-config-operator render --skip-api-rendering "
        f"--cluster-infrastructure-input-file={INFRASTRUCTURE} "
        "--cloud-provider-config-output-file=/assets/config-bootstrap/cloud-provider-config-generated.yaml "
        "--config-output-file=/assets/config-bootstrap/config --asset-input-dir=/assets/tls "
        "--asset-output-dir=/assets/config-bootstrap --rendered-manifest-files=/assets/manifests "
        "--payload-version=4.20.33",
    ),
    (
        "cvo-render",
        f"--env=CLUSTER_PROFILE=self-managed-high-availability {RELEASE} render --output-dir=/assets/cvo-bootstrap "
        f"--release-image={RELEASE} --feature-gate-manifest-path=/assets/manifests/99_feature-gate.yaml",
    ),
    (
        "etcd-render",
        "payload.example/cluster-etcd-operator /usr/bin/cluster-etcd-operator render "
        "--asset-output-dir=/assets/etcd-bootstrap --cluster-configmap-file=/assets/manifests/cluster-config.yaml "
        f"--etcd-image=payload.example/etcd --infra-config-file={INFRASTRUCTURE} --network-config-file={NETWORK}",
    ),
    (
        "kube-apiserver-render",
        "payload.example/cluster-kube-apiserver-operator /usr/bin/cluster-kube-apiserver-operator render "
        "--manifest-etcd-serving-ca=etcd-ca-bundle.crt --manifest-etcd-server-urls=https://localhost:2379 "
        "--manifest-image=payload.example/hyperkube "
        "--manifest-operator-image=payload.example/cluster-kube-apiserver-operator --asset-input-dir=/assets/tls "
        "--asset-output-dir=/assets/kube-apiserver-bootstrap "
        "--config-output-file=/assets/kube-apiserver-bootstrap/config "
        f"--cluster-config-file={NETWORK} "
        "--cluster-auth-file=/assets/manifests/cluster-authentication-02-config.yaml "
        f"--infra-config-file={INFRASTRUCTURE} --rendered-manifest-files=/assets/manifests "
        "--payload-version=4.20.33 --operand-kubernetes-version=1.33.5",
    ),
    (
        "kube-controller-manager-render",
        "payload.example/cluster-kube-controller-manager-operator /usr/bin/cluster-kube-controller-manager-operator "
        "render --cluster-policy-controller-image=payload.example/cluster-policy-controller "
        "--manifest-image=payload.example/hyperkube --asset-input-dir=/assets/tls "
        "--asset-output-dir=/assets/kube-controller-manager-bootstrap "
        "--config-output-file=/assets/kube-controller-manager-bootstrap/config "
        "--cpc-config-output-file=/assets/kube-controller-manager-bootstrap/cpc-config "
        f"--cluster-config-file={NETWORK} --rendered-manifest-files=/assets/manifests --payload-version=4.20.33",
    ),
    (
        "kube-scheduler-render",
        "payload.example/cluster-kube-scheduler-operator /usr/bin/cluster-kube-scheduler-operator render "
        "--manifest-image=payload.example/hyperkube --asset-input-dir=/assets/tls "
        "--asset-output-dir=/assets/kube-scheduler-bootstrap "
        "--config-output-file=/assets/kube-scheduler-bootstrap/config",
    ),
    (
        "ingress-render",
        "payload.example/cluster-ingress-operator render --prefix=cluster-ingress- "
        "--output-dir=/assets/ingress-operator-bootstrap",
    ),
    (
        "node-tuning-render",
        "payload.example/cluster-node-tuning-operator render --asset-input-dir=/assets/manifests "
        "--asset-output-dir=/assets/node-tuning-bootstrap",
    ),
    (
        "mco-render",
        "payload.example/machine-config-operator bootstrap --root-ca=/assets/tls/root-ca.crt "
        "--kube-ca=/assets/tls/kube-apiserver-complete-client-ca-bundle.crt "
        "--config-file=/assets/manifests/cluster-config.yaml --dest-dir=/assets/mco-bootstrap "
        "--pull-secret=/assets/manifests/openshift-config-secret-pull-secret.yaml "
        f"--release-image={RELEASE} --image-references=/assets/image-references --payload-version=4.20.33",
    ),
    (
        "cco-render",
        "payload.example/cloud-credential-operator render --dest-dir=/assets/cco-bootstrap "
        "--manifests-dir=/assets/manifests "
        "--cloud-credential-operator-image=payload.example/cloud-credential-operator",
    ),
    (
        "etcdctl",
        "--env=ETCDCTL_API=3 --entrypoint=etcdctl payload.example/etcd --dial-timeout=10m "
        "--cacert=/assets/tls/etcd-ca-bundle.crt --cert=/assets/tls/etcd-client.crt "
        "--key=/assets/tls/etcd-client.key --endpoints=https://localhost:2379 endpoint health",
    ),
    (
        "cluster-bootstrap",
        "--volume={root}/etc/kubernetes:/etc/kubernetes:z payload.example/cluster-bootstrap start "
        f"--tear-down-early=false --asset-dir=/assets --required-pods={PODS}",
    ),
    (
        "wait-for-ceo",
        "payload.example/cluster-etcd-operator /usr/bin/cluster-etcd-operator wait-for-ceo "
        "--kubeconfig=/assets/auth/kubeconfig",
    ),
]
CONTAINERS = [name for name, _ in COMMANDS]
STAGES = [
    "openshift-manifests",
    "release-info",
    "api-bootstrap",
    "auth-api-bootstrap",
    "config-bootstrap",
    "cvo-bootstrap",
    "etcd-bootstrap",
    "kube-apiserver-bootstrap",
    "kube-controller-manager-bootstrap",
    "kube-scheduler-bootstrap",
    "ingress-operator-bootstrap",
    "node-tuning-bootstrap",
    "mco-bootstrap",
    "cco-bootstrap",
    "cb-bootstrap",
    "cvo-overrides",
    "stop-machine-config-server",
    "wait-for-ceo",
]


def test_a_clean_run_runs_every_operator_in_order_with_its_flags(clean):
    assert clean.file("/opt/openshift/.bootkube.done").exists()
    options = "--quiet --rm --replace --user=0 --net=host"
    common = f"run {options} --name={{name}} --volume={clean.root}/opt/openshift:/assets:z "
    expected = [common.format(name=name) + words.format(root=clean.root) for name, words in COMMANDS]
    assert [" ".join(call) for call in clean.calls("podman") if "--replace" in call] == expected


def test_what_was_rendered_is_where_the_next_reader_looks(clean_outcome):
    expected = {
        "opt/openshift/manifests/99_machine.yaml": "kind: Machine\n",
        "opt/openshift/manifests/api.yaml": "api-render made api-bootstrap/manifests/api.yaml\n",
        "opt/openshift/manifests/csr-bootstrap-role-binding.yaml": (
            "mco-render made mco-bootstrap/manifests/csr-bootstrap-role-binding.yaml\n"
        ),
        "opt/openshift/tls/etcd-ca-bundle.crt": "etcd-render made etcd-bootstrap/tls/etcd-ca-bundle.crt\n",
        "opt/openshift/bootstrap-manifests/cvo-pod.yaml": "cvo-render made cvo-bootstrap/bootstrap/cvo-pod.yaml\n",
        "etc/kubernetes/kubeconfig": "TOPSECRET loopback\n",
        "etc/kubernetes/manifests/etcd-member-pod.yaml": (
            "etcd-render made etcd-bootstrap/etc-kubernetes/manifests/etcd-member-pod.yaml\n"
        ),
        "etc/kubernetes/static-pod-resources/etcd-member/server.crt": (
            "etcd-render made etcd-bootstrap/etc-kubernetes/static-pod-resources/etcd-member/server.crt\n"
        ),
        "etc/kubernetes/bootstrap-configs/kube-apiserver-config.yaml": (
            "kube-apiserver-render made kube-apiserver-bootstrap/config\n"
        ),
        "etc/kubernetes/bootstrap-configs/cluster-policy-controller-config.yaml": (
            "kube-controller-manager-render made kube-controller-manager-bootstrap/cpc-config\n"
        ),
        "etc/mcc/bootstrap/controllerconfig.yaml": (
            "mco-render made mco-bootstrap/bootstrap/manifests/controllerconfig.yaml\n"
        ),
        "etc/mcc/bootstrap/99_machine.yaml": "kind: Machine\n",
        "etc/mcs/kubeconfig": "TOPSECRET kubelet\n",
        "etc/ssl/mcs/tls.crt": "mcs certificate\n",
        "etc/ssl/mcs/tls.key": "TOPSECRET mcs key\n",
    }

    assert {path: clean_outcome.get(path) for path in expected} == expected
    # The bootstrap machine-config server has made room for the cluster's own.
    assert "etc/kubernetes/manifests/machineconfigoperator-bootstrap-pod.yaml" not in clean_outcome


def test_killed_after_each_stage_in_turn_it_goes_on_and_repeats_nothing(node, killing, clean_outcome):
    for stage in STAGES:
        killing(node, f"{stage}.done")
        killed = node.run("bootkube.sh")
        assert killed.returncode == -9, (stage, killed.stdout)
        assert not node.file("/opt/openshift/.bootkube.done").exists()

    done = node.run("bootkube.sh")

    assert done.returncode == 0, done.stdout
    assert node.containers() == CONTAINERS
    assert node.outcome() == clean_outcome


def test_killed_inside_each_container_in_turn_it_makes_that_stage_anew(node, clean_outcome):
    for container in CONTAINERS:
        node.answer(kill_in=container)
        killed = node.run("bootkube.sh")
        assert killed.returncode == -9, (container, killed.stdout)

    done = node.run("bootkube.sh")

    assert done.returncode == 0, done.stdout
    ran = node.containers()
    # etcd's health is asked for again whenever the cluster is about to start.
    assert {name: ran.count(name) for name in CONTAINERS} == dict.fromkeys(CONTAINERS, 2) | {"etcdctl": 3}
    assert node.outcome() == clean_outcome


def test_a_failing_render_stops_with_the_name_of_its_stage_and_its_last_words(node):
    node.answer(fail_in="kube-scheduler-render")

    done = node.run("bootkube.sh")

    assert done.returncode == 3
    assert "stage kube-scheduler-bootstrap failed with status 3" in done.stdout
    assert "cannot render: disk is full" in done.stdout.rpartition("its last lines:")[2]
    assert node.containers()[-1] == "kube-scheduler-render"
    assert not node.file("/opt/openshift/kube-scheduler-bootstrap.done").exists()


def test_after_a_failure_is_repaired_the_service_goes_on_where_it_stopped(node, clean_outcome):
    node.answer(fail_in="mco-render")
    assert node.run("bootkube.sh").returncode == 3
    node.answer(fail_in=None)

    done = node.run("bootkube.sh")

    assert done.returncode == 0, done.stdout
    assert [name for name in CONTAINERS if node.containers().count(name) > 1] == ["mco-render"]
    assert node.outcome() == clean_outcome


def test_an_operator_that_renders_nothing_has_failed_even_if_it_says_otherwise(node):
    node.answer(idle_in="ingress-render")

    done = node.run("bootkube.sh")

    assert done.returncode == 1
    assert "nothing was rendered to ingress-operator-bootstrap" in done.stdout
    assert node.containers()[-1] == "ingress-render"


def test_an_image_that_the_payload_lacks_fails_the_stage_that_needs_it(node):
    node.answer(images=[name for name in node.answers()["images"] if name != "hyperkube"])

    done = node.run("bootkube.sh")

    assert done.returncode == 1
    assert "the release payload has no image named hyperkube" in done.stdout
    assert "stage kube-apiserver-bootstrap failed" in done.stdout


def test_every_stage_leaves_its_start_and_end_in_the_record(node):
    node.answer(fail_in="cvo-render")

    node.run("bootkube.sh")

    records = node.records("bootkube")
    assert records[0] | {"timestamp": ""} == {
        "timestamp": "",
        "service": "bootkube",
        "subject": "service",
        "event": "start",
    }
    stages = [(r["event"], r["stage"], r.get("result")) for r in records if r["subject"] == "stage"]
    assert stages[:2] == [("start", "openshift-manifests", None), ("end", "openshift-manifests", "success")]
    assert stages[-2:] == [("start", "cvo-bootstrap", None), ("end", "cvo-bootstrap", "failure")]
    assert records[-2]["message"] == "cvo-render: first words\ncvo-render: cannot render: disk is full"
    assert (records[-1]["subject"], records[-1]["result"]) == ("service", "failure")


def test_names_and_balancers_that_do_not_work_are_reported_and_do_not_stop_the_bootstrap(node):
    node.answer(unresolvable=["api.demo.example.org"], unreachable=["api-int.demo.example.org"])

    done = node.run("bootkube.sh")

    assert done.returncode == 0
    assert "api.demo.example.org does not resolve" in done.stdout
    assert "https://api-int.demo.example.org:6443/readyz does not answer" in done.stdout
    results = {r["stage"]: r["result"] for r in node.records("bootkube") if r["event"] == "end" and "stage" in r}
    checks = ("resolve-api-url", "resolve-api-int-url", "check-api-url", "check-api-int-url")
    assert [results[name] for name in checks] == ["failure", "success", "success", "failure"]


def test_it_waits_for_etcd_and_for_the_api_to_take_the_overrides(node):
    node.answer(etcd=["down", "down", "healthy"], patches=["refused", "ok"], while_sleeping=[{}, {}, {}])

    done = node.run("bootkube.sh")

    assert done.returncode == 0, done.stdout
    assert node.containers().count("etcdctl") == 3
    assert [call[0] for call in node.calls("sleep")] == ["5", "5", "10"]
    patches = [call for call in node.calls("oc") if "patch" in call]
    assert len(patches) == 2
    assert f"--patch-file={node.root}/opt/openshift/original_cvo_overrides.patch" in patches[1]


def test_a_cluster_that_does_not_start_leaves_what_its_api_knew(node):
    node.answer(fail_in="cluster-bootstrap")

    done = node.run("bootkube.sh")

    assert done.returncode == 3
    assert "stage cb-bootstrap failed" in done.stdout
    assert node.file("/var/log/openshift/resources/nodes.json").exists()
    assert not node.file("/opt/openshift/cb-bootstrap.done").exists()


@pytest.mark.parametrize(
    ("manifest", "flag"),
    [
        ("image-content-source-policy.yaml", "--icsp-file"),
        ("image-digest-mirror-set.yaml", "--idms-file"),
    ],
)
def test_the_release_is_read_through_the_users_mirrors(node, manifest, flag):
    node.file(f"/opt/openshift/manifests/{manifest}").write_text("kind: Mirrors\n")
    node.answer(fail_in="api-render")

    node.run("bootkube.sh")

    (info,) = [call for call in node.calls("oc") if "release" in call]
    assert info == [
        *["adm", "release", "info", "--output=json"],
        f"{flag}={node.root}/opt/openshift/manifests/{manifest}",
        RELEASE,
    ]


def test_platform_pods_and_cloud_config_are_passed_on(node):
    node.file("/opt/openshift/manifests/cloud-provider-config.yaml").write_text("kind: ConfigMap\n")
    node.file("/opt/openshift/tls/cloud-ca-cert.pem").write_text("ca\n")
    pods = ["mco-bootstrap/anycloud/manifests/keepalived.yaml", "mco-bootstrap/anycloud/manifests/coredns.yaml"]
    resource = "mco-bootstrap/anycloud/static-pod-resources/coredns/Corefile.tmpl"
    node.answer(also_rendered={"mco-render": [*pods, resource]}, fail_in="cco-render")

    node.run("bootkube.sh")

    flags = {name: call for call in node.calls("podman") for name in call if name.startswith("--name=")}
    assert (
        "--cloud-provider-config-input-file=/assets/manifests/cloud-provider-config.yaml"
        in flags["--name=config-render"]
    )
    assert flags["--name=mco-render"][-2:] == [
        "--cloud-provider-ca-file=/assets/tls/cloud-ca-cert.pem",
        "--cloud-config-file=/assets/config-bootstrap/cloud-provider-config-generated.yaml",
    ]
    manifests = {path.name for path in node.file("/etc/kubernetes/manifests").iterdir()}
    assert manifests == {
        "keepalived.yaml",
        "coredns.yaml",
        "etcd-member-pod.yaml",
        "machineconfigoperator-bootstrap-pod.yaml",
    }
    assert node.file("/etc/kubernetes/static-pod-resources/coredns/Corefile.tmpl").exists()


def test_what_differs_between_releases_comes_from_the_environment_file(new_node):
    image = "quay.io/openshift-release-dev/ocp-release:4.22.1-x86_64"
    node = new_node({"OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE": image})
    node.answer(fail_in="cco-render")

    node.run("bootkube.sh")

    renders = [call for call in node.calls("podman") if "--replace" in call]
    assert all("--log-driver=k8s-file" in call for call in renders)
    (cvo,) = [call for call in renders if "--name=cvo-render" in call]
    assert cvo[-2:] == [
        "--cluster-version-manifest-path=/assets/manifests/cvo-overrides.yaml",
        "--feature-gate-manifest-path=/assets/manifests/99_feature-gate.yaml",
    ]
    assert node.file("/etc/mcc/bootstrap/image-references").exists()


def test_secrets_stay_readable_by_root_alone(clean):
    for path in ("/etc/kubernetes/kubeconfig", "/etc/mcs/kubeconfig", "/etc/ssl/mcs/tls.key"):
        assert clean.file(path).stat().st_mode & 0o777 == 0o600, path
