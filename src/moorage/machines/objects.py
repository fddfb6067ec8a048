"""Machine objects as the API has them: where each thing stands in them, and what is wanted of a platform for one.

Everything here reads plain dicts and changes none. What others wrote may lack anything that the schema does not
demand, so a missing part reads as an empty one; what no instance can be made without is told with its field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from moorage.engine import errors
from moorage.platforms import contract

Object = Mapping[str, Any]

API: Final = "machine.openshift.io/v1beta1"
FINALIZER: Final = "machine.machine.openshift.io"

CLUSTER_LABEL: Final = "machine.openshift.io/cluster-api-cluster"
ROLE_LABEL: Final = "machine.openshift.io/cluster-api-machine-role"
SET_LABEL: Final = "machine.openshift.io/cluster-api-machineset"
TYPE_LABEL: Final = "machine.openshift.io/instance-type"
REGION_LABEL: Final = "machine.openshift.io/region"
ZONE_LABEL: Final = "machine.openshift.io/zone"

STATE_ANNOTATION: Final = "machine.openshift.io/instance-state"
EXCLUDE_DRAIN: Final = "machine.openshift.io/exclude-node-draining"
DELETE_FIRST: Final = "machine.openshift.io/delete-machine"
#: On a Node: the machine that it is, as ``namespace/name``.
MACHINE_ANNOTATION: Final = "machine.openshift.io/machine"

INVALID: Final = "InvalidConfiguration"
CREATE_ERROR: Final = "CreateError"
UPDATE_ERROR: Final = "UpdateError"

_BOOTSTRAP: Final = "bootstrap"


@dataclasses.dataclass(frozen=True)
class Hook:
    """Somebody's wish that a machine should not be drained, or not be removed, before they say so."""

    name: str
    owner: str


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why a machine is given up: ``reason`` for programs, ``message`` for people."""

    reason: str
    message: str


# -- any object --------------------------------------------------------------------------------------------------------


def metadata(thing: Object) -> Object:
    return thing.get("metadata") or {}


def name(thing: Object) -> str:
    return str(metadata(thing).get("name") or "")


def namespace(thing: Object) -> str:
    return str(metadata(thing).get("namespace") or "")


def uid(thing: Object) -> str:
    return str(metadata(thing).get("uid") or "")


def age(thing: Object) -> tuple[str, str]:
    """Sorts the oldest first; those of one second always in the same order."""
    return str(metadata(thing).get("creationTimestamp") or ""), uid(thing)


def revision(thing: Object) -> str:
    return str(metadata(thing).get("resourceVersion") or "")


def key(thing: Object) -> str:
    """``namespace/name``: what queues and informers know an object by."""
    return f"{namespace(thing)}/{name(thing)}" if namespace(thing) else name(thing)


def split(found: str) -> tuple[str, str]:
    """A key's namespace and name."""
    where, _, what = found.rpartition("/")
    return where, what


def labels(thing: Object) -> Mapping[str, str]:
    return metadata(thing).get("labels") or {}


def notes(thing: Object) -> Mapping[str, str]:
    """Its annotations."""
    return metadata(thing).get("annotations") or {}


def finalizers(thing: Object) -> Sequence[str]:
    return metadata(thing).get("finalizers") or ()


def is_deleted(thing: Object) -> bool:
    """Whether its deletion was asked for; it may be kept for a while by finalizers or a grace period."""
    return bool(metadata(thing).get("deletionTimestamp"))


def owner(thing: Object) -> Object | None:
    """The reference to the one controller that manages it."""
    return next((each for each in metadata(thing).get("ownerReferences") or () if each.get("controller")), None)


def spec(thing: Object) -> Object:
    return thing.get("spec") or {}


def status(thing: Object) -> Object:
    return thing.get("status") or {}


def conditions(thing: Object) -> Sequence[Mapping[str, Any]]:
    return status(thing).get("conditions") or ()


# -- machines ----------------------------------------------------------------------------------------------------------


def provider_id(machine: Object) -> str:
    return str(spec(machine).get("providerID") or "")


def node_name(machine: Object) -> str:
    """The node that it has become; empty until then."""
    return str((status(machine).get("nodeRef") or {}).get("name") or "")


def node_uid(machine: Object) -> str:
    return str((status(machine).get("nodeRef") or {}).get("uid") or "")


def role(machine: Object) -> str:
    """master, worker or another's word; never bootstrap, whose instances are removed as temporary."""
    found = labels(machine).get(ROLE_LABEL) or ""
    return found if found and found != _BOOTSTRAP else "worker"


def hooks(machine: Object, when: str) -> tuple[Hook, ...]:
    """The lifecycle hooks that hold it up; ``when`` is preDrain or preTerminate."""
    found = (spec(machine).get("lifecycleHooks") or {}).get(when) or ()
    return tuple(Hook(str(each.get("name") or ""), str(each.get("owner") or "")) for each in found)


def failure(machine: Object) -> Failure | None:
    """Why it was given up, if it was."""
    found = status(machine)
    if not found.get("errorReason") and not found.get("errorMessage"):
        return None
    return Failure(str(found.get("errorReason") or ""), str(found.get("errorMessage") or ""))


def provider_spec(machine: Object) -> Mapping[str, object]:
    """``spec.providerSpec.value``; `Terminal` if there is nothing to make an instance of."""
    value = (spec(machine).get("providerSpec") or {}).get("value")
    if not value:
        raise _wrong(machine, "spec.providerSpec.value", "must be set")
    if not isinstance(value, Mapping):
        raise _wrong(machine, "spec.providerSpec.value", "is not an object")
    return value


def user_data_secret(machine: Object) -> str:
    """The name of the Secret with the machine's user data; empty if none is named."""
    found = provider_spec(machine).get("userDataSecret")
    if found is None:
        return ""
    named = found.get("name") if isinstance(found, Mapping) else None
    if not isinstance(named, str) or not named:
        raise _wrong(machine, "spec.providerSpec.value.userDataSecret.name", "must be the name of a Secret")
    return named


def wanted(machine: Object, user_data: bytes, infra_id: str, vips: Iterable[str] = ()) -> contract.Machine:
    """The machine as a platform is asked for it; `Terminal` if its spec is needed and there is none.

    A machine whose instance is known, or that is to go, is found by that: its spec may be unreadable by then.
    """
    value = (spec(machine).get("providerSpec") or {}).get("value")
    if not isinstance(value, Mapping) or not value:
        value = {} if is_deleted(machine) or provider_id(machine) else provider_spec(machine)
    return contract.Machine(
        name=name(machine),
        infra_id=infra_id,
        role=role(machine),
        provider_spec=value,
        user_data=user_data,
        provider_id=provider_id(machine),
        not_addresses=tuple(vips),
    )


def addresses(machine: Object, instance: contract.Instance) -> list[dict[str, str]]:
    """``status.addresses``: the node's names, which are the machine's, and what the platform says it has.

    A platform that tells no address at the moment (the guest is rebooting) has not taken away those it told before.
    """
    found = list(instance.addresses) or [
        str(each.get("address"))
        for each in status(machine).get("addresses") or ()
        if each.get("type") == "InternalIP" and each.get("address")
    ]
    named = name(machine)
    return [
        *({"type": "InternalIP", "address": each} for each in dict.fromkeys(found)),
        {"type": "Hostname", "address": named},
        {"type": "InternalDNS", "address": named},
    ]


def virtual_addresses(infrastructure: Object) -> tuple[str, ...]:
    """The VIPs that the Infrastructure object tells, whatever the platform: any node may carry them for a while."""
    found: list[str] = []
    for section in (status(infrastructure).get("platformStatus") or {}).values():
        if not isinstance(section, Mapping):
            continue
        for field in ("apiServerInternalIPs", "ingressIPs"):
            found += [str(each) for each in section.get(field) or ()]
        found += [str(section[field]) for field in ("apiServerInternalIP", "ingressIP") if section.get(field)]
    return tuple(dict.fromkeys(found))


def _wrong(machine: Object, field: str, what: str) -> errors.Terminal:
    return errors.Terminal(
        f"{name(machine)}: {field} {what}",
        resource=name(machine),
        remedy="correct the machine's spec (or its MachineSet's) and make it anew",
    )
