"""The static pod of a node: keepalived, CoreDNS, on masters HAProxy, and the agent that looks after them.

One image has all programs. The containers share their processes, so that the agent can tell a program to read its
config again; and the node's network, since it is the node's addresses that they serve.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.assets import objects, values
from moorage.network import checks, corefile, haproxy, keepalived, settings, view

PATH = "/etc/kubernetes/manifests/moorage-network.yaml"
NAMESPACE = "openshift-moorage-network"

RUN = "/run/moorage"
KEEPALIVED_PID, HAPROXY_PID = f"{RUN}/keepalived.pid", f"{RUN}/haproxy.pid"
HALT_MARK = f"{RUN}/keepalived.halt"
"""While it is there, keepalived is not to run: the agent has taken it away, or does not let it begin yet."""

KUBECONFIGS = {
    view.BOOTSTRAP: "/opt/openshift/auth/kubeconfig-loopback",
    view.MASTER: "/var/lib/kubelet/kubeconfig",
    view.WORKER: "/var/lib/kubelet/kubeconfig",
}

# The kubelet would start a program that was stopped on purpose again, with growing pauses: so somebody stays and waits.
# A keepalived that fails is the kubelet's affair. Who is asked to end lets keepalived say good-bye.
_KEEPALIVED = f"""\
child=
trap 'test -z "$child" || {{ kill -TERM "$child"; wait "$child"; }}; exit 0' TERM INT
while true; do
  while test -e {HALT_MARK}; do sleep 1 & wait $!; done
  keepalived -f {keepalived.PATH} --dont-fork --vrrp --log-console --log-detail --pid={KEEPALIVED_PID} \
--vrrp_pid={RUN}/keepalived-vrrp.pid &
  child=$!
  wait "$child" && code=0 || code=$?
  child=
  test "$code" -eq 0 || exit "$code"
done
"""
_HAPROXY = f"exec haproxy -W -db -p {HAPROXY_PID} -f {haproxy.PATH}"
_COREDNS = f"exec coredns -conf {corefile.PATH} -dns.port 53"

_FOLDERS = {
    "settings": "/etc/moorage",
    "keepalived": "/etc/keepalived",
    "haproxy": "/etc/haproxy",
    "coredns": "/etc/coredns",
    "run": RUN,
    "network-manager": "/run/NetworkManager",
}


def pod(wanted: settings.Settings, role: str) -> values.Manifest:
    """The pod of a role."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "moorage-network",
            "namespace": NAMESPACE,
            "labels": {"app": "moorage-network", "role": role},
            "annotations": {"target.workload.openshift.io/management": '{"effect": "PreferredDuringScheduling"}'},
        },
        "spec": {
            "hostNetwork": True,
            "shareProcessNamespace": True,
            "dnsPolicy": "Default",
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 15,
            "initContainers": [_agent(wanted, role, "render", "render")],
            "containers": list(_containers(wanted, role)),
            "volumes": [_volume(name, path) for name, path in _volumes(role).items()],
        },
    }


def to_yaml(wanted: settings.Settings, role: str) -> bytes:
    return objects.to_yaml(pod(wanted, role))


def _volumes(role: str) -> dict[str, str]:
    return {**_FOLDERS, "kubelet": "/opt/openshift/auth" if role == view.BOOTSTRAP else "/var/lib/kubelet"}


def _volume(name: str, path: str) -> dict[str, object]:
    return {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}


def _containers(wanted: settings.Settings, role: str) -> Iterator[dict[str, object]]:
    yield _program(wanted, "keepalived", _KEEPALIVED, ("keepalived", "run"), privileged=True)
    health: dict[str, object] = {"host": "127.0.0.1", "path": "/health", "port": checks.DNS_HEALTH_PORT}
    yield {
        **_program(wanted, "coredns", _COREDNS, ("coredns",)),
        "livenessProbe": _probe({"httpGet": health}),
    }
    if role == view.MASTER:
        # Whether masters answer is not HAProxy's fault: that it listens is all that is asked of it.
        listening: dict[str, object] = {"host": "127.0.0.1", "port": checks.BALANCED_PORT}
        yield {
            **_program(wanted, "haproxy", _HAPROXY, ("haproxy", "run")),
            "livenessProbe": _probe({"tcpSocket": listening}),
        }
    yield _agent(wanted, role, "network-monitor", "run")


def _probe(how: dict[str, object]) -> dict[str, object]:
    return {**how, "initialDelaySeconds": 30, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 5}


def _program(
    wanted: settings.Settings, name: str, script: str, mounts: tuple[str, ...], *, privileged: bool = False
) -> dict[str, object]:
    # What is not privileged still has to get past SELinux, for the files are the node's.
    confined: dict[str, object] = {"seLinuxOptions": {"type": "spc_t"}}
    return {
        "name": name,
        "image": wanted.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", script],
        "securityContext": {"privileged": True} if privileged else confined,
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [_mount(each, _FOLDERS[each], read_only=each != "run") for each in mounts],
    }


def _agent(wanted: settings.Settings, role: str, name: str, verb: str) -> dict[str, object]:
    mounts = [_mount(each, path, read_only=each == "network-manager") for each, path in _FOLDERS.items()]
    mounts.append(_mount("kubelet", _volumes(role)["kubelet"], read_only=True))
    return {
        "name": name,
        "image": wanted.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["moorage", "node-network", verb, "--role", role],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "securityContext": {"privileged": True},
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def _mount(name: str, path: str, *, read_only: bool) -> dict[str, object]:
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}
