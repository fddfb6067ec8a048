"""A kubelet joins, lives, suffers and comes back: what it asks for, what it reports, and what its console says."""

from __future__ import annotations

import asyncio
import json

import pytest

from moorage.lab.kube import certificates as requests
from moorage.lab.nodes import instance, kubelet, pacing
from moorage.lab.nodes import kubelet_certificates as certificates
from tests.unit.lab.nodes import node_world
from tests.unit.lab.nodes.node_world import KUBELETS, STRANGERS, World, story, until

PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")


def said(machine: instance.Instance, words: str) -> bool:
    return any(words in line for line in machine.console)


def test_from_a_request_to_a_node_that_beats() -> None:
    async def tell(world: World) -> None:
        machine = world.machine("worker-0")
        await machine.power_on()

        # It asks, as the identity in its config, and is nobody until somebody lets it in.
        await until(lambda: world.requests("worker-0"), "a request")
        [request] = world.requests("worker-0")
        assert request["spec"]["username"] == node_world.BOOTSTRAPPER
        assert request["spec"]["usages"] == ["digital signature", "client auth"]
        await until(lambda: said(machine, "to be approved and issued"), "words on the console")
        assert world.find("Node", "worker-0") is None

        world.decide(request)
        await until(lambda: world.condition("worker-0"), "a Node with a status")
        assert world.condition("worker-0")["status"] == "False"
        assert "NetworkPluginNotReady" in world.condition("worker-0")["message"]

        # Under its own name it asks for a serving certificate with its own addresses, and beats.
        await until(lambda: world.requests("worker-0", requests.KUBELET_SERVING), "a serving request")
        [serving] = world.requests("worker-0", requests.KUBELET_SERVING)
        assert serving["spec"]["username"] == "system:node:worker-0"
        await until(lambda: world.lease("worker-0"), "a lease")
        lease, node = world.lease("worker-0"), world.node("worker-0")
        assert lease["spec"]["leaseDurationSeconds"] == 40
        assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]

        await until(lambda: world.ready("worker-0"), "Ready, once the network is there")
        renewed = world.lease("worker-0")["spec"]["renewTime"]
        await until(lambda: world.lease("worker-0")["spec"]["renewTime"] > renewed, "another beat")
        # It lives without a serving certificate for as long as nobody grants it.
        assert certificates.stored(machine, certificates.SERVING_PATH) is None
        world.decide(serving)
        await until(lambda: certificates.stored(machine, certificates.SERVING_PATH), "its serving certificate")

    story(tell)


def test_a_node_is_what_its_unit_says() -> None:
    async def tell(world: World) -> None:
        flags = (
            "--node-labels=node-role.kubernetes.io/worker,zone=east --register-with-taints=dedicated=db:NoSchedule,"
            "gone:NoExecute --cloud-provider=external --provider-id=lab://7"
        )
        machines = [world.machine("worker-0", flags=flags), world.machine("master-0", "master")]
        await world.joined(*machines)
        worker, master = world.node("worker-0"), world.node("master-0")

        assert (
            worker["metadata"]["labels"].items()
            >= {
                "node-role.kubernetes.io/worker": "",
                "zone": "east",
                "kubernetes.io/hostname": "worker-0",
                "kubernetes.io/os": "linux",
            }.items()
        )
        assert worker["spec"]["providerID"] == "lab://7"
        assert [taint for taint in worker["spec"]["taints"] if not taint["key"].startswith("node.kubernetes.io/")] == [
            {"key": "dedicated", "value": "db", "effect": "NoSchedule"},
            {"key": "gone", "effect": "NoExecute"},
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
        ]
        assert ("node-role.kubernetes.io/master", "NoSchedule") in world.taints("master-0")
        assert "node-role.kubernetes.io/control-plane" in master["metadata"]["labels"]
        current = "machineconfiguration.openshift.io/currentConfig"
        assert master["metadata"]["annotations"][current] == "rendered-master-0123"
        addresses = {each["type"]: each["address"] for each in worker["status"]["addresses"]}
        assert addresses == {"InternalIP": machines[0].address, "Hostname": "worker-0"}

    story(tell)


@pytest.mark.parametrize("verdict", ["Denied", "Failed"])
def test_a_request_that_is_turned_down_is_made_again(verdict: str) -> None:
    async def tell(world: World) -> None:
        machine = world.machine("worker-0")
        await machine.power_on()
        await until(lambda: world.requests("worker-0"), "a request")
        first = world.requests("worker-0")[0]

        world.decide(first, verdict, "who are you?")

        await until(lambda: len(world.requests("worker-0")) == 2, "another request")
        name = first["metadata"]["name"]
        assert said(machine, f"certificate signing request {name} was {verdict.lower()}: who are you?")
        assert world.find("Node", "worker-0") is None
        world.decide(next(r for r in world.requests("worker-0") if r["metadata"]["name"] != name))
        await until(lambda: world.find("Node", "worker-0"), "a Node after all")

    story(tell)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (node_world.kubeconfig(node_world.signed(STRANGERS, node_world.BOOTSTRAPPER)), "api-int"),
        (node_world.kubeconfig(node_world.signed(KUBELETS, "system:serviceaccount:a:b")), "cannot create resource"),
        (node_world.kubeconfig(node_world.signed(KUBELETS, "x"), authority=STRANGERS.certificate), "x509: "),
        (node_world.kubeconfig(node_world.signed(KUBELETS, "x"), host=f"nowhere.{node_world.DOMAIN}"), "no such host"),
        (b"clusters: [", "invalid kubeconfig"),
        (b"{}", "invalid kubeconfig"),
    ],
    ids=["signed by another", "may not ask", "wrong authority", "no such name", "no yaml", "empty"],
)
def test_a_wrong_credential_keeps_it_out_and_is_named(content: bytes, words: str) -> None:
    async def tell(world: World) -> None:
        machine = world.machine("worker-0", kubeconfig=content)
        await machine.power_on()

        complaint = "cannot create certificate signing request"
        await until(lambda: sum(complaint in line for line in machine.console) >= 2, "two attempts")

        assert said(machine, words)
        assert world.requests("worker-0") == []
        assert machine.state == instance.RUNNING, "it goes on trying"

    story(tell)


def test_without_a_kubeconfig_it_says_so() -> None:
    async def tell(world: World) -> None:
        machine = world.machine("worker-0")
        assert machine.provisioned is not None
        del machine.provisioned.files[kubelet.BOOTSTRAP_KUBECONFIG]
        await machine.power_on()

        await until(lambda: said(machine, f"open {kubelet.BOOTSTRAP_KUBECONFIG}: no such file or directory"), "words")

    story(tell)


def test_while_the_api_is_away_it_waits_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(world: World) -> None:
        await world.server.partition()
        machine = world.machine("worker-0")
        pauses: list[float] = []
        plain_sleep = kubelet.lab.sleep

        async def sleep(clock: object, seconds: float) -> None:
            pauses.append(seconds)
            await plain_sleep(machine.clock, seconds)

        monkeypatch.setattr(kubelet.lab, "sleep", sleep)
        # Kubelets alone: everybody's sleep goes through here.
        life = asyncio.create_task(kubelet.Kubelet(machine).join())
        await until(lambda: pauses.count(30.0) >= 2, "the longest pause")
        assert [each for each in pauses if each in (2.0, 4.0, 8.0, 16.0, 30.0)][:6] == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
        assert said(machine, "connect: connection refused")

        await world.server.heal()
        await until(lambda: world.requests("worker-0"), "a request as soon as there is an API")
        life.cancel()

    story(tell)


def test_a_request_is_waited_for_across_an_outage() -> None:
    async def tell(world: World) -> None:
        machine = world.machine("worker-0")
        await machine.power_on()
        await until(lambda: world.requests("worker-0"), "a request")

        await world.server.partition()
        await asyncio.sleep(0.5)
        await world.server.heal()
        world.decide(world.requests("worker-0")[0])

        await until(lambda: world.find("Node", "worker-0"), "a Node")
        assert len(world.requests("worker-0")) == 1

    story(tell)


def test_times_move_only_with_what_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "report", lambda site: 20.0)

    async def tell(world: World) -> None:
        await world.joined(world.machine("worker-0"))
        since = {kind: world.condition("worker-0", kind) for kind in PRESSURES}

        # Somebody else's condition is not ours to remove.
        other = {"type": "NetworkUnavailable", "status": "False", "reason": "OVN", "message": ""}
        world.cluster.change("", "Node", "", "worker-0", lambda node: node["status"]["conditions"].append(other))
        beat = since["Ready"]["lastHeartbeatTime"]
        await until(lambda: world.condition("worker-0")["lastHeartbeatTime"] > beat, "another report")

        for kind in PRESSURES:
            assert world.condition("worker-0", kind)["lastTransitionTime"] == since[kind]["lastTransitionTime"]
        assert world.condition("worker-0", "NetworkUnavailable")["reason"] == "OVN"
        assert since["Ready"]["lastTransitionTime"] > since["DiskPressure"]["lastTransitionTime"]

    story(tell)


def test_whoever_was_declared_lost_reports_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not because it is time to.
    monkeypatch.setattr(pacing, "report", lambda site: 1e9)

    async def tell(world: World) -> None:
        machine = world.machine("worker-0")
        await world.joined(machine)

        await machine.partition()

        def lose(node: node_world.Object) -> None:
            for each in node["status"]["conditions"]:
                each |= {
                    "status": "Unknown",
                    "reason": "NodeStatusUnknown",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }

        world.cluster.change("", "Node", "", "worker-0", lose)
        await until(lambda: said(machine, "Failed to update lease"), "it notices")
        # Longer than anybody would bear its silence.
        silent = world.clock.now()
        await until(lambda: world.clock.now() > silent + 60, "a while")
        await machine.heal()

        await until(lambda: world.ready("worker-0"), "Ready again")
        assert world.condition("worker-0")["lastTransitionTime"] > "2026-01-01T00:00:00Z"

    story(tell)


def test_a_reboot_keeps_the_certificate_and_the_node() -> None:
    async def tell(world: World) -> None:
        machine = world.machine("worker-0")
        await world.joined(machine)
        uid, pair = world.node("worker-0")["metadata"]["uid"], machine.kept[certificates.CLIENT_PATH]

        await machine.reboot()
        await until(lambda: world.condition("worker-0")["status"] == "False", "NotReady while it comes up")
        await until(lambda: world.ready("worker-0"), "Ready again")

        assert len(world.requests("worker-0")) == 1
        assert machine.kept[certificates.CLIENT_PATH] == pair
        assert world.node("worker-0")["metadata"]["uid"] == uid

    story(tell)


STATIC = """
apiVersion: v1
kind: Pod
metadata: {name: haproxy, namespace: NAMESPACE, annotations: {mine: "1"}}
spec: {hostNetwork: true, containers: [{name: haproxy, image: payload/haproxy}]}
"""


def test_static_pods_become_mirror_pods() -> None:
    async def tell(world: World) -> None:
        machine = world.machine(
            "worker-0",
            aaa=b"kind: [",
            bbb=STATIC.replace("NAMESPACE", "late").encode(),
            ccc=STATIC.replace("NAMESPACE", "default").encode(),
        )
        await world.joined(machine)
        await until(lambda: world.find("Pod", "haproxy-worker-0", "default"), "a mirror pod")
        pod = world.find("Pod", "haproxy-worker-0", "default") or {}

        assert pod["spec"]["nodeName"] == "worker-0"
        notes = pod["metadata"]["annotations"]
        assert notes["mine"] == "1"
        assert notes["kubernetes.io/config.source"] == "file"
        assert notes["kubernetes.io/config.mirror"] == notes["kubernetes.io/config.hash"]
        assert said(machine, "Could not process manifest file /etc/kubernetes/manifests/aaa.yaml")
        await until(lambda: said(machine, "Failed creating a mirror pod"), "a complaint about the namespace")

        world.cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "late"}})
        await until(lambda: world.find("Pod", "haproxy-worker-0", "late"), "the other, once its namespace is there")

        # A mirror that is deleted comes back: the pod itself was never gone.
        uid = pod["metadata"]["uid"]
        world.delete("Pod", "haproxy-worker-0", "default", grace=0)
        await until(
            lambda: (world.find("Pod", "haproxy-worker-0", "default") or pod)["metadata"]["uid"] != uid, "a new mirror"
        )

    story(tell)


def test_a_node_that_was_deleted_comes_back_with_a_reboot_and_not_before() -> None:
    async def tell(world: World) -> None:
        machine = world.machine("worker-0")
        await world.joined(machine)
        world.delete("Node", "worker-0")

        await until(lambda: said(machine, 'nodes "worker-0" not found'), "it notices")
        assert world.find("Node", "worker-0") is None

        await machine.reboot()
        await until(lambda: world.ready("worker-0"), "a new Node")
        assert len(world.requests("worker-0")) == 1, "its certificate is still good"

    story(tell)


def test_annotations_that_are_not_there_are_no_obstacle() -> None:
    async def tell(world: World) -> None:
        machine = world.machine("worker-0")
        assert machine.provisioned is not None
        del machine.provisioned.files["/etc/machine-config-daemon/node-annotations.json"]
        await world.joined(machine)

        assert not any(
            "machineconfiguration" in each for each in world.node("worker-0")["metadata"].get("annotations", {})
        )

    story(tell)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a=b:NoSchedule", {"key": "a", "value": "b", "effect": "NoSchedule"}),
        ("a=:NoSchedule", {"key": "a", "effect": "NoSchedule"}),
        ("a:NoExecute", {"key": "a", "effect": "NoExecute"}),
    ],
)
def test_taints_as_they_are_written_on_command_lines(text: str, wanted: dict[str, str]) -> None:
    assert kubelet._taint(text) == wanted
    assert json.dumps(kubelet._taint(text))
