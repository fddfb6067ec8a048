"""What every node of a role has on its disk before anybody adds a MachineConfig: kubelet, container runtime, secrets.

The machine-config operator renders these from its templates and what it finds in the cluster's own manifests; they are
MachineConfigs like any other, with names that put them before the user's. The lab's have what its kubelet reads and
what somebody who looks at a node expects to find.
"""

from __future__ import annotations

import base64
import ipaddress
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any

from moorage.lab.nodes import resources, specs

Object = dict[str, Any]

GROUP = "machineconfiguration.openshift.io"
ROLE_LABEL = f"{GROUP}/role"

# Platforms whose cloud controller manager runs outside of the kubelet, which must wait for it.
_WITH_CLOUD_CONTROLLER = frozenset({"AWS", "Azure", "GCP", "IBMCloud", "Nutanix", "OpenStack", "PowerVS", "VSphere"})

_KUBELET_UNIT = """\
[Unit]
Description=Kubernetes Kubelet
Requires=crio.service
After=crio.service network-online.target

[Service]
Type=notify
ExecStartPre=/bin/mkdir --parents /etc/kubernetes/manifests
ExecStart=/usr/bin/kubelet \\
    --config=/etc/kubernetes/kubelet.conf \\
    --bootstrap-kubeconfig=/etc/kubernetes/kubeconfig \\
    --kubeconfig=/var/lib/kubelet/kubeconfig \\
    --container-runtime-endpoint=/var/run/crio/crio.sock \\
{flags}    --v=2
Restart=always
RestartSec=10

[Install]
WantedBy=multi-user.target
"""

_KUBELET_CONF = """\
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  x509:
    clientCAFile: /etc/kubernetes/kubelet-ca.crt
cgroupDriver: systemd
clusterDNS:
- {dns}
clusterDomain: cluster.local
maxPods: 250
nodeStatusReportFrequency: 5m
nodeStatusUpdateFrequency: 10s
rotateCertificates: true
serverTLSBootstrap: true
staticPodPath: /etc/kubernetes/manifests
"""

_CRIO_CONF = """\
[crio.runtime]
default_runtime = "crun"
cgroup_manager = "systemd"
selinux = true

[crio.image]
global_auth_file = "/var/lib/kubelet/config.json"

[crio.network]
network_dir = "/etc/kubernetes/cni/net.d/"
plugin_dirs = ["/var/lib/cni/bin"]
"""


def base(manifests: Iterable[Object], role: str, root_ca: str) -> list[Object]:
    """The MachineConfigs that nodes of a role have in any case."""
    known = list(manifests)
    files = {
        "/etc/kubernetes/apiserver-url.env": _file(_api_url(known)),
        "/etc/kubernetes/ca.crt": _file(root_ca),
        "/etc/kubernetes/cloud.conf": _file(_cloud_config(known)),
        "/var/lib/kubelet/config.json": _file(_pull_secret(known), 0o600),
    }
    kubelet = {
        "name": "kubelet.service",
        "enabled": True,
        "contents": _KUBELET_UNIT.format(flags="".join(f"    {flag} \\\n" for flag in _flags(known, role))),
    }
    kubelet_files = {"/etc/kubernetes/kubelet.conf": _file(_KUBELET_CONF.format(dns=_dns_address(known)))}
    return [
        machine_config(f"00-{role}", role, files, []),
        machine_config(
            f"01-{role}-container-runtime",
            role,
            {"/etc/crio/crio.conf.d/00-default": _file(_CRIO_CONF)},
            [{"name": "crio.service", "enabled": True}],
        ),
        machine_config(f"01-{role}-kubelet", role, kubelet_files, [kubelet]),
    ]


def machine_config(name: str, role: str, files: Mapping[str, Object], units: list[Object]) -> Object:
    """A MachineConfig of these files (by path) and units."""
    config: Object = {"ignition": {"version": specs.written(specs.NEWEST)}}
    if files:
        config["storage"] = {"files": [{"path": path, **files[path]} for path in sorted(files)]}
    if units:
        config["systemd"] = {"units": units}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {ROLE_LABEL: role}},
        "spec": {"config": config},
    }


def _file(content: str, mode: int = 0o644) -> Object:
    return {"mode": mode, "overwrite": True, "contents": {"source": resources.encoded(content.encode())}}


def found(manifests: Iterable[Object], kind: str, name: str, namespace: str = "") -> Object:
    """The object of that kind and name, empty if there is none."""
    for each in manifests:
        metadata = each.get("metadata") or {}
        if each.get("kind") == kind and metadata.get("name") == name and metadata.get("namespace", "") == namespace:
            return each
    return {}


def _flags(manifests: list[Object], role: str) -> list[str]:
    """What the kubelet of a role is told on its command line."""
    control_plane = role == "master"
    roles = ["control-plane", "master"] if control_plane else ["worker"] if role == "worker" else ["worker", role]
    labels = [f"node-role.kubernetes.io/{each}" for each in roles]
    flags = [f"--node-labels={','.join([*labels, 'node.openshift.io/os_id=rhel'])}"]
    scheduler = found(manifests, "Scheduler", "cluster").get("spec") or {}
    if control_plane and not scheduler.get("mastersSchedulable"):
        flags.append("--register-with-taints=node-role.kubernetes.io/master=:NoSchedule")
    return [*flags, f"--cloud-provider={_cloud_provider(manifests)}"]


def _cloud_provider(manifests: list[Object]) -> str:
    status = found(manifests, "Infrastructure", "cluster").get("status") or {}
    platform = (status.get("platformStatus") or {}).get("type") or status.get("platform") or ""
    manager = (((status.get("platformStatus") or {}).get("external") or {}).get("cloudControllerManager")) or {}
    return "external" if platform in _WITH_CLOUD_CONTROLLER or manager.get("state") == "External" else ""


def _api_url(manifests: list[Object]) -> str:
    status = found(manifests, "Infrastructure", "cluster").get("status") or {}
    url = urllib.parse.urlsplit(status.get("apiServerInternalURI") or "")
    return f"KUBERNETES_SERVICE_HOST='{url.hostname or ''}'\nKUBERNETES_SERVICE_PORT='{url.port or 6443}'\n"


def _dns_address(manifests: list[Object]) -> str:
    """The tenth address of the services' network is the one at which pods ask for names."""
    networks = (found(manifests, "Network", "cluster").get("spec") or {}).get("serviceNetwork") or ["172.30.0.0/16"]
    return str(ipaddress.ip_network(networks[0])[10])


def _cloud_config(manifests: list[Object]) -> str:
    given = found(manifests, "ConfigMap", "cloud-provider-config", "openshift-config").get("data") or {}
    return str(given.get("config") or "")


def _pull_secret(manifests: list[Object]) -> str:
    given = found(manifests, "Secret", "pull-secret", "openshift-config")
    if text := (given.get("stringData") or {}).get(".dockerconfigjson"):
        return str(text)
    return base64.b64decode((given.get("data") or {}).get(".dockerconfigjson") or "").decode("utf-8", "replace")
