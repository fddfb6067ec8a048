"""The kinds of objects that controllers read and write, and the paths at which an API server has them.

A kind is a value: nothing is discovered. A path that the server does not serve is a 404 of the call that needs it.
"""

from __future__ import annotations

import dataclasses
from urllib import parse


@dataclasses.dataclass(frozen=True)
class Kind:
    """``group`` is empty for the core group; ``plural`` is the word in paths."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Of one object, of all in a namespace, or (without a namespace) of all there are."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = ["namespaces", namespace] if self.namespaced and namespace else []
        parts += [self.plural, name, subresource] if name else [self.plural]
        return "/".join([root, *(parse.quote(part, safe="") for part in parts if part)])

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


_MACHINE = "machine.openshift.io"
_CONFIG = "config.openshift.io"

MACHINE = Kind(_MACHINE, "v1beta1", "machines", "Machine")
MACHINE_SET = Kind(_MACHINE, "v1beta1", "machinesets", "MachineSet")
MACHINE_HEALTH_CHECK = Kind(_MACHINE, "v1beta1", "machinehealthchecks", "MachineHealthCheck")

NODE = Kind("", "v1", "nodes", "Node", namespaced=False)
NAMESPACE = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
POD = Kind("", "v1", "pods", "Pod")
SECRET = Kind("", "v1", "secrets", "Secret")
CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap")
EVENT = Kind("", "v1", "events", "Event")
DAEMON_SET = Kind("apps", "v1", "daemonsets", "DaemonSet")
DEPLOYMENT = Kind("apps", "v1", "deployments", "Deployment")
PDB = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
CSR = Kind("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", namespaced=False)
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease")

INFRASTRUCTURE = Kind(_CONFIG, "v1", "infrastructures", "Infrastructure", namespaced=False)
NETWORK = Kind(_CONFIG, "v1", "networks", "Network", namespaced=False)
CLUSTER_OPERATOR = Kind(_CONFIG, "v1", "clusteroperators", "ClusterOperator", namespaced=False)
