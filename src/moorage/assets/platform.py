"""What the assets ask of a platform: the manifests hook.

A platform's `manifests.py` provides an object of this shape. The graph receives it as an input, so no asset
ever names a platform. Every method is a pure function of the context: no calls, no clock, no randomness.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from moorage.assets import values
from moorage.config import model


@dataclasses.dataclass(frozen=True)
class Context:
    """What a platform's manifests may depend on."""

    config: model.InstallConfig
    cluster_id: values.ClusterID
    release: values.Release

    @property
    def infra_id(self) -> str:
        return self.cluster_id.infra_id


@dataclasses.dataclass(frozen=True)
class Infrastructure:
    """The platform's part of the Infrastructure object (`config.openshift.io/v1`)."""

    type: str
    spec: Mapping[str, object]
    status: Mapping[str, object]


class Manifests(Protocol):
    """The platform's share of the cluster's manifests."""

    name: str

    def api_vips(self, config: model.InstallConfig) -> tuple[str, ...]:
        """VIPs the platform brings for api and api-int; empty where names and balancers are used."""

    def ingress_vips(self, config: model.InstallConfig) -> tuple[str, ...]:
        """VIPs the platform brings for *.apps; empty likewise."""

    def infrastructure(self, context: Context) -> Infrastructure:
        """The platform block of the Infrastructure object."""

    def cloud_config(self, context: Context) -> Mapping[str, str]:
        """Keys of the `cloud-provider-config` ConfigMap; empty for none."""

    def credentials(self, context: Context) -> tuple[str, Mapping[str, str]] | None:
        """Name and plain values of the credentials secret in kube-system."""

    def masters(self, context: Context) -> Sequence[values.Manifest]:
        """One Machine per control-plane node, in order; empty where the user provides machines."""

    def control_plane_machine_set(self, context: Context) -> values.Manifest | None:
        """The ControlPlaneMachineSet, where the platform has one."""

    def workers(self, context: Context) -> Sequence[values.Manifest]:
        """MachineSets of all compute pools."""

    def worker_machines(self, context: Context) -> Sequence[values.Manifest]:
        """Machines of the workers that `create cluster` makes itself; none where the cluster makes them of its sets."""

    def extra(self, context: Context) -> Mapping[str, values.Manifest]:
        """Further manifests by file name (without folder): drivers, controllers, VIP pods."""

    def bootstrap_files(self, context: Context) -> Sequence[values.IgnitionFile]:
        """Files only the bootstrap node needs on this platform."""

    def bootstrap_units(self, context: Context) -> Sequence[values.IgnitionUnit]:
        """Units only the bootstrap node needs on this platform."""

    def metadata(self, context: Context) -> Mapping[str, object]:
        """The platform block of metadata.json: all that destroy needs, and no secret."""

    def companion_files(self, context: Context) -> values.Files:
        """Files for other tools, by name beside metadata.json (``terraform.*.auto.tfvars.json``), and no secret."""
