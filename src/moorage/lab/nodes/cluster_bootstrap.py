"""cluster-bootstrap: runs the temporary control plane, creates every manifest, and waits until the real one has come.

When the pods of the real control plane run and, where there are to be several masters, two of them serve the API, it
gives balancers time to notice, waits for the last manifest, and takes the temporary control plane away again. If that
does not come about in time it takes it away as well, and bootkube begins anew.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from moorage import lab
from moorage.lab.nodes import api_client, manifests, renders, static_pods
from moorage.lab.nodes import cluster as clusters

if TYPE_CHECKING:
    from moorage.lab.nodes import bootstrap

Object = dict[str, Any]

TEMPORARY = (static_pods.API_SERVER, static_pods.CONTROLLER_MANAGER, static_pods.SCHEDULER)
REQUIRED_PODS = (
    "openshift-kube-apiserver/kube-apiserver",
    "openshift-kube-scheduler/openshift-kube-scheduler",
    "openshift-kube-controller-manager/kube-controller-manager",
    "openshift-cluster-version/cluster-version-operator",
)
# Cloud seconds.
PODS_SECONDS = 20 * 60.0
AVAILABLE_SECONDS = 30 * 60.0
ASSETS_SECONDS = 60 * 60.0
TEAR_DOWN_SECONDS = 30.0
_HIGHLY_AVAILABLE = 3


class Failed(Exception):  # noqa: N818 - how a program on the machine ends
    """The program gave up; says why."""


async def start(node: bootstrap.Bootstrap, cluster: clusters.Cluster) -> None:
    """Return when the cluster stands without the temporary control plane, which is gone then."""
    found = manifests.load(renders.documents(node.files))
    node.say("Starting temporary bootstrap control plane...")
    try:
        await _start_control_plane(node, cluster)
        await _create_and_wait(node, cluster, found)
    except Exception:
        # When the power goes this is not reached: nothing is taken away, and the disk still says what is to run.
        await _tear_down(node, cluster)
        raise
    await _tear_down(node, cluster)
    cluster.handed_over = True


async def _start_control_plane(node: bootstrap.Bootstrap, cluster: clusters.Cluster) -> None:
    for component in TEMPORARY:
        static_pods.place(component, node.machine)
    node.say("Waiting up to 20m0s for the Kubernetes API")
    deadline = node.clock.deadline(PODS_SECONDS)
    while not static_pods.runs(static_pods.API_SERVER, node.machine):
        if deadline.expired:
            raise Failed("time out waiting for Kubernetes API")
        await node.pause()
    node.say("API is up")
    await cluster.begin()


async def _create_and_wait(node: bootstrap.Bootstrap, cluster: clusters.Cluster, found: dict[str, Object]) -> None:
    client = node.client("kubeconfig-loopback")
    creating = asyncio.get_running_loop().create_task(
        manifests.ensure_created(node.client("kubeconfig-loopback"), found, node.say, node.clock)
    )
    try:
        await _await_pods(node, client)
        if cluster.facts.control_plane_replicas >= _HIGHLY_AVAILABLE:
            await _await_masters(node, client)
            node.say(f"Waiting {TEAR_DOWN_SECONDS:.0f}s to give load-balancers time to observe the control-plane")
            await lab.sleep(node.clock, TEAR_DOWN_SECONDS)
        await _announce(client, "bootstrap-success")
        node.say("Waiting for remaining assets to be created.")
        deadline = node.clock.deadline(ASSETS_SECONDS)
        while not creating.done():
            if deadline.expired:
                raise Failed("timed out creating manifests")
            await node.pause()
        creating.result()
        await _announce(client, "bootstrap-finished")
    finally:
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)


async def _tear_down(node: bootstrap.Bootstrap, cluster: clusters.Cluster) -> None:
    node.say("Tearing down temporary bootstrap control plane...")
    for component in TEMPORARY:
        await cluster.end(component, node.machine)


async def _await_pods(node: bootstrap.Bootstrap, client: api_client.Client) -> None:
    deadline = node.clock.deadline(PODS_SECONDS)
    told: dict[str, str] = {}
    while True:
        try:
            states = _states((await client.get("/api/v1/pods")).get("items") or [])
        except (OSError, TimeoutError, api_client.Refused) as problem:
            states = dict.fromkeys(REQUIRED_PODS, "Unknown")
            told.setdefault("problem", "")
            if told["problem"] != client.words(problem):
                told["problem"] = client.words(problem)
                node.say(f"Error retrieving pod statuses: {told['problem']}")
        for pod, state in states.items():
            if told.get(pod) != state:
                node.say(f"\tPod Status:{pod:>60}\t{state}")
                told[pod] = state
        if all(state == "Ready" for state in states.values()):
            node.say("All self-hosted control plane components successfully started")
            return
        if deadline.expired:
            raise Failed("error while checking pod status: timed out waiting for the condition")
        await node.pause()


def _states(pods: list[Object]) -> dict[str, str]:
    states = {}
    for prefix in REQUIRED_PODS:
        pod = next(
            (p for p in pods if f"{p['metadata']['namespace']}/{p['metadata']['name']}".startswith(prefix)), None
        )
        if pod is None:
            states[prefix] = "DoesNotExist"
        elif (phase := str((pod.get("status") or {}).get("phase"))) != "Running":
            states[prefix] = phase
        else:
            states[prefix] = "Ready" if static_pods.is_ready(pod) else "RunningNotReady"
    return states


async def _await_masters(node: bootstrap.Bootstrap, client: api_client.Client) -> None:
    """Two masters must have each part: the API must outlive the loss of one."""
    deadline = node.clock.deadline(AVAILABLE_SECONDS)
    waiting = ["kubeapiservers", "kubeschedulers", "kubecontrollermanagers"]
    told = ""
    node.say("Waiting for self hosted control plane to be available")
    while waiting:
        try:
            for plural in list(waiting):
                if await revisions(client, plural) >= 2:
                    node.say(f'condition "{plural} on at least two master nodes" has been satisfied')
                    waiting.remove(plural)
        except (OSError, TimeoutError, api_client.Refused) as problem:
            words = f"polling will continue, last status: error getting {waiting[0]}: {client.words(problem)}"
            if words != told:
                node.say(words)
                told = words
        if waiting and deadline.expired:
            raise Failed(f"time out waiting for condition: {waiting[0]} on at least two master nodes")
        if waiting:
            await node.pause()


async def revisions(client: api_client.Client, plural: str) -> int:
    """On how many masters an operator has rolled its pod out."""
    found = await client.get(f"/apis/operator.openshift.io/v1/{plural}/cluster")
    nodes = (found.get("status") or {}).get("nodeStatuses") or ()
    return sum(1 for each in nodes if each.get("currentRevision", 0) >= 1)


async def _announce(client: api_client.Client, name: str) -> None:
    content = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "kube-system"},
        "involvedObject": {"namespace": "kube-system"},
        "message": "Required control plane pods have been created",
        "type": "Normal",
        "count": 1,
    }
    try:
        await client.create("/api/v1/namespaces/kube-system/events", content)
    except api_client.Refused as refused:
        if refused.reason != "AlreadyExists":
            raise
