"""Every recorded sequence of writes, told to the lab's whole API: it has to end as it did on the real server.

Other tests hold single functions against single steps; here a case begins with nothing, and each step meets what the
lab itself made of the steps before it: reading, defaults, the kind's rules, managed fields and storing together.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.lab.kube import api as apis
from moorage.lab.kube import cluster, options, problem
from tests.unit.lab.kube import patch_cases, replay

# What differs, by step, and why it may.
_ACCEPTED = {
    "apply-not-yaml-1": "a YAML reader's own words; that it is refused, and with which code, is the same",
    "apply-no-manager-1": "that an apply names its manager is asked of the request's query, before the API is called",
}
# Not recorded, for they are each server's own; addresses of services are drawn by lot.
_OWN = ("uid", "resourceVersion", "creationTimestamp", "generation")
_ADDRESSES = ("clusterIP", "clusterIPs")

_CASES = [list(steps) for _, steps in itertools.groupby(replay.moments(), key=lambda moment: moment.case.name)]


@pytest.fixture(scope="module")
def api() -> apis.Api:
    found = cluster.Kube(clocks.ManualClock(), service_network="10.0.0.0/24").api
    found.create(found.kind("apiextensions.k8s.io", "CustomResourceDefinition"), "", patch_cases.WIDGETS)
    return _without_nulls(found)


def _without_nulls(value: Any) -> Any:
    """Go shows some values that are not there, such as the time at which a template was created."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("steps", _CASES, ids=lambda steps: steps[0].case.name)
def test_a_recorded_case_goes_as_it_went_on_the_real_server(
    api: apis.Api, steps: list[replay.Moment], monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment in steps:
        monkeypatch.setattr(api, "time", lambda moment=moment: moment.time)
        refusal, found = _played(api, moment)
        expected = (moment.code, moment.status.get("message", "")) if moment.after is None else None
        if str(moment) in _ACCEPTED:
            assert refusal != expected, f"{moment} is as on the real server now: it need not be accepted any more"
            continue
        assert refusal == expected, str(moment)
        if moment.after is not None:
            assert _compared(found) == _compared(moment.after), str(moment)
            assert replay.books(found) == replay.books(moment.after), str(moment)


def test_what_is_accepted_is_among_the_cases() -> None:
    assert _ACCEPTED.keys() <= {str(moment) for moment in replay.moments()}


def _played(api: apis.Api, moment: replay.Moment) -> tuple[tuple[int, str] | None, Any]:
    """How the lab refuses a step, if it does, and the object after it."""
    step, case = moment.step, moment.case
    kind = api.kind(moment.kind.group, case.kind)
    namespace = "default" if kind.namespaced else ""
    before = api.find(kind, namespace, case.name)
    sent = patch_cases.sent(case, step, None if before is None else json.loads(before.data))
    # Who gives no name is known by their program's, which was this one.
    how = options.Options(manager=step.manager or "recorder", force=step.force)
    try:
        if step.verb == "create":
            api.create(kind, namespace, sent, how)
        elif step.verb == "update":
            api.update(kind, namespace, case.name, sent, how, step.subresource)
        else:
            body = sent if isinstance(sent, str) else json.dumps(sent)
            api.patch(kind, namespace, case.name, step.type, body, how, step.subresource)
    except problem.Problem as refused:
        return (refused.code, refused.message), None
    return None, json.loads(api.get(kind, namespace, case.name).data)


def _compared(content: Any) -> Any:
    found = replay.plain(content)
    found["metadata"] = {key: value for key, value in found["metadata"].items() if key not in _OWN}
    if found["kind"] == "Service":
        found["spec"] = {key: value for key, value in found["spec"].items() if key not in _ADDRESSES}
    return _without_nulls(found)


def _without_nulls(value: Any) -> Any:
    """Go shows some values that are not there, such as the time at which a template was created."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
