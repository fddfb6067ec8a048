"""What is done about an unhealthy machine: it is deleted, so that its set makes another; or somebody else is asked.

Somebody else is asked by an object made from the check's template and named like the machine, which is kept until the
machine is healthy; or, where the check bears the annotation for it, by an annotation of the machine. Caches may be
behind, and neither a machine nor what others do to one can be brought back: so before it is deleted, or they are asked,
it is judged again, by what the API says now.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

from moorage.engine import clock as clocks
from moorage.machines import events, healthcheck_rules, objects, phases
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import errors, kinds, metrics

Object = Mapping[str, Any]

STRATEGY: Final = "machine.openshift.io/remediation-strategy"
EXTERNAL_STRATEGY: Final = "external-baremetal"
CLONED_FROM: Final = "machine.openshift.io/cloned-from-name"
CLONED_FROM_KIND: Final = "machine.openshift.io/cloned-from-groupkind"
TEMPLATE: Final = "Template"

SKIPPED: Final = "SkippedNoController"
DELETED: Final = "MachineDeleted"
DELETION_FAILED: Final = "MachineDeletionFailed"
ANNOTATED: Final = "ExternalAnnotationAdded"
ANNOTATION_FAILED: Final = "ExternalAnnotationFailed"


class TemplateMissing(errors.ApiError):
    """The check's template is not there, or holds nothing that could be made."""


class RequestRefused(errors.ApiError):
    """The request for remediation could not be made."""


def told(check: Object, machine: Object) -> str:
    """A machine as events name it: where it is, who looks after it, what it is and what it has become."""
    parts = (objects.namespace(check), objects.name(check), objects.name(machine), objects.node_name(machine))
    return "/".join(parts)


def kind_of(reference: Object, *, of_requests: bool = False) -> kinds.Kind:
    """The kind that a reference names; with ``of_requests`` the one that its template is for.

    The word in paths is the kind's plural in small letters, as every generator of definitions makes it.
    """
    group, _, version = str(reference.get("apiVersion") or "").rpartition("/")
    kind = str(reference.get("kind") or "")
    kind = kind.removesuffix(TEMPLATE) if of_requests else kind
    return kinds.Kind(group, version, _plural(kind.lower()), kind)


def request(template: Object, reference: Object, machine: Object) -> dict[str, Any]:
    """The object by which somebody is asked to see to a machine."""
    inner = objects.spec(template).get("template")
    if not isinstance(inner, Mapping):
        raise TemplateMissing(f"{reference.get('kind')} {reference.get('name')} has no spec.template")
    made = copy.deepcopy(dict(inner))
    meta = objects.metadata(made)
    group = kind_of(reference).group
    made["metadata"] = {
        **({"labels": meta["labels"]} if meta.get("labels") else {}),
        # One for each machine: whoever comes second finds it there.
        "name": objects.name(machine),
        "namespace": objects.namespace(machine),
        "annotations": {
            **(meta.get("annotations") or {}),
            CLONED_FROM: str(reference.get("name") or ""),
            CLONED_FROM_KIND: f"{reference.get('kind')}.{group}" if group else str(reference.get("kind")),
        },
        "ownerReferences": [
            {
                "apiVersion": kinds.MACHINE.api_version,
                "kind": kinds.MACHINE.kind,
                "name": objects.name(machine),
                "uid": objects.uid(machine),
            }
        ],
    }
    return made


class Remediation:
    """Acts on verdicts. ``check`` raises if this process may no longer act."""

    def __init__(
        self, client: clients.Client, clock: clocks.Clock, recorder: events.Recorder, check: Callable[[], None]
    ) -> None:
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._check = check

    # -- by the machine itself -----------------------------------------------------------------------------------------

    def remediate(self, check: Object, machine: Object, rules: healthcheck_rules.Rules) -> None:
        """Have the machine replaced, or ask for that by annotation."""
        strategy = objects.notes(check).get(STRATEGY)
        if strategy == EXTERNAL_STRATEGY and not phases.is_failed(machine):
            self._annotate(check, machine, rules)
        elif objects.owner(machine) is None:
            # Nobody would make another: a machine of the control plane without a set of its own, as a rule.
            message = f"Machine {told(check, machine)} has no controller owner, skipping remediation"
            self._recorder.event(machine, events.NORMAL, SKIPPED, message)
        elif self._still_unhealthy(machine, rules):
            self._delete(check, machine)

    def _still_unhealthy(self, machine: Object, rules: healthcheck_rules.Rules) -> bool:
        try:
            current = self._client.get(kinds.MACHINE, objects.name(machine), objects.namespace(machine))
        except errors.NotFound:
            return False
        if objects.uid(current) != objects.uid(machine) or not rules.covers(current):
            return False
        node: Object | None = None
        if name := objects.node_name(current):
            try:
                node = self._client.get(kinds.NODE, name)
            except errors.NotFound:
                node = None
        verdict = healthcheck_rules.judge(current, node, rules, self._clock.wall())
        return isinstance(verdict, healthcheck_rules.Unhealthy)

    def _delete(self, check: Object, machine: Object) -> None:
        self._check()
        name, place, uid = objects.name(machine), objects.namespace(machine), objects.uid(machine)
        try:
            self._client.delete(kinds.MACHINE, name, place, uid=uid)
        except (errors.NotFound, errors.Conflict):
            return  # it has gone; a conflict means that another has its name by now
        except errors.ApiError as refused:
            message = f"Machine {told(check, machine)} remediation failed: unable to delete Machine object: {refused}"
            self._recorder.event(machine, events.WARNING, DELETION_FAILED, message)
            raise
        message = f"Machine {told(check, machine)} has been remediated by requesting to delete Machine object"
        self._recorder.event(machine, events.NORMAL, DELETED, message)
        metrics.REMEDIATIONS.labels(objects.name(check), objects.namespace(check)).inc()

    def _annotate(self, check: Object, machine: Object, rules: healthcheck_rules.Rules) -> None:
        if healthcheck_rules.EXTERNAL in objects.notes(machine) or not self._still_unhealthy(machine, rules):
            return
        self._check()
        body = {"metadata": {"uid": objects.uid(machine), "annotations": {healthcheck_rules.EXTERNAL: ""}}}
        asking = f"Requesting external remediation of node associated with machine {told(check, machine)}"
        try:
            self._client.patch(kinds.MACHINE, objects.name(machine), objects.namespace(machine), body)
        except errors.NotFound:
            return
        except errors.ApiError as refused:
            self._recorder.event(machine, events.WARNING, ANNOTATION_FAILED, f"{asking} failed: {refused}")
            raise
        self._recorder.event(machine, events.NORMAL, ANNOTATED, asking)

    # -- by a template -------------------------------------------------------------------------------------------------

    def requests(self, check: Object) -> dict[str, Object]:
        """The requests that were made from the check's template and are there, by the name of their machine."""
        kind = kind_of(_template(check), of_requests=True)
        try:
            listed, _ = self._client.list(kind, objects.namespace(check))
        except errors.NotFound as missing:
            raise RequestRefused(f"the API has no {kind}, which the template is for", code=missing.code) from missing
        return {objects.name(each): each for each in listed}

    def ask(self, check: Object, machine: Object, rules: healthcheck_rules.Rules) -> None:
        """Make a request for the machine."""
        if not self._still_unhealthy(machine, rules):
            return
        reference = _template(check)
        self._check()
        named = f"{reference.get('kind')} {objects.namespace(machine)}/{reference.get('name')}"
        try:
            template = self._client.get(
                kind_of(reference), str(reference.get("name") or ""), objects.namespace(machine)
            )
        except errors.NotFound as missing:
            raise TemplateMissing(f"there is no {named}", code=missing.code) from missing
        wanted = request(template, reference, machine)
        try:
            self._client.create(kind_of(reference, of_requests=True), wanted)
        except errors.AlreadyExists:
            return
        except errors.ApiError as refused:
            raise RequestRefused(
                f"a request from {named} for {objects.name(machine)} could not be made: {refused}",
                code=refused.code,
                retry_after=refused.retry_after,
            ) from refused

    def withdraw(self, check: Object, found: Object) -> None:
        """The machine is healthy: whoever was asked may stop. Requests of others' templates are others' to end."""
        reference = _template(check)
        held = objects.notes(found)
        if objects.is_deleted(found) or held.get(CLONED_FROM) != reference.get("name"):
            return
        kind = kind_of(reference, of_requests=True)
        try:
            self._client.delete(kind, objects.name(found), objects.namespace(found), uid=objects.uid(found))
        except (errors.NotFound, errors.Conflict):
            return


def _template(check: Object) -> Object:
    found: Object = objects.spec(check).get("remediationTemplate") or {}
    return found


def _plural(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"
