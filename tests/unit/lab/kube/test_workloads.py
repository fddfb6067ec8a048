"""Deployments and ReplicaSets, told with nodes that run what they are given."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from moorage.lab.kube import deployments, progress, replicasets, shares
from tests.unit.lab.kube import controllers_world as worlds

Object = worlds.Object


@contextlib.asynccontextmanager
async def _cluster(world: worlds.World) -> AsyncIterator[worlds.Kubelets]:
    sets = replicasets.ReplicaSets(world.api, world.index)
    rollouts = deployments.Deployments(world.api, world.index)
    async with worlds.Kubelets(world) as kubelets, worlds.working(sets, rollouts):
        yield kubelets


def _deployment(world: worlds.World, **spec: Any) -> Object:
    wanted = {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": worlds.template(app="web")}
    return world.put("apps/v1", "Deployment", "web", spec={**wanted, **spec})


def _status(world: worlds.World, kind: str = "Deployment", name: str = "web") -> Object:
    found = world.find(kind, name)
    return {} if found is None else found.get("status", {})


def _image(world: worlds.World, image: str, kind: str = "Deployment") -> None:
    world.client(kind, "web", lambda content: content["spec"]["template"]["spec"]["containers"][0].update(image=image))


def _images(world: worlds.World) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in world.pods()}


def _rolled_out(world: worlds.World, count: int) -> bool:
    found = world.find("Deployment", "web")
    assert found is not None
    status = found["status"]
    return bool(
        status.get("observedGeneration") == found["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == status.get("replicas", 0) == status.get("availableReplicas", 0) == count
    )


def test_a_deployment_brings_up_its_pods_and_says_so() -> None:
    async def told() -> None:
        world = worlds.World()
        async with _cluster(world):
            deployment = _deployment(world)
            await world.until(lambda: _rolled_out(world, 4))
            conditions = {each["type"]: (each["status"], each["reason"]) for each in _status(world)["conditions"]}
            assert conditions == {
                "Available": ("True", "MinimumReplicasAvailable"),
                "Progressing": ("True", "NewReplicaSetAvailable"),
            }
            (name,) = world.names("ReplicaSet")
            replica_set = world.find("ReplicaSet", name)
            assert replica_set is not None
            digest = replica_set["metadata"]["labels"]["pod-template-hash"]
            assert name == f"web-{digest}"
            assert replica_set["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": digest}
            owner = replica_set["metadata"]["ownerReferences"][0]
            assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (
                deployment["metadata"]["uid"],
                True,
                True,
            )
            assert {pod["metadata"]["labels"]["pod-template-hash"] for pod in world.pods()} == {digest}
            assert world.get("Deployment", "web")["metadata"]["annotations"][deployments.REVISION] == "1"

    worlds.story(told())


@pytest.mark.parametrize(("surge", "unavailable"), [(1, 0), (0, 1), ("25%", "25%"), (2, 2)])
def test_a_new_template_is_rolled_out_within_its_limits(surge: int | str, unavailable: int | str) -> None:
    async def told() -> None:
        world = worlds.World()
        rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
        most, fewest = 4 + shares.of(surge, 4, up=True), 4 - shares.of(unavailable, 4, up=False)
        seen: list[tuple[int, int]] = []

        def count(*_: Any) -> None:
            sets = [world.find("ReplicaSet", name) for name in world.names("ReplicaSet")]
            wanted = sum(each["spec"]["replicas"] for each in sets if each)
            available = sum(
                any(
                    each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", [])
                )
                for pod in world.pods()
                if "deletionTimestamp" not in pod["metadata"]
            )
            seen.append((wanted, available))

        async with _cluster(world):
            _deployment(world, strategy={"type": "RollingUpdate", "rollingUpdate": rolling})
            await world.until(lambda: _rolled_out(world, 4))
            world.store.on_write.append(count)
            _image(world, "img:2")
            await world.until(lambda: _rolled_out(world, 4) and _images(world) == {"img:2"})
        assert max(wanted for wanted, _ in seen) <= most
        assert min(available for _, available in seen) >= fewest

    worlds.story(told())


def test_a_roll_out_of_what_never_gets_ready_stops_short_and_says_so_in_time() -> None:
    async def told() -> None:
        world = worlds.World()
        async with _cluster(world) as kubelets:
            _deployment(world, progressDeadlineSeconds=30)
            await world.until(lambda: _rolled_out(world, 4))
            kubelets.broken = lambda pod: pod["spec"]["containers"][0]["image"] == "bad"
            _image(world, "bad")

            def late() -> bool:
                told = {each["type"]: each for each in _status(world)["conditions"]}
                return bool(told["Progressing"]["reason"] == "ProgressDeadlineExceeded")

            await world.until(late)
            assert _status(world)["availableReplicas"] == 3
            assert {each["type"]: each["status"] for each in _status(world)["conditions"]}["Available"] == "True"
            _image(world, "img:1")
            await world.until(lambda: _rolled_out(world, 4) and _images(world) == {"img:1"})
            assert world.get("Deployment", "web")["metadata"]["annotations"][deployments.REVISION] == "3"
            assert len(world.names("ReplicaSet")) == 2

    worlds.story(told())


def test_recreating_ends_the_old_before_the_new_begins() -> None:
    async def told() -> None:
        world = worlds.World()
        async with _cluster(world) as kubelets:
            _deployment(world, replicas=2, strategy={"type": "Recreate"})
            await world.until(lambda: _rolled_out(world, 2))
            kubelets.clinging = True
            _image(world, "img:2")
            await world.until(lambda: all("deletionTimestamp" in pod["metadata"] for pod in world.pods()))
            await asyncio.sleep(20 / worlds.SPEED)
            assert _images(world) == {"img:1"}
            kubelets.let_go()
            await world.until(lambda: _rolled_out(world, 2) and _images(world) == {"img:2"})

    worlds.story(told())


def test_old_pods_that_fall_ill_are_not_given_up_for_new_ones_that_never_serve() -> None:
    async def told() -> None:
        world = worlds.World()

        def replicas() -> list[int]:
            found = (world.get("ReplicaSet", name) for name in world.names("ReplicaSet"))
            return [each["spec"]["replicas"] for each in sorted(found, key=lambda each: each["spec"]["replicas"])]

        async with _cluster(world) as kubelets:
            _deployment(world)
            await world.until(lambda: _rolled_out(world, 4))
            kubelets.broken = lambda pod: pod["spec"]["containers"][0]["image"] == "bad"
            _image(world, "bad")
            await world.until(lambda: replicas() == [2, 3] and len(world.pods()) == 5)
            ill = next(pod for pod in world.pods() if pod["spec"]["containers"][0]["image"] == "img:1")
            world.run(ill, ready=False)
            await world.until(lambda: _status(world).get("availableReplicas") == 2)
            await asyncio.sleep(20 / worlds.SPEED)
            assert replicas() == [2, 3]

    worlds.story(told())


def test_a_replica_set_scaled_behind_its_deployments_back_is_put_right() -> None:
    async def told() -> None:
        world = worlds.World()
        async with _cluster(world):
            _deployment(world)
            await world.until(lambda: _rolled_out(world, 4))
            (name,) = world.names("ReplicaSet")
            for count in (9, 1):
                world.client("ReplicaSet", name, lambda content, count=count: content["spec"].update(replicas=count))
                await world.until(lambda: world.get("ReplicaSet", name)["spec"]["replicas"] == 4)
            await world.until(lambda: _rolled_out(world, 4) and len(world.pods()) == 4)

    worlds.story(told())


def test_scaling_a_deployment_scales_its_pods_both_ways() -> None:
    async def told() -> None:
        world = worlds.World()
        async with _cluster(world):
            _deployment(world)
            for count in (6, 1, 0, 3):
                world.client("Deployment", "web", lambda content, count=count: content["spec"].update(replicas=count))
                await world.until(lambda count=count: _rolled_out(world, count) and len(world.pods()) == count)
            assert len(world.names("ReplicaSet")) == 1

    worlds.story(told())


def test_scaling_in_the_midst_of_a_roll_out_is_shared_between_old_and_new() -> None:
    async def told() -> None:
        world = worlds.World()
        async with _cluster(world) as kubelets:
            _deployment(world)
            await world.until(lambda: _rolled_out(world, 4))
            kubelets.broken = lambda pod: pod["spec"]["containers"][0]["image"] == "bad"
            _image(world, "bad")
            await world.until(lambda: len(world.names("ReplicaSet")) == 2 and _status(world)["availableReplicas"] == 3)
            world.client("Deployment", "web", lambda content: content["spec"].update(replicas=10))
            await world.until(lambda: _status(world).get("availableReplicas", 0) >= 7)
            counts = [world.get("ReplicaSet", name)["spec"]["replicas"] for name in world.names("ReplicaSet")]
            assert min(counts) > 0
            assert sum(counts) == 13

    worlds.story(told())


def test_old_replica_sets_are_kept_as_far_as_history_goes() -> None:
    async def told() -> None:
        world = worlds.World()
        async with _cluster(world):
            _deployment(world, replicas=1, revisionHistoryLimit=1)
            for number in range(1, 5):
                _image(world, f"img:{number}")
                await world.until(lambda number=number: _rolled_out(world, 1) and _images(world) == {f"img:{number}"})
            await world.until(lambda: len(world.names("ReplicaSet")) == 2)

    worlds.story(told())


def test_a_replica_set_takes_in_what_matches_and_lets_go_of_what_does_not() -> None:
    async def told() -> None:
        world = worlds.World()
        sets = replicasets.ReplicaSets(world.api, world.index)
        stray = world.put("v1", "Pod", "stray", metadata={"labels": {"app": "web"}}, spec=worlds.template()["spec"])
        async with worlds.working(sets):
            owner = world.put(
                "apps/v1",
                "ReplicaSet",
                "web",
                spec={
                    "replicas": 2,
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": worlds.template(app="web"),
                },
            )
            await world.until(lambda: _status(world, "ReplicaSet").get("replicas") == 2)
            assert stray["metadata"]["name"] in world.names("Pod")
            assert world.get("Pod", "stray")["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
            world.client("Pod", "stray", lambda content: content["metadata"].update(labels={"app": "debug"}))
            await world.until(lambda: len(world.names("Pod")) == 3)
            await world.rest(sets)
            assert world.get("Pod", "stray")["metadata"].get("ownerReferences", []) == []

    worlds.story(told())


def test_pods_that_failed_are_replaced_and_deleted_ones_too() -> None:
    async def told() -> None:
        world = worlds.World()
        async with _cluster(world):
            _deployment(world, replicas=2)
            await world.until(lambda: _rolled_out(world, 2))
            first, second = world.pods()
            world.change("Pod", first["metadata"]["name"], lambda content: content["status"].update(phase="Failed"))
            world.delete("Pod", second["metadata"]["name"])
            known = {first["metadata"]["name"], second["metadata"]["name"]}
            await world.until(lambda: len(set(world.names("Pod")) - known) == 2 and _rolled_out(world, 2))

    worlds.story(told())


def _sample(name: str, **about: Any) -> Object:
    meta = {"name": name, "creationTimestamp": about.get("born", "2026-01-01T00:00:00Z")}
    if "cost" in about:
        meta["annotations"] = {replicasets.DELETION_COST: about["cost"]}
    status: Object = {"phase": about.get("phase", "Running")}
    if about.get("ready", True):
        since = about.get("since", "2026-01-01T00:00:00Z")
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
    if "restarts" in about:
        status["containerStatuses"] = [{"restartCount": about["restarts"]}]
    node = about.get("node", name)
    return {"metadata": meta, "spec": {"nodeName": node} if node else {}, "status": status}


@pytest.mark.parametrize(
    ("goes", "stays"),
    [
        ({"node": ""}, {"phase": "Pending", "ready": False}),
        ({"phase": "Pending", "ready": False}, {"ready": False}),
        ({"ready": False}, {"cost": "-5"}),
        ({"cost": "-5"}, {"node": "crowded"}),
        ({"node": "crowded"}, {"since": "2026-02-01T00:00:00Z"}),
        ({"since": "2026-02-01T00:00:00Z"}, {"restarts": 5}),
        ({"restarts": 5}, {"born": "2026-02-01T00:00:00Z"}),
        ({"born": "2026-02-01T00:00:00Z"}, {}),
    ],
)
def test_who_goes_first(goes: Object, stays: Object) -> None:
    others = [_sample("other", node="crowded", cost="9"), _sample("another", node="crowded", cost="9")]
    pods = [_sample("stays", **stays), *others, _sample("goes", **goes)]
    names = [pod["metadata"]["name"] for pod in replicasets.in_order_of_going(pods)]
    assert names.index("goes") < names.index("stays")


@hypothesis.settings(deadline=None)
@hypothesis.given(
    strategies.integers(0, 50),
    strategies.one_of(strategies.integers(0, 60), strategies.integers(0, 150).map(lambda share: f"{share}%")),
    strategies.one_of(strategies.integers(0, 60), strategies.integers(0, 150).map(lambda share: f"{share}%")),
)
def test_a_roll_out_can_always_move(replicas: int, surge: int | str, unavailable: int | str) -> None:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    more, fewer = progress.limits({"replicas": replicas, "strategy": {"rollingUpdate": rolling}})
    assert more + fewer > 0 or not replicas
    assert 0 <= fewer <= replicas
