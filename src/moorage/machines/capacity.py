"""What one machine of a set would bring, told to the cluster autoscaler by annotations.

A set without machines has no node to learn it from. The platform reads it from the provider spec, if it can: its
``machine`` module may have a function ``capacity(provider_spec)`` that gives ``vCPU``, ``memoryMb`` and ``GPU``.
Each is written in OpenShift's spelling, which is ours, and in the autoscaler's own, where a user may know better: there
only what is missing or was written here before is written. The other hints there are (labels, taints, maxPods) are the
user's and stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from moorage.engine import errors

Object = Mapping[str, Any]
Reading = Callable[[Object], Mapping[str, int] | None]

CPU: Final = "machine.openshift.io/vCPU"
MEMORY: Final = "machine.openshift.io/memoryMb"
GPU: Final = "machine.openshift.io/GPU"
_OURS: Final = frozenset((CPU, MEMORY, GPU))
_AUTOSCALER: Final = "capacity.cluster-autoscaler.kubernetes.io"
GPU_TYPE: Final = "nvidia.com/gpu"


def reading(platform_machines: object) -> Reading | None:
    """The platform's own reading of its provider specs; None if it has none."""
    found = getattr(platform_machines, "capacity", None)
    return cast("Reading", found) if callable(found) else None


def hints(machine_set: Object, read: Reading | None) -> dict[str, str]:
    """The annotations that the set is to have and has not, by its template as it is now."""
    template = ((machine_set.get("spec") or {}).get("template") or {}).get("spec") or {}
    spec = (template.get("providerSpec") or {}).get("value")
    if read is None or not isinstance(spec, Mapping):
        return {}
    try:
        wanted = _written(read(spec) or {})
    except errors.PlatformFailure:
        # The spec is wrong: its machines will say so, each in its own status.
        return {}
    present = machine_set["metadata"].get("annotations") or {}
    # What was written last is told by our own annotations, which are always written together with the autoscaler's.
    before = _written({"vCPU": present.get(CPU), "memoryMb": present.get(MEMORY), "GPU": present.get(GPU)})
    return {
        key: value
        for key, value in wanted.items()
        if present.get(key) != value and (key in _OURS or present.get(key) in (None, before.get(key)))
    }


def _written(capacity: Mapping[str, int | str | None]) -> dict[str, str]:
    found: dict[str, str] = {}
    if cpu := capacity.get("vCPU"):
        found |= {CPU: str(cpu), f"{_AUTOSCALER}/cpu": str(cpu)}
    if memory := capacity.get("memoryMb"):
        found |= {MEMORY: str(memory), f"{_AUTOSCALER}/memory": f"{memory}Mi"}
    if gpus := capacity.get("GPU"):
        found |= {GPU: str(gpus), f"{_AUTOSCALER}/gpu-count": str(gpus), f"{_AUTOSCALER}/gpu-type": GPU_TYPE}
    return found
