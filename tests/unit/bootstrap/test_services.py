"""The services around bootkube, run for real among stand-ins."""

from __future__ import annotations

import base64
import json
import tarfile

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
BOOTSTRAPPER = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
DONE = "/opt/openshift/.bootkube.done"
KEY = ec.generate_private_key(ec.SECP256R1())


def request(common_name="system:node:master-0", organizations=("system:nodes",)):
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes)).sign(KEY, hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def csr(name, signer, user, content=None, conditions=None):
    return {
        "metadata": {"name": name},
        "spec": {"signerName": signer, "username": user, "request": content or request()},
        "status": {"conditions": conditions} if conditions else {},
    }


@pytest.mark.parametrize(
    ("signer", "user", "content", "approved"),
    [
        pytest.param(CLIENT, BOOTSTRAPPER, request(), True, id="a node that joins"),
        pytest.param(CLIENT, BOOTSTRAPPER, request("system:node:a.example.org"), True, id="a node with a long name"),
        pytest.param(SERVING, "system:node:master-0", request(), True, id="a node that serves"),
        pytest.param(CLIENT, "system:node:master-0", request(), False, id="a node that asks for another"),
        pytest.param(CLIENT, "system:admin", request(), False, id="a client certificate for somebody else"),
        pytest.param(CLIENT, BOOTSTRAPPER, request("system:admin"), False, id="not a node's name"),
        pytest.param(CLIENT, BOOTSTRAPPER, request("system:node:"), False, id="no node's name"),
        pytest.param(CLIENT, BOOTSTRAPPER, request("system:node:a,O=x"), False, id="a name with tricks"),
        pytest.param(CLIENT, BOOTSTRAPPER, request(organizations=()), False, id="no group"),
        pytest.param(CLIENT, BOOTSTRAPPER, request(organizations=("system:masters",)), False, id="another group"),
        pytest.param(
            CLIENT, BOOTSTRAPPER, request(organizations=("system:nodes", "system:masters")), False, id="one group more"
        ),
        pytest.param(SERVING, "system:node:master-1", request(), False, id="serving under another node's name"),
        pytest.param(SERVING, BOOTSTRAPPER, request(), False, id="serving without being a node"),
        pytest.param("kubernetes.io/kube-apiserver-client", BOOTSTRAPPER, request(), False, id="any client"),
        pytest.param("example.org/own", "system:node:master-0", request(), False, id="another signer"),
        pytest.param(CLIENT, BOOTSTRAPPER, base64.b64encode(b"junk").decode(), False, id="no request at all"),
    ],
)
def test_only_the_two_requests_of_a_joining_node_are_approved(node, signer, user, content, approved):
    node.answer(
        while_sleeping=[{"touch": [DONE]}],
        **{"get certificatesigningrequests": [{"items": [csr("csr-1", signer, user, content)]}]},
    )

    done = node.run("approve-csr.sh")

    assert done.returncode == 0, done.stdout
    assert node.answers().get("approved", []) == (["csr-1"] if approved else [])
    assert ("leaving csr-1 pending" in done.stdout) is not approved


def test_requests_that_are_decided_are_left_alone_and_pending_ones_mentioned_once(node):
    decided = csr("old", CLIENT, BOOTSTRAPPER, conditions=[{"type": "Denied"}])
    foreign = csr("foreign", "example.org/own", "somebody")
    node.answer(
        while_sleeping=[{}, {"touch": [DONE]}],
        **{"get certificatesigningrequests": [{"items": [decided, foreign]}]},
    )

    done = node.run("approve-csr.sh")

    assert "approved" not in node.answers()
    assert done.stdout.count("leaving foreign pending") == 1


def test_approving_goes_on_when_the_api_is_away_or_refuses(node):
    node.answer(
        while_sleeping=[{}, {}, {"touch": [DONE]}],
        approvals=["refused", "ok"],
        **{"get certificatesigningrequests": [None, {"items": [csr("csr-1", CLIENT, BOOTSTRAPPER)]}]},
    )

    done = node.run("approve-csr.sh")

    assert done.returncode == 0, done.stdout
    assert node.answers()["approved"] == ["csr-1"]


def infrastructure(topology):
    return {"status": {"controlPlaneTopology": topology} if topology else {}}


def servers(*revisions):
    return {"status": {"nodeStatuses": [{"nodeName": f"m{i}", "currentRevision": r} for i, r in enumerate(revisions)]}}


def test_a_highly_available_control_plane_is_reported_when_two_api_servers_stand(node):
    node.answer(
        while_sleeping=[{}, {"touch": [DONE]}, {}, {}, {}, {}],
        **{
            "get infrastructures.config.openshift.io": [None, infrastructure(""), infrastructure("HighlyAvailable")],
            "get kubeapiservers.operator.openshift.io": [servers(0, 0, 0), servers(5, 0, 0), servers(5, 6, 0)],
        },
    )

    done = node.run("report-progress.sh")

    assert done.returncode == 0, done.stdout
    assert "waiting for 2" in done.stdout
    assert len([call for call in node.calls("oc") if "kubeapiservers.operator.openshift.io" in call]) == 3
    manifest = node.answers()["applied"]
    assert all(word in manifest for word in ("kind: ConfigMap", "name: bootstrap", "namespace: kube-system"))
    assert manifest.endswith("data:\n  status: complete\n")


@pytest.mark.parametrize("topology", ["SingleReplica", "External"])
def test_other_control_planes_have_no_second_api_server_to_wait_for(node, topology):
    node.file(DONE).touch()
    node.answer(**{"get infrastructures.config.openshift.io": [infrastructure(topology)]})

    done = node.run("report-progress.sh")

    assert done.returncode == 0, done.stdout
    assert not any("kubeapiservers.operator.openshift.io" in call for call in node.calls("oc"))
    assert node.answers()["reported"] == "complete"


def test_reporting_twice_reports_once(node):
    node.file(DONE).touch()
    node.answer(reported="complete", **{"get infrastructures.config.openshift.io": [infrastructure("SingleReplica")]})

    done = node.run("report-progress.sh")

    assert done.returncode == 0
    assert "applied" not in node.answers()


def test_a_report_that_does_not_get_through_is_repeated(node):
    node.file(DONE).touch()
    node.answer(
        applies=["refused", "ok"],
        while_sleeping=[{}],
        **{"get infrastructures.config.openshift.io": [infrastructure("SingleReplica")]},
    )

    done = node.run("report-progress.sh")

    assert done.returncode == 0, done.stdout
    assert node.answers()["reported"] == "complete"


def machine(node, name):
    uname = node.fakes / "bin/uname"
    uname.write_text(f"#!/bin/sh\necho {name}\n")
    uname.chmod(0o755)


def test_the_release_image_is_pulled_until_it_is_there(node):
    machine(node, "x86_64")
    node.answer(image_exists=False, pulls=["refused", "refused", "ok"], while_sleeping=[{}, {}])

    done = node.run("release-image-download.sh")

    assert done.returncode == 0, done.stdout
    assert len([call for call in node.calls("podman") if call[0] == "pull"]) == 3
    assert not node.file("/etc/issue.d/50_release-image.issue").exists()


def test_a_release_image_that_is_there_is_not_pulled(node):
    machine(node, "x86_64")

    assert node.run("release-image-download.sh").returncode == 0
    assert not [call for call in node.calls("podman") if call[0] == "pull"]


@pytest.mark.parametrize(
    ("uname", "image", "runs"),
    [
        ("x86_64", "amd64", True),
        ("aarch64", "arm64", True),
        ("ppc64le", "ppc64le", True),
        ("ppc64le", "amd64", False),
        ("x86_64", "arm64", False),
    ],
)
def test_a_release_for_other_machines_is_refused_where_a_person_sees_it(node, uname, image, runs):
    machine(node, uname)
    node.answer(architecture=image)

    done = node.run("release-image-download.sh")

    issue = node.file("/etc/issue.d/50_release-image.issue")
    assert (done.returncode == 0) is runs, done.stdout
    assert issue.exists() is not runs
    assert runs or f"is built for {image}" in issue.read_text()


def test_crio_gets_the_pause_image_of_the_release(node):
    done = node.run("crio-configure.sh")

    assert done.returncode == 0, done.stdout
    config = node.file("/etc/crio/crio.conf.d/50-bootstrap-override.conf").read_text()
    assert 'pause_image = "payload.example/pod"\n' in config


def test_the_kubelet_runs_static_pods_with_the_pause_image(node):
    node.run("kubelet.sh")

    (flags,) = node.calls("kubelet")
    assert f"--pod-manifest-path={node.root}/etc/kubernetes/manifests" in flags
    assert "--pod-infra-container-image=payload.example/pod" in flags
    assert "--runtime-request-timeout=10m" in flags
    assert not [flag for flag in flags if flag.startswith(("--node-ip", "--address"))]


@pytest.mark.parametrize(
    ("environ", "service_network", "expected"),
    [
        ({}, ("fd02::/112",), ["--node-ip=::"]),
        ({}, ("172.30.0.0/16", "fd02::/112"), []),
        (
            {"OPENSHIFT_INSTALL_BOOTSTRAP_NODE_IP": "192.0.2.7"},
            ("172.30.0.0/16",),
            ["--node-ip=192.0.2.7", "--address=192.0.2.7"],
        ),
        (
            {"OPENSHIFT_INSTALL_BOOTSTRAP_NODE_IP": "2001:db8::7"},
            ("fd02::/112",),
            ["--node-ip=2001:db8::7", "--address=2001:db8::7"],
        ),
    ],
)
def test_the_kubelets_address_follows_the_cluster_or_the_override(new_node, environ, service_network, expected):
    node = new_node(environ, networking={"serviceNetwork": service_network})

    node.run("kubelet.sh")

    (flags,) = node.calls("kubelet")
    assert [flag for flag in flags if flag.startswith(("--node-ip", "--address"))] == expected


def test_a_kubelet_that_knows_no_pause_image_flag_is_given_none(new_node):
    node = new_node({"OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE": "registry.example.org/release:4.22.0-x86_64"})

    node.run("kubelet.sh")

    (flags,) = node.calls("kubelet")
    assert not [flag for flag in flags if "infra-container" in flag]


def test_the_node_image_is_checked_out_next_to_the_running_system(node):
    (node.root / "ostree/repo/tmp/node-image/left-over").mkdir(parents=True)
    node.answer(reads=["refused", "ok"], os_pulls=["reset", "ok"], while_sleeping=[{}, {}])

    done = node.run("node-image-pull.sh")

    assert done.returncode == 0, done.stdout
    checkout = node.root / "ostree/repo/tmp/node-image"
    pulls = [call for call in node.calls("ostree") if call[:3] == ["container", "image", "pull"]]
    assert len(pulls) == 2
    assert pulls[1][-1] == "ostree-unverified-image:docker://payload.example/rhel-coreos"
    assert node.answers()["skipped"] == ["/usr/etc/hostname", "/usr/etc/moorage/bootstrap.env"]
    assert checkout.is_dir()
    assert not list(checkout.iterdir())
    assert ["--options", "remount,rw", "/sysroot"] in node.calls("mount")


def test_a_live_system_keeps_the_node_image_in_memory(new_node):
    node = new_node({"MOORAGE_STREAM": "okd"})
    node.file("/run").mkdir()
    node.file("/run/ostree-live").touch()

    done = node.run("node-image-pull.sh")

    assert done.returncode == 0, done.stdout
    (checkout,) = [call for call in node.calls("ostree") if call[0] == "checkout"]
    assert checkout[-1] == f"{node.root}/var/nodeimage/checkout"
    assert "--require-hardlinks" not in checkout
    assert any("docker://payload.example/stream-coreos" in word for call in node.calls("ostree") for word in call)
    assert not node.file("/var/nodeimage/repo").exists()


def test_an_unclear_repository_is_refused(node):
    node.answer(refs=["ostree/container/image/docker_a", "ostree/container/image/docker_b"])

    done = node.run("node-image-pull.sh")

    assert done.returncode != 0
    assert "found 2" in done.stdout


@pytest.mark.parametrize("on_disk", [True, False])
def test_the_overlay_takes_the_checkout_that_was_made(node, on_disk):
    checkout = "/ostree/repo/tmp/node-image" if on_disk else "/var/nodeimage/checkout"
    node.file(checkout).mkdir(parents=True)

    done = node.run("node-image-overlay.sh")

    assert done.returncode == 0, done.stdout
    assert ["--options", "rbind,ro", f"{node.root}{checkout}/usr", "/usr"] in node.calls("mount")
    assert node.calls("mount")[0][-1] == f"{node.root}{checkout}/usr/lib/modules"
    assert node.calls("rsync") == [["--archive", f"{node.root}{checkout}/usr/etc/", f"{node.root}/etc"]]


def test_the_log_bundle_has_all_parts_and_no_secret(node):
    node.answer(
        **{
            "get nodes": [
                {
                    "items": [
                        {
                            "metadata": {"labels": {"node-role.kubernetes.io/master": ""}},
                            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.10"}]},
                        },
                        {
                            "metadata": {"labels": {"node-role.kubernetes.io/worker": ""}},
                            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.20"}]},
                        },
                    ]
                }
            ],
            "get machineconfigs": [
                {"items": [{"spec": {"config": {"storage": {"files": [{"path": "/a", "contents": "TOPSECRET"}]}}}}]}
            ],
        }
    )
    node.run("crio-configure.sh")

    done = node.run("installer-gather.sh", "--id", "20260101")

    archive = node.root / "root/log-bundle-20260101.tar.gz"
    assert f"Log bundle written to {archive}" in done.stdout, done.stdout
    assert archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as bundle:
        files = {
            member.name.removeprefix("log-bundle-20260101/"): bundle.extractfile(member).read()
            for member in bundle.getmembers()
            if member.isfile()
        }
    assert {
        "gather.log",
        "bootstrap/journals/bootkube.log",
        "bootstrap/network/ip-addr.txt",
        "bootstrap/containers/etcdctl-c0ffee.log",
        "bootstrap/services/crio-configure.jsonl",
        "control-plane/192.0.2.10/journals/kubelet.log",
        "rendered-assets/manifests/cluster-config.yaml",
        "rendered-assets/tls/root-ca.crt",
        "resources/nodes.json",
        "resources/machineconfigs.json",
    } <= set(files)
    assert not [name for name in files if name.startswith("control-plane/192.0.2.20")]
    assert [name for name, content in files.items() if b"TOPSECRET" in content] == []
    assert json.loads(files["resources/machineconfigs.json"])["items"][0]["spec"]["config"]["storage"]["files"] == [
        {"path": "/a"}
    ]


def test_the_log_bundle_goes_to_the_addresses_it_is_told(node):
    node.run("installer-gather.sh", "--id", "1", "192.0.2.30")

    (call,) = node.calls("ssh")
    assert "core@192.0.2.30" in call


def test_the_generator_boots_to_the_overlay_only_without_the_nodes_programs(node, tmp_path):
    target = tmp_path / "units"
    target.mkdir()
    generator = "../../../etc/systemd/system-generators/node-image-overlay-generator"

    node.run(generator, str(target))
    assert not (target / "default.target").is_symlink()

    rpm = node.fakes / "bin/rpm"
    rpm.unlink()
    rpm.write_text("#!/bin/sh\nexit 1\n")
    rpm.chmod(0o755)
    node.run(generator, str(target))

    assert (target / "default.target").readlink().as_posix() == "/etc/systemd/system/node-image-overlay.target"


def test_the_journal_gateways_user_owns_its_key(node):
    node.run("gatewayd-key.sh")

    tls = f"{node.root}/opt/openshift/tls"
    assert node.calls("chown") == [
        ["systemd-journal-gateway:", f"{tls}/journal-gatewayd.crt", f"{tls}/journal-gatewayd.key"]
    ]
