"""Why workers that the cluster makes itself are not there: what their Machines say, and who should be making them.

Workers come from MachineSets, by controllers that run in the cluster as a Deployment. So when some are missing there
are three places to look, one behind the other: a Machine that waits for something, a MachineSet that nobody acts on,
and controllers that do not run, most often because the nodes cannot pull their image.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from moorage.assets import machine_api_manifests as controllers
from moorage.installer import wording
from moorage.machines import objects, overview, phases

Object = Mapping[str, Any]

SETS: Final = f"/apis/machine.openshift.io/v1beta1/namespaces/{controllers.NAMESPACE}/machinesets"
DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{controllers.NAMESPACE}/deployments/{controllers.NAME}"
PODS: Final = f"/api/v1/namespaces/{controllers.NAMESPACE}/pods?labelSelector=k8s-app%3D{controllers.NAME}"

_NAMED: Final = f"the machine controllers (Deployment {controllers.NAMESPACE}/{controllers.NAME})"
_PULLING: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RegistryUnavailable",
    "SignatureValidationFailed",
)
#: "its disk to be ready" is something to wait for, "the engine does not answer" is not.
_AWAITED: Final = re.compile(r"\S[^:]* to (be|end|show)\b")
#: `overview` calls a machine neglected after a while; here the controllers are asked themselves.
_ANY_TIME: Final = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclasses.dataclass(frozen=True)
class Sight:
    """Who makes workers, and of what. All of it is empty on platforms whose workers are somebody else's affair."""

    sets: Sequence[Object] = ()
    deployment: Object = dataclasses.field(default_factory=dict)
    pods: Sequence[Object] = ()


def is_at_work(deployment: Object) -> bool:
    """Whether the controllers need no look at their pods: somebody is at work, or there are none in this cluster."""
    return not deployment or bool(objects.status(deployment).get("availableReplicas"))


def sentences(sight: Sight, machines: Sequence[Object], asking: Mapping[str, overview.Request]) -> Iterator[str]:
    """What is known of the workers that are not nodes yet; ``asking`` has the pending requests by node name."""
    yield from _idle(sight)
    for found in sight.sets:
        wanted, there = counts(found)
        if there < wanted:
            yield f"the MachineSet {objects.name(found)} has made {there} of {wanted} machines"
    missing = [
        machine
        for machine in machines
        if objects.role(machine) != "master" and not objects.node_name(machine) and not objects.failure(machine)
    ]
    reasons = ((objects.name(each), (_phase(each), overview.why(each, {}, asking, _ANY_TIME))) for each in missing)
    for (phase, why), names in wording.together(reasons).items():
        if len(names) == 1:
            yield f"the machine {names[0]} is {phase}{_leading(why, 'waits')}"
        else:
            yield f"the machines {', '.join(wording.cut(names, 'machines'))} are {phase}{_leading(why, 'wait')}"


def advice(sight: Sight, machines: Sequence[Object], root: Path) -> str:
    """What helps controllers that do not run, or where to see what machines wait for; empty if nothing is wrong.

    ``root`` is the asset directory of the cluster: commands that do not name it would look elsewhere for one.
    """
    if not is_at_work(sight.deployment):
        image = next((image for image, _ in _unpulled(sight.pods)), "")
        return _advice_on_image(image, root) if image else _advice_on_end(sight.pods)
    waiting = [each for each in machines if objects.role(each) != "master" and not objects.node_name(each)]
    if not (sight.deployment and waiting):
        return ""
    return f"see what each waits for: {wording.command('moorage machines --once', root)}"


def _advice_on_image(image: str, root: Path) -> str:
    change = f"oc -n {controllers.NAMESPACE} set image deployment/{controllers.NAME} '*=IMAGE'"
    return (
        f"push {image} to where the nodes can pull it (pull secret, mirror, proxy), or name another: {change}; "
        f"until then this makes the workers from here: {wording.command('moorage machine-api run', root)}"
    )


def _advice_on_end(pods: Sequence[Object]) -> str:
    if not next(_ended(pods), ""):
        return ""
    return f"see all they said: oc -n {controllers.NAMESPACE} logs deployment/{controllers.NAME} --previous"


def _idle(sight: Sight) -> Iterator[str]:
    if is_at_work(sight.deployment):
        return
    for image, message in _unpulled(sight.pods):
        yield f"{_NAMED} do not run: the image {image} cannot be pulled: {wording.short(message)}"
        return
    told = [*_ended(sight.pods), *_homeless(sight.pods)]
    yield f"{_NAMED} do not run{': ' if told else ' yet'}{told[0] if told else ''}"


def _unpulled(pods: Sequence[Object]) -> Iterator[tuple[str, str]]:
    """Images that cannot be had, and what the kubelet says about it."""
    for container in _containers(pods):
        waits = (container.get("state") or {}).get("waiting") or {}
        if waits.get("reason") in _PULLING:
            yield str(container.get("image") or "of theirs"), str(waits.get("message") or waits["reason"])


def _ended(pods: Sequence[Object]) -> Iterator[str]:
    """The last words of a container that has ended and is to be started again."""
    for container in _containers(pods):
        state = container.get("state") or {}
        over = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
        if over:
            words = str(over.get("message") or over.get("reason") or "").strip().splitlines()
            yield f"they ended with {over.get('exitCode', '?')}" + (
                f", saying: {wording.short(words[-1])}" if words else ""
            )


def _homeless(pods: Sequence[Object]) -> Iterator[str]:
    for pod in pods:
        for found in objects.conditions(pod):
            if found.get("type") == "PodScheduled" and found.get("status") == "False":
                why = str(found.get("message") or found.get("reason") or "no reason given")
                yield f"no node takes them: {wording.short(why)}"


def _containers(pods: Sequence[Object]) -> Iterator[Object]:
    for pod in pods:
        yield from objects.status(pod).get("containerStatuses") or ()


def counts(found: Object) -> tuple[int, int]:
    """How many machines a MachineSet is to have, and has."""
    wanted = objects.spec(found).get("replicas")
    return 1 if wanted is None else int(wanted), int(objects.status(found).get("replicas") or 0)


def _phase(machine: Object) -> str:
    return phases.phase(machine) or "new"


def _leading(why: str, waits: str) -> str:
    """What follows on the phase: what is waited for, or what came in the way."""
    why = wording.short(why or "for its node")
    if why.startswith(("for ", "to ")):
        return f", and {waits} {why}"
    return f", and {waits} for {why}" if _AWAITED.match(why) else f": {why}"
