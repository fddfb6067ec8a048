"""DaemonSets, StatefulSets and the endpoints of services, told with nodes that run what they are given."""

from __future__ import annotations

from typing import Any

from moorage.lab.kube import daemonsets, endpoints, statefulsets
from tests.unit.lab.kube import controllers_world as worlds

Object = worlds.Object


def _status(world: worlds.World, kind: str) -> Object:
    found = world.find(kind, "web")
    return {} if found is None else found.get("status", {})


def _image(world: worlds.World, image: str, kind: str) -> None:
    world.client(kind, "web", lambda content: content["spec"]["template"]["spec"]["containers"][0].update(image=image))


def _images(world: worlds.World) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in world.pods()}


def _daemons(world: worlds.World, **spec: Any) -> Object:
    wanted = {"selector": {"matchLabels": {"app": "web"}}, "template": worlds.template(app="web")}
    return world.put("apps/v1", "DaemonSet", "web", spec={**wanted, **spec})


def _places(world: worlds.World) -> list[str]:
    terms = "requiredDuringSchedulingIgnoredDuringExecution"
    found = [pod["spec"]["affinity"]["nodeAffinity"][terms]["nodeSelectorTerms"] for pod in world.pods()]
    return sorted(term["matchFields"][0]["values"][0] for (term,) in found)


def test_a_daemon_runs_on_every_node_that_fits() -> None:
    async def told() -> None:
        world = worlds.World()
        controller = daemonsets.DaemonSets(world.api, world.index)
        world.node("plain")
        world.node("cordoned", taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}])
        world.node("master", taints=[{"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}])
        world.node("young", ready=False)
        async with worlds.working(controller):
            _daemons(world)
            await world.until(lambda: _places(world) == ["cordoned", "plain"])
            await world.until(lambda: _status(world, "DaemonSet")["desiredNumberScheduled"] == 2)
            world.node("late")
            await world.until(lambda: _places(world) == ["cordoned", "late", "plain"])
            world.change(
                "Node", "plain", lambda node: node["spec"].update(taints=[{"key": "x", "effect": "NoSchedule"}])
            )
            world.change("Node", "late", lambda node: node["spec"].update(taints=[{"key": "x", "effect": "NoExecute"}]))
            await world.until(lambda: _places(world) == ["cordoned", "plain"])
            world.delete("Node", "cordoned")
            await world.until(lambda: _places(world) == ["plain"])

    worlds.story(told())


def test_a_daemon_pod_is_known_as_one_by_those_who_drain() -> None:
    async def told() -> None:
        world = worlds.World()
        world.node("n1")
        async with worlds.working(daemonsets.DaemonSets(world.api, world.index)):
            owner = _daemons(world)
            await world.until(world.pods)
        (pod,) = world.pods()
        (reference,) = pod["metadata"]["ownerReferences"]
        assert (reference["kind"], reference["uid"]) == ("DaemonSet", owner["metadata"]["uid"])
        assert (reference["controller"], reference["blockOwnerDeletion"]) == (True, True)
        assert {"controller-revision-hash", "pod-template-generation", "app"} == set(pod["metadata"]["labels"])
        tolerated = {(each["key"].partition("/")[2], each["effect"]) for each in pod["spec"]["tolerations"]}
        assert tolerated == {
            ("not-ready", "NoExecute"),
            ("unreachable", "NoExecute"),
            ("disk-pressure", "NoSchedule"),
            ("memory-pressure", "NoSchedule"),
            ("pid-pressure", "NoSchedule"),
            ("unschedulable", "NoSchedule"),
        }
        assert all("tolerationSeconds" not in each for each in pod["spec"]["tolerations"])

    worlds.story(told())


def test_daemons_are_renewed_one_by_one() -> None:
    async def told() -> None:
        world = worlds.World()
        missing: list[int] = []
        for number in range(1, 4):
            world.node(f"n{number}")
        controller = daemonsets.DaemonSets(world.api, world.index)
        kubelets = worlds.Kubelets(world, binds=False)

        def bound(key: Any, event: Any) -> None:
            pod = event.entry.object
            if key == ("", "pods") and event.type == "ADDED":
                (place,) = pod["spec"]["affinity"]["nodeAffinity"].values()
                node = place["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
                world.change("Pod", pod["metadata"]["name"], lambda content: content["spec"].update(nodeName=node))

        world.store.on_write.append(bound)
        async with kubelets, worlds.working(controller):
            _daemons(world)
            await world.until(lambda: _status(world, "DaemonSet").get("numberAvailable") == 3)

            def count(*_: Any) -> None:
                serving = [pod for pod in world.pods() if "deletionTimestamp" not in pod["metadata"]]
                missing.append(3 - len(serving))

            world.store.on_write.append(count)
            _image(world, "img:2", "DaemonSet")
            await world.until(
                lambda: (
                    _images(world) == {"img:2"}
                    and _status(world, "DaemonSet").get("updatedNumberScheduled") == 3
                    and _status(world, "DaemonSet").get("numberAvailable") == 3
                )
            )
        assert max(missing) == 1
        found = world.find("DaemonSet", "web")
        assert found is not None
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"]

    worlds.story(told())


def test_a_daemon_that_is_still_going_holds_the_place_of_the_next() -> None:
    async def told() -> None:
        world = worlds.World()
        world.node("n1")
        controller = daemonsets.DaemonSets(world.api, world.index)
        async with worlds.Kubelets(world) as kubelets, worlds.working(controller):
            _daemons(world)
            await world.until(lambda: _status(world, "DaemonSet").get("numberAvailable") == 1)
            (first,) = world.names("Pod")
            kubelets.clinging = True
            world.delete("Pod", first)
            await world.rest(controller)
            assert world.names("Pod") == [first]
            kubelets.let_go()
            await world.until(lambda: world.names("Pod") and world.names("Pod") != [first])

    worlds.story(told())


def test_numbered_pods_come_in_order_and_go_in_the_opposite_one() -> None:
    async def told() -> None:
        world = worlds.World()
        order: list[str] = []

        def note(key: Any, event: Any) -> None:
            if key == ("", "pods") and event.type in ("ADDED", "DELETED"):
                order.append(f"{'+' if event.type == 'ADDED' else '-'}{event.name[1]}")

        world.store.on_write.append(note)
        claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
        async with worlds.Kubelets(world), worlds.working(statefulsets.StatefulSets(world.api, world.index)):
            world.put(
                "apps/v1",
                "StatefulSet",
                "web",
                spec={
                    "replicas": 3,
                    "serviceName": "web",
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": worlds.template(app="web"),
                    "volumeClaimTemplates": claims,
                },
            )
            await world.until(lambda: _status(world, "StatefulSet").get("readyReplicas") == 3)
            assert order == ["+web-0", "+web-1", "+web-2"]
            assert world.names("PersistentVolumeClaim") == ["data-web-0", "data-web-1", "data-web-2"]
            _image(world, "img:2", "StatefulSet")
            await world.until(
                lambda: _images(world) == {"img:2"} and _status(world, "StatefulSet")["readyReplicas"] == 3
            )
            assert order[3:] == ["-web-2", "+web-2", "-web-1", "+web-1", "-web-0", "+web-0"]
            world.client("StatefulSet", "web", lambda content: content["spec"].update(replicas=1))
            await world.until(lambda: world.names("Pod") == ["web-0"])
            assert order[9:] == ["-web-2", "-web-1"]

    worlds.story(told())


def test_the_endpoints_of_a_service_are_its_ready_pods() -> None:
    async def told() -> None:
        world = worlds.World()
        world.put(
            "v1", "Service", "web", spec={"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
        )

        def subsets() -> list[Object]:
            found = world.find("Endpoints", "web")
            return [] if found is None else found.get("subsets", [])

        async with worlds.working(endpoints.Endpoints(world.api)):
            spec = {"nodeName": "n1", **worlds.template()["spec"]}
            pod = world.put("v1", "Pod", "a", metadata={"labels": {"app": "web"}}, spec=spec)
            world.run(pod, ready=False)
            await world.until(lambda: subsets() and "notReadyAddresses" in subsets()[0])
            world.run(pod)
            await world.until(lambda: subsets() and "addresses" in subsets()[0])
            (subset,) = subsets()
            assert subset["ports"] == [{"port": 8080, "protocol": "TCP"}]
            assert (subset["addresses"][0]["ip"], subset["addresses"][0]["targetRef"]["name"]) == ("10.1.2.3", "a")
            (slice_name,) = world.names("EndpointSlice")
            assert world.get("EndpointSlice", slice_name)["endpoints"][0]["conditions"]["ready"] is True
            world.delete("Pod", "a", grace_seconds=0)
            await world.until(lambda: not subsets())
            world.delete("Service", "web")
            await world.until(lambda: world.find("Endpoints", "web") is None)

    worlds.story(told())
