"""Evictions and budgets: when a pod may go, what is said when it may not, and what a budget counts."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from moorage.lab.kube import disruption, options
from tests.unit.lab.kube import controllers_world as worlds

Object = worlds.Object
NO = "Cannot evict pod as it would violate the pod's disruption budget."


def _pod(world: worlds.World, name: str, *, ready: bool = True, owner: Object | None = None) -> Object:
    owners = [] if owner is None else [worlds.owned_by(owner, controller=True)]
    meta = {"labels": {"app": "web"}, "ownerReferences": owners}
    pod = world.put("v1", "Pod", name, metadata=meta, spec={"nodeName": "n1", **worlds.template()["spec"]})
    world.run(pod, ready=ready)
    return world.find("Pod", name)


def _budget(world: worlds.World, name: str = "web", **spec: Any) -> Object:
    return world.put(
        "policy/v1", "PodDisruptionBudget", name, spec={"selector": {"matchLabels": {"app": "web"}}, **spec}
    )


def _counted(world: worlds.World, allowed: int, healthy: int = 1, desired: int = 1, name: str = "web") -> None:
    """Fill in a status as if the controller had counted."""
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": healthy,
    }
    world.change("PodDisruptionBudget", name, lambda content: content.update(status=status))


def _evict(world: worlds.World, name: str, *, dry_run: bool = False, **delete_options: Any) -> Object:
    body: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    if delete_options:
        body["deleteOptions"] = delete_options
    return disruption.evict(world.api, "default", name, body, options.Options(dry_run=dry_run))


def _status(world: worlds.World, name: str = "web") -> Object:
    found: Object = world.get("PodDisruptionBudget", name)["status"]
    return found


def test_a_pod_without_a_budget_is_deleted_gracefully_with_the_reason_on_it() -> None:
    async def told() -> None:
        world = worlds.World()
        _pod(world, "a")
        answer = _evict(world, "a")
        assert (answer["status"], answer["code"]) == ("Success", 201)
        pod = world.find("Pod", "a")
        assert pod is not None
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
        reason = {each["type"]: each.get("reason") for each in pod["status"]["conditions"]}
        assert reason["DisruptionTarget"] == "EvictionByEvictionAPI"

    worlds.story(told())


def test_a_budget_gives_out_what_it_allows_and_no_more() -> None:
    async def told() -> None:
        world = worlds.World()
        _pod(world, "a")
        _pod(world, "b")
        _budget(world, minAvailable=1)
        _counted(world, allowed=1, healthy=2)
        _evict(world, "a")
        assert _status(world)["disruptionsAllowed"] == 0
        assert list(_status(world)["disruptedPods"]) == ["a"]
        assert _status(world)["conditions"][0]["reason"] == "InsufficientPods"
        refusal = worlds.refused(lambda: _evict(world, "b"))
        assert (refusal.code, refusal.reason, refusal.message) == (429, "TooManyRequests", NO)
        assert refusal.retry_after == 0
        assert refusal.details["causes"] == [
            {
                "reason": "DisruptionBudget",
                "message": "The disruption budget web needs 1 healthy pods and has 2 currently",
            }
        ]
        assert "deletionTimestamp" not in world.get("Pod", "b")["metadata"]

    worlds.story(told())


def test_a_budget_that_was_changed_is_counted_before_it_is_trusted() -> None:
    async def told() -> None:
        world = worlds.World()
        _pod(world, "a")
        _budget(world, minAvailable=0)
        _counted(world, allowed=1)
        world.client("PodDisruptionBudget", "web", lambda content: content["spec"].update(minAvailable=1))
        refusal = worlds.refused(lambda: _evict(world, "a"))
        assert (refusal.code, refusal.retry_after) == (429, 10)
        told = "The disruption budget web is still being processed by the server."
        assert refusal.details["causes"][0]["message"] == told

    worlds.story(told())


def test_two_budgets_for_one_pod_are_one_too_many() -> None:
    async def told() -> None:
        world = worlds.World()
        _pod(world, "a")
        for name in ("one", "two"):
            _budget(world, name, minAvailable=0)
            _counted(world, allowed=1, name=name)
        refusal = worlds.refused(lambda: _evict(world, "a"))
        assert refusal.code == 500
        assert refusal.message == (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )

    worlds.story(told())


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_what_does_not_run_is_no_disruption(phase: str) -> None:
    async def told() -> None:
        world = worlds.World()
        _pod(world, "a")
        world.change("Pod", "a", lambda content: content["status"].update(phase=phase))
        _budget(world, minAvailable=1)
        _counted(world, allowed=0)
        _evict(world, "a")
        found = world.find("Pod", "a")
        assert found is None or "deletionTimestamp" in found["metadata"]
        assert "disruptedPods" not in _status(world)

    worlds.story(told())


@pytest.mark.parametrize(
    ("policy", "healthy", "goes"),
    [
        ("AlwaysAllow", 0, True),
        ("IfHealthyBudget", 0, False),
        ("IfHealthyBudget", 1, True),
        ("", 0, False),
        ("", 1, True),
    ],
)
def test_an_unhealthy_pod_goes_if_the_others_suffice_or_the_policy_says_so(
    policy: str, healthy: int, goes: bool
) -> None:
    async def told() -> None:
        world = worlds.World()
        _pod(world, "sick", ready=False)
        _budget(world, minAvailable=1, **({"unhealthyPodEvictionPolicy": policy} if policy else {}))
        _counted(world, allowed=0, healthy=healthy)
        if goes:
            _evict(world, "sick")
            assert "disruptedPods" not in _status(world)
        else:
            assert worlds.refused(lambda: _evict(world, "sick")).code == 429

    worlds.story(told())


def test_a_rehearsal_changes_nothing() -> None:
    async def told() -> None:
        world = worlds.World()
        _pod(world, "a")
        _budget(world, minAvailable=1)
        _counted(world, allowed=1, healthy=2)
        revision = world.store.revision
        assert _evict(world, "a", dry_run=True)["status"] == "Success"
        assert _evict(world, "a", dryRun=["All"])["status"] == "Success"
        assert world.store.revision == revision

    worlds.story(told())


def test_preconditions_and_grace_are_honoured() -> None:
    async def told() -> None:
        world = worlds.World()
        pod = _pod(world, "a")
        for wrong in ({"uid": "another"}, {"resourceVersion": "1"}):
            refusal = worlds.refused(lambda wrong=wrong: _evict(world, "a", preconditions=wrong))
            assert refusal.code == 409
            assert refusal.message.startswith('Operation cannot be fulfilled on Pod "a": the ')
        right = {"uid": pod["metadata"]["uid"], "resourceVersion": pod["metadata"]["resourceVersion"]}
        _evict(world, "a", preconditions=right, gracePeriodSeconds=5)
        assert world.get("Pod", "a")["metadata"]["deletionGracePeriodSeconds"] == 5

    worlds.story(told())


def test_an_eviction_of_another_name_or_of_nobody_is_refused() -> None:
    async def told() -> None:
        world = worlds.World()
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "b"}}
        refusal = worlds.refused(lambda: disruption.evict(world.api, "default", "a", body, options.Options()))
        assert (refusal.code, refusal.message) == (400, "name in URL does not match name in Eviction object")
        assert worlds.refused(lambda: _evict(world, "ghost")).code == 404

    worlds.story(told())


@pytest.mark.parametrize(
    ("spec", "desired", "expected"),
    [
        ({"minAvailable": 2}, 2, 3),
        ({"minAvailable": "50%"}, 3, 5),
        ({"maxUnavailable": 1}, 4, 5),
        ({"maxUnavailable": "30%"}, 3, 5),
        ({"maxUnavailable": 9}, 0, 5),
        ({}, 0, 3),
    ],
)
def test_a_budget_counts_what_it_wants_from_the_scale_of_the_controllers(
    spec: Object, desired: int, expected: int
) -> None:
    async def told() -> None:
        world = worlds.World()
        owner = world.put(
            "apps/v1",
            "ReplicaSet",
            "web",
            spec={
                "replicas": 5,
                "selector": {"matchLabels": {"app": "web"}},
                "template": worlds.template(app="web"),
            },
        )
        for name in ("a", "b"):
            _pod(world, name, owner=owner)
        _pod(world, "sick", ready=False, owner=owner)
        _budget(world, **spec)
        async with worlds.working(disruption.Budgets(world.api)):
            status = await world.until(lambda: "observedGeneration" in _status(world) and _status(world))
        assert (status["desiredHealthy"], status["expectedPods"], status["currentHealthy"]) == (desired, expected, 2)
        assert status["disruptionsAllowed"] == max(0, 2 - desired)

    worlds.story(told())


def test_a_share_of_pods_that_nobody_can_count_allows_nothing() -> None:
    async def told() -> None:
        world = worlds.World()
        _pod(world, "a", owner=world.widget("owner"))
        _budget(world, maxUnavailable=1)
        _counted(world, allowed=1)
        async with worlds.working(disruption.Budgets(world.api)):
            await world.until(lambda: _status(world)["disruptionsAllowed"] == 0)
        refusal = worlds.refused(lambda: _evict(world, "a"))
        assert refusal.details["causes"][0]["message"] == (
            "The disruption budget web does not allow evicting pods currently because it failed sync:"
            ' found no controllers for pod "a"'
        )

    worlds.story(told())


def test_an_eviction_that_came_to_nothing_is_forgotten_in_time() -> None:
    async def told() -> None:
        world = worlds.World()
        _pod(world, "a")
        _budget(world, minAvailable=0)
        _counted(world, allowed=0)
        since = (world.clock.wall() - datetime.timedelta(seconds=60)).strftime("%Y-%m-%dT%H:%M:%SZ")
        world.change("PodDisruptionBudget", "web", lambda content: content["status"].update(disruptedPods={"a": since}))
        began = world.clock.now()
        async with worlds.working(disruption.Budgets(world.api)):
            await world.until(lambda: "observedGeneration" in _status(world) and _status(world)["currentHealthy"] == 0)
            await world.until(lambda: _status(world)["disruptionsAllowed"] == 1)
        assert world.clock.now() - began > 50
        assert "disruptedPods" not in _status(world)

    worlds.story(told())


def test_evicting_one_after_the_other_empties_a_node_without_breaking_the_budget() -> None:
    async def told() -> None:
        world = worlds.World()
        for name in ("a", "b", "c"):
            _pod(world, name)
        _budget(world, minAvailable=2)
        budgets = disruption.Budgets(world.api)
        async with worlds.working(budgets):
            await world.until(lambda: _status(world)["disruptionsAllowed"] == 1)
            _evict(world, "a")
            assert worlds.refused(lambda: _evict(world, "b")).code == 429
            world.delete("Pod", "a", grace_seconds=0)
            await world.rest(budgets)
            assert worlds.refused(lambda: _evict(world, "b")).code == 429
            _pod(world, "d")
            await world.until(lambda: _status(world)["disruptionsAllowed"] == 1)
            _evict(world, "b")

    worlds.story(told())
