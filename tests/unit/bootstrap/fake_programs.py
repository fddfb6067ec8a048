"""Stand-ins for the programs of a bootstrap node: one file under many names.

Each call is appended to ``calls.jsonl`` in the folder that FAKES names. How a program answers is data in the same
folder: ``answers.json``, which a test writes and a call may change (a pull that fails twice, a cluster that gets ready
while somebody sleeps).
"""

import json
import os
import pathlib
import signal
import subprocess
import sys

FAKES = pathlib.Path(os.environ["FAKES"])
ROOT = os.environ.get("MOORAGE_ROOT", "")

RENDERED = {
    "api-render": ["api-bootstrap/manifests/api.yaml"],
    "auth-api-render": ["auth-api-bootstrap/manifests/auth.yaml"],
    "config-render": ["config-bootstrap/config", "config-bootstrap/cloud-provider-config-generated.yaml"],
    "cvo-render": ["cvo-bootstrap/bootstrap/cvo-pod.yaml", "cvo-bootstrap/manifests/cvo.yaml"],
    "etcd-render": [
        "etcd-bootstrap/tls/etcd-ca-bundle.crt",
        "etcd-bootstrap/tls/etcd-client.crt",
        "etcd-bootstrap/manifests/etcd.yaml",
        "etcd-bootstrap/etc-kubernetes/manifests/etcd-member-pod.yaml",
        "etcd-bootstrap/etc-kubernetes/static-pod-resources/etcd-member/server.crt",
    ],
    "kube-apiserver-render": [
        "kube-apiserver-bootstrap/config",
        "kube-apiserver-bootstrap/bootstrap-manifests/kube-apiserver-pod.yaml",
        "kube-apiserver-bootstrap/manifests/kas.yaml",
    ],
    "kube-controller-manager-render": [
        "kube-controller-manager-bootstrap/config",
        "kube-controller-manager-bootstrap/cpc-config",
        "kube-controller-manager-bootstrap/bootstrap-manifests/kcm-pod.yaml",
        "kube-controller-manager-bootstrap/manifests/kcm.yaml",
    ],
    "kube-scheduler-render": [
        "kube-scheduler-bootstrap/config",
        "kube-scheduler-bootstrap/bootstrap-manifests/ks-pod.yaml",
        "kube-scheduler-bootstrap/manifests/ks.yaml",
    ],
    "ingress-render": ["ingress-operator-bootstrap/cluster-ingress-00.yaml"],
    "node-tuning-render": [],
    "mco-render": [
        "mco-bootstrap/bootstrap/manifests/controllerconfig.yaml",
        "mco-bootstrap/bootstrap/machineconfigoperator-bootstrap-pod.yaml",
        "mco-bootstrap/manifests/csr-bootstrap-role-binding.yaml",
    ],
    "cco-render": [
        "cco-bootstrap/manifests/cco.yaml",
        "cco-bootstrap/bootstrap-manifests/cloud-credential-operator-pod.yaml",
    ],
    "etcdctl": [],
    "cluster-bootstrap": [],
    "wait-for-ceo": [],
}


def answers():
    path = FAKES / "answers.json"
    return json.loads(path.read_text()) if path.exists() else {}


def change(**changes):
    (FAKES / "answers.json").write_text(json.dumps(answers() | changes))


def stop(status, message=""):
    print(message, file=sys.stderr)
    sys.exit(status)


def kill_everything():
    os.killpg(os.getpgrp(), signal.SIGKILL)


def take_turn(key, default):
    """The next of several answers; the last one stays."""
    turns = answers().get(key, [default])
    if len(turns) > 1:
        change(**{key: turns[1:]})
    return turns[0]


def podman(arguments):
    match arguments:
        case ["image", "exists", _]:
            sys.exit(0 if answers().get("image_exists", True) else 1)
        case ["pull", *_]:
            if take_turn("pulls", "ok") != "ok":
                stop(125, "connection refused")
            change(image_exists=True)
        case ["image", "inspect", "--format", _, _]:
            print(answers().get("architecture", "amd64"))
        case ["image", "inspect", image]:
            digest = "sha256:" + "a" * 64
            repository = image.rpartition(":")[0]
            repo_digests = [f"{repository}@sha256:{'b' * 64}", f"{repository}@{digest}"]
            print(json.dumps([{"Digest": digest, "RepoDigests": repo_digests}]))
        case ["run", *_] if "--entrypoint=cat" in arguments:
            if take_turn("reads", "ok") != "ok":
                stop(125, "unauthorized")
            tags = [
                {"name": name, "from": {"kind": "DockerImage", "name": f"payload.example/{name}"}}
                for name in answers()["images"]
            ]
            print(json.dumps({"kind": "ImageStream", "spec": {"tags": tags}}))
        case ["run", *_]:
            run(arguments)
        case ["ps", "--all", "--format", _]:
            print("c0ffee etcdctl")
        case _:
            print("podman", *arguments)


def run(arguments):
    name = next(word.partition("=")[2] for word in arguments if word.startswith("--name="))
    assets = pathlib.Path(next(word for word in arguments if word.endswith(":/assets:z")).split("=")[1].split(":")[0])
    known = answers()
    if known.get("kill_in") == name:
        change(kill_in=None)
        for path in RENDERED[name][:1]:
            leave(assets / pathlib.Path(path).parent / "half-made", "x")
        kill_everything()
    if known.get("fail_in") == name:
        print(f"{name}: first words", flush=True)
        stop(3, f"{name}: cannot render: disk is full")
    if name == "etcdctl" and take_turn("etcd", "healthy") != "healthy":
        stop(1, "context deadline exceeded")
    if known.get("idle_in") == name:
        return
    for path in RENDERED[name] + known.get("also_rendered", {}).get(name, []):
        leave(assets / path, f"{name} made {path}\n")
    if name == "node-tuning-render":
        (assets / "node-tuning-bootstrap").mkdir(exist_ok=True)


def leave(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def oc(arguments):
    known = answers()
    words = [word for word in arguments if not word.startswith("--")]
    match words:
        case ["adm", "release", "info", *_]:
            print(
                json.dumps(
                    {"metadata": {"version": "4.20.33"}, "displayVersions": {"kubernetes": {"Version": "1.33.5"}}}
                )
            )
        case ["adm", "certificate", "approve", name]:
            if take_turn("approvals", "ok") != "ok":
                stop(1, "the server is overloaded")
            change(approved=[*known.get("approved", []), name])
        case ["patch", *_]:
            if take_turn("patches", "ok") != "ok":
                stop(1, "connection refused")
        case ["get", "configmap", "bootstrap"]:
            print(known.get("reported", ""), end="")
        case ["apply"]:
            if take_turn("applies", "ok") != "ok":
                stop(1, "connection refused")
            change(applied=sys.stdin.read(), reported="complete")
        case ["get", *kinds]:
            answer = take_turn(f"get {kinds[0]}" if kinds else "get raw", {"items": []})
            if answer is None:
                stop(1, "the connection to the server was refused")
            print(json.dumps(answer))


def sleep(_):
    """Time passes: the next thing that happens meanwhile happens. A sleep nobody planned would be for ever."""
    events = answers().get("while_sleeping", [])
    if not events:
        stop(9, "slept although nothing was going to happen")
    change(while_sleeping=events[1:], **events[0].get("answers", {}))
    for path in events[0].get("touch", []):
        leave(pathlib.Path(ROOT + path), "")


def getent(arguments):
    sys.exit(2 if arguments[-1] in answers().get("unresolvable", []) else 0)


def curl(arguments):
    if any(host in arguments[-1] for host in answers().get("unreachable", [])):
        stop(7, "Failed to connect")


def ostree(arguments):
    known = answers()
    match arguments:
        case ["container", "image", "pull", *_]:
            if take_turn("os_pulls", "ok") != "ok":
                stop(1, "connection reset")
        case ["refs", _]:
            print("\n".join(known.get("refs", ["ostree/container/image/docker_3A__2F__2Fnode", "coreos/other"])))
        case ["admin", "config-diff"]:
            print("M    hostname\nA    moorage/bootstrap.env")
        case ["checkout", *_]:
            skipped = next(word.partition("=")[2] for word in arguments if word.startswith("--skip-list="))
            change(skipped=pathlib.Path(skipped).read_text().splitlines())
            pathlib.Path(arguments[-1]).mkdir(parents=True)


def ssh(arguments):
    script = sys.stdin.read()
    sys.exit(subprocess.call(["bash", "-c", script]))


def kubelet(_):
    pass


def anything(arguments):
    print(pathlib.Path(sys.argv[0]).name, *arguments)


def main():
    name, arguments = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
    with (FAKES / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps([name, *arguments]) + "\n")
    globals().get(name.replace("-", "_"), anything)(arguments)


main()
