"""A real cluster without nodes: etcd, kube-apiserver and kube-controller-manager on loopback addresses.

`tools/real-kube` knows where the programs are; etcd is Debian's, or the one beside them. There is no scheduler and no
kubelet, so a story that needs a pod to run plays the kubelet itself.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import urllib3

from tests.kube import cluster, pki

ROOT = Path(__file__).resolve().parents[2]
START = 90.0


@functools.cache
def folder() -> Path | None:
    """Where the real programs are, if they are anywhere."""
    found = subprocess.run([ROOT / "tools/real-kube", "--where"], capture_output=True, text=True)
    return Path(found.stdout.strip()) if found.returncode == 0 else None


def program(name: str) -> str | None:
    """A real program by name: etcd, kubectl, kube-apiserver, kube-controller-manager."""
    found = folder()
    if found is not None and os.access(found / name, os.X_OK):
        return str(found / name)
    return shutil.which(name) if name in ("etcd", "kubectl") else None


def address() -> str:
    """A loopback address that nobody else is likely to have chosen."""
    return f"127.{random.randint(64, 127)}.{random.randint(0, 255)}.{random.randint(1, 254)}"


def free_port(host: str) -> int:
    with socket.socket() as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
        return port


class Processes:
    """Programs that run until the end, with their logs in a folder; a program that ends early shows its log."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *words: str) -> None:
        found = program(name)
        assert found, f"{name} is not to be had"
        with (self._logs / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen([found, *words], stdout=log, stderr=subprocess.STDOUT)

    def wait_for(self, name: str, url: str, **tls: str) -> None:
        """Until a health URL answers 200."""
        deadline = time.monotonic() + START
        with urllib3.PoolManager(**tls) as pool:  # type: ignore[arg-type]
            while time.monotonic() < deadline:
                with contextlib.suppress(urllib3.exceptions.HTTPError):
                    if pool.request("GET", url, retries=False, timeout=2).status == 200:
                        return
                assert self.running[name].poll() is None, f"{name} ended:\n{self._log(name)}"
                time.sleep(0.1)
        raise AssertionError(f"{name} is not ready after {START:.0f} s:\n{self._log(name)}")

    def _log(self, name: str) -> str:
        return (self._logs / f"{name}.log").read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        """End all, the last first; etcd goes when nobody writes any more."""
        for process in reversed(self.running.values()):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _files(work: Path, host: str, authority: pki.Authority) -> None:
    server = authority.server(host, "10.0.0.1")
    (work / "server.crt").write_text(server.certificate)
    (work / "server.key").write_text(server.key)
    (work / "ca.key").write_text(authority.pair.key)
    key = pki.service_account_key()
    (work / "sa.key").write_text(pki.key_pem(key))
    (work / "sa.pub").write_text(pki.public_pem(key))
    lines = [f'{token},{user},,"{",".join(groups)}"' for token, (user, groups) in cluster.TOKENS.items()]
    (work / "tokens.csv").write_text("\n".join(lines) + "\n")


def _start_etcd(processes: Processes, work: Path, host: str) -> str:
    url, peers = (f"http://{host}:{free_port(host)}" for _ in range(2))
    processes.start(
        "etcd",
        f"--data-dir={work / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        # The machine may be switched off: nobody wants these objects back.
        "--unsafe-no-fsync",
    )
    processes.wait_for("etcd", f"{url}/health")
    return url


def _start_apiserver(processes: Processes, work: Path, host: str, etcd: str) -> str:
    port = free_port(host)
    processes.start(
        "kube-apiserver",
        f"--etcd-servers={etcd}",
        f"--bind-address={host}",
        f"--secure-port={port}",
        "--advertise-address=192.0.2.1",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={work}",
        f"--tls-cert-file={work / 'server.crt'}",
        f"--tls-private-key-file={work / 'server.key'}",
        f"--client-ca-file={work / 'ca.crt'}",
        f"--token-auth-file={work / 'tokens.csv'}",
        f"--service-account-key-file={work / 'sa.pub'}",
        f"--service-account-signing-key-file={work / 'sa.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-bootstrap-token-auth",
        # On in 1.32 and in 1.34, off by default in between.
        "--feature-gates=WatchList=true",
    )
    url = f"https://{host}:{port}"
    processes.wait_for("kube-apiserver", f"{url}/readyz", ca_certs=str(work / "ca.crt"))
    return url


def _start_controllers(processes: Processes, work: Path, made: cluster.Cluster) -> None:
    kubeconfig = made.kubeconfig("system:kube-controller-manager", ())
    processes.start(
        "kube-controller-manager",
        f"--kubeconfig={kubeconfig}",
        "--secure-port=0",
        "--leader-elect=false",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={work / 'sa.key'}",
        f"--root-ca-file={made.ca}",
        f"--cluster-signing-cert-file={made.ca}",
        f"--cluster-signing-key-file={work / 'ca.key'}",
        # Nodes of the stories have no kubelet that would renew their leases; requests are approved by the stories.
        "--controllers=*,-node-lifecycle-controller,-certificatesigningrequest-approving-controller",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    )


def _compact(etcd: str) -> None:
    """Through etcd's own gateway, at the revision it has reached."""
    with urllib3.PoolManager() as pool:
        found = pool.request("POST", f"{etcd}/v3/kv/range", body=json.dumps({"key": "AA=="}), timeout=10).json()
        body = json.dumps({"revision": found["header"]["revision"], "physical": True})
        answer = pool.request("POST", f"{etcd}/v3/kv/compaction", body=body, timeout=10)
        assert answer.status == 200, answer.data


def _accounts(made: cluster.Cluster) -> bool:
    return made.admin.get("/api/v1/namespaces/default/serviceaccounts/default").code == 200


@contextlib.contextmanager
def running(work: Path, controllers: bool = True) -> Iterator[tuple[cluster.Cluster, Processes]]:
    """The cluster, and the processes it is made of, until the end of the block."""
    host = address()
    kubectl = program("kubectl")
    assert kubectl, "kubectl is not to be had"
    authority = pki.Authority()
    _files(work, host, authority)
    (work / "ca.crt").write_text(authority.pair.certificate)
    processes = Processes(work)
    try:
        etcd = _start_etcd(processes, work, host)
        url = _start_apiserver(processes, work, host, etcd)
        made = cluster.Cluster("real", work, url, authority, kubectl, lambda: _compact(etcd))
        if controllers:
            _start_controllers(processes, work, made)
            deadline = time.monotonic() + START
            while not _accounts(made):
                assert time.monotonic() < deadline, "the controllers made no service account"
                time.sleep(0.1)
        yield made, processes
    finally:
        processes.stop()
