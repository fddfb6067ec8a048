"""The variables of openshift-install's oVirt modules for Terraform, for those who provision with it.

Moorage itself needs no Terraform and never reads this file. The engine's address and credentials are not in it: they
belong to whoever runs Terraform, who names them by environment (``TF_VAR_ovirt_url``, ``TF_VAR_ovirt_password``, …).
"""

from __future__ import annotations

import json
from typing import Final

from moorage.assets import platform
from moorage.platforms.ovirt import config as sections
from moorage.platforms.ovirt import machines_manifests

FILE: Final = "terraform.ovirt.auto.tfvars.json"


def render(context: platform.Context) -> bytes:
    """The file's content."""
    chosen = sections.settings(context.config)
    pool = sections.defaults(context.config, "master")
    found: dict[str, object] = {
        "ovirt_cluster_id": chosen.ovirt_cluster_id,
        "ovirt_storage_domain_id": chosen.ovirt_storage_domain_id,
        "ovirt_network_name": chosen.ovirt_network_name,
        "ovirt_affinity_groups": [
            {
                "name": machines_manifests.affinity_group(context, group.name),
                "priority": group.priority,
                "description": group.description,
                "enforcing": group.enforcing,
            }
            for group in chosen.affinity_groups
        ],
        **_master(context, pool),
    }
    if chosen.vnic_profile_id:
        found["ovirt_vnic_profile_id"] = chosen.vnic_profile_id
    if chosen.template:
        # Without one Terraform wants ovirt_base_image_local_file_path: where the image lies is not known here.
        found["ovirt_base_image_name"] = chosen.template
    return json.dumps(found, indent=2, sort_keys=True).encode() + b"\n"


def _master(context: platform.Context, pool: sections.MachinePool) -> dict[str, object]:
    groups = [machines_manifests.affinity_group(context, name) for name in pool.affinity_groups_names or ()]
    return {
        "ovirt_master_instance_type_id": pool.instance_type_id,
        "ovirt_master_vm_type": pool.vm_type,
        "ovirt_master_memory": pool.memory_mb,
        "ovirt_master_cores": pool.cpu.cores if pool.cpu else 0,
        "ovirt_master_sockets": pool.cpu.sockets if pool.cpu else 0,
        "ovirt_master_threads": pool.cpu.threads if pool.cpu else 0,
        "ovirt_master_os_disk_gb": pool.os_disk.size_gb if pool.os_disk else 0,
        "ovirt_master_affinity_groups": groups,
        "ovirt_master_auto_pinning_policy": pool.auto_pinning_policy,
        "ovirt_master_hugepages": pool.hugepages,
        "ovirt_master_clone": pool.clone,
        "ovirt_master_sparse": pool.sparse,
        "ovirt_master_format": pool.format,
    }
