"""A bootstrap node in a temporary folder: the real files, run by the real bash, among stand-ins for what they start."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from moorage.assets import bootstrap, releases, values
from moorage.config import model

HERE = Path(__file__).parent

PROGRAMS = [
    "podman",
    "oc",
    "sleep",
    "getent",
    "curl",
    "agetty",
    "ostree",
    "mount",
    "rsync",
    "semodule",
    "rpm",
    "kubelet",
    "chown",
    "useradd",
    "ssh",
    "sudo",
    "systemctl",
    "journalctl",
    "ip",
    "ss",
    "hostname",
    "crictl",
    "rpm-ostree",
    "timedatectl",
    "free",
]

IMAGES = [
    "cloud-credential-operator",
    "cluster-authentication-operator",
    "cluster-bootstrap",
    "cluster-config-api",
    "cluster-config-operator",
    "cluster-etcd-operator",
    "cluster-ingress-operator",
    "cluster-kube-apiserver-operator",
    "cluster-kube-controller-manager-operator",
    "cluster-kube-scheduler-operator",
    "cluster-node-tuning-operator",
    "cluster-policy-controller",
    "etcd",
    "hyperkube",
    "machine-config-operator",
    "pod",
    "rhel-coreos",
    "stream-coreos",
]

INSTALLED = {
    "openshift/99_machine.yaml": "kind: Machine\n",
    "openshift/99_kubeadmin-password-secret.yaml": "kind: Secret\ndata: {kubeadmin: TOPSECRET}\n",
    "manifests/cluster-config.yaml": "kind: ConfigMap\n",
    "manifests/unmarked.json": '{"apiVersion": "v1", "kind": "Secret", "data": {"a": "TOPSECRET"}}',
    "tls/root-ca.crt": "root\n",
    "tls/machine-config-server.crt": "mcs certificate\n",
    "tls/machine-config-server.key": "TOPSECRET mcs key\n",
    "auth/kubeconfig": "TOPSECRET admin\n",
    "auth/kubeconfig-kubelet": "TOPSECRET kubelet\n",
    "auth/kubeconfig-loopback": "TOPSECRET loopback\n",
    "original_cvo_overrides.patch": "{}",
}


@dataclasses.dataclass(frozen=True)
class Node:
    """A laid-out bootstrap node."""

    root: Path
    fakes: Path

    def run(
        self, script: str, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        path = self.root / "usr/local/bin" / script
        variables = {
            "PATH": f"{self.fakes}/bin:/usr/bin:/bin",
            "FAKES": str(self.fakes),
            "MOORAGE_ROOT": str(self.root),
            "HOME": str(self.root / "root"),
        }
        return subprocess.run(
            [str(path), *arguments],
            env=variables | dict(environ or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=60,
            start_new_session=True,
        )

    def answer(self, **answers: object) -> None:
        path = self.fakes / "answers.json"
        path.write_text(json.dumps(self.answers() | answers))

    def answers(self) -> dict[str, object]:
        path = self.fakes / "answers.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def calls(self, program: str) -> list[list[str]]:
        path = self.fakes / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [call[1:] for call in map(json.loads, lines) if call[0] == program]

    def containers(self) -> list[str]:
        """The names of the containers that were run over the assets, in order."""
        words = [word for call in self.calls("podman") for word in call if word.startswith("--name=")]
        return [word.partition("=")[2] for word in words]

    def records(self, service: str) -> list[dict[str, str]]:
        path = self.root / f"var/log/openshift/{service}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def outcome(self) -> dict[str, str]:
        """Every file below /opt and /etc with what is in it, but for its own stored inputs' environment."""
        found = {}
        for top in ("opt", "etc"):
            for path in sorted((self.root / top).rglob("*")):
                if path.is_file() and not path.name.startswith("."):
                    found[str(path.relative_to(self.root))] = path.read_text()
        return found

    def file(self, path: str) -> Path:
        return self.root / path.lstrip("/")


def make_config(**changes: object) -> model.InstallConfig:
    base: dict[str, object] = {
        "metadata": model.Metadata(name="demo"),
        "base_domain": "example.org",
        "platform": model.ChosenPlatform(name="none", settings=model.Section()),
        "pull_secret": '{"auths": {"quay.io": {"auth": "VE9QU0VDUkVU"}}}',
    }
    return model.InstallConfig(**(base | changes))


def make_endpoints() -> values.Endpoints:
    domain = "demo.example.org"
    return values.Endpoints(domain, f"api.{domain}", f"api-int.{domain}", f"api-int.{domain}", (), (), ("172.30.0.1",))


def lay_out(folder: Path, files: list[values.IgnitionFile]) -> None:
    for file in files:
        path = folder / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.contents)
        path.chmod(file.mode)


def make_node(folder: Path, environ: Mapping[str, str] | None = None, **changes: object) -> Node:
    """A node as Ignition leaves it, with everything that surrounds it faked."""
    root, fakes = folder / "root", folder / "fakes"
    release = releases.choose("amd64", environ or {})
    wanted = bootstrap.overrides(environ or {})
    lay_out(root, bootstrap.node_files(make_config(**changes), make_endpoints(), release, "tester", wanted))
    for name, content in INSTALLED.items():
        path = root / "opt/openshift" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    programs = fakes / "bin"
    programs.mkdir(parents=True)
    fake = programs / "fake"
    fake.write_text(f"#!{sys.executable} -ES\n" + (HERE / "fake_programs.py").read_text())
    fake.chmod(0o755)
    for name in PROGRAMS:
        (programs / name).symlink_to(fake)
    node = Node(root, fakes)
    node.answer(images=IMAGES)
    return node


def kill_after(node: Node, marker: str) -> None:
    """Arrange for the kill -9 of everything right after the marker has appeared."""
    program = node.fakes / "bin/mv"
    program.write_text(
        "#!/bin/sh\n"
        '/bin/mv "$@"\n'
        f'for last; do :; done; if [ "${{last##*/}}" = "{marker}" ]; then rm "$0"; kill -KILL 0; fi\n'
    )
    program.chmod(0o755)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """The node of an ordinary cluster."""
    return make_node(tmp_path)


@pytest.fixture
def new_node(tmp_path: Path) -> Callable[..., Node]:
    """Nodes of other clusters: ``new_node(environ, field=value…)``."""

    def make(environ: Mapping[str, str] | None = None, **changes: object) -> Node:
        return make_node(tmp_path / os.urandom(4).hex(), environ, **changes)

    return make


@pytest.fixture
def config() -> Callable[..., model.InstallConfig]:
    return make_config


@pytest.fixture
def endpoints() -> values.Endpoints:
    return make_endpoints()


@pytest.fixture
def killing() -> Callable[[Node, str], None]:
    return kill_after


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A node on which bootkube has run undisturbed; for reading only."""
    node = make_node(tmp_path_factory.mktemp("clean"))
    done = node.run("bootkube.sh")
    assert done.returncode == 0, done.stdout
    return node


@pytest.fixture(scope="session")
def clean_outcome(clean: Node) -> dict[str, str]:
    """What an undisturbed bootkube leaves behind."""
    return clean.outcome()
