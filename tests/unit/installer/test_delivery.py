"""The platform's credentials reach the cluster, once, whole, and unseen."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.engine import errors, secret
from moorage.installer import delivery, kube
from moorage.platforms import contract
from tests.unit.installer import memory_api

NAMESPACE = "/api/v1/namespaces/kube-system"
PLACE = f"{NAMESPACE}/secrets/ovirt-credentials"
PASSWORD = "very-secret-indeed"
WANTED = contract.ClusterSecret(
    ("kube-system",),
    "ovirt-credentials",
    {"ovirt_password": secret.Secret(PASSWORD), "ovirt_url": secret.Secret("https://engine.example.com/api")},
)

api = memory_api.api


class Delivery:
    """One delivery: what was said, and on which clock."""

    def __init__(self) -> None:
        self.clock = clocks.ManualClock()
        self.said: list[str] = []
        self.told: list[str] = []

    def __call__(self, wanted: contract.ClusterSecret = WANTED) -> str:
        """What was done, in the last word of what was told."""
        self.told.clear()
        delivery.deliver(
            wanted,
            memory_api.DIRECTORY,
            self.clock,
            {},
            lambda _stage, what, _seconds: self.said.append(what),
            self.told.append,
        )
        return self.told[-1].rpartition(" ")[2] if self.told else ""

    def courier(self, wanted: contract.ClusterSecret) -> delivery.Courier:
        return delivery.Courier(wanted, memory_api.DIRECTORY, self.clock, {}, self.told.append)


@pytest.fixture
def deliver(api: memory_api.MemoryApi) -> Delivery:
    api.put(NAMESPACE, {})
    return Delivery()


def plain(found: dict[str, Any]) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}


def test_the_secret_is_made(api: memory_api.MemoryApi, deliver: Delivery) -> None:
    assert deliver() == "created"

    made = api.objects[PLACE]
    assert (made["kind"], made["metadata"]["namespace"]) == ("Secret", "kube-system")
    assert plain(made) == {"ovirt_password": PASSWORD, "ovirt_url": "https://engine.example.com/api"}
    assert api.closed == 1


def test_what_is_there_and_the_same_is_left_alone(api: memory_api.MemoryApi, deliver: Delivery) -> None:
    deliver()
    api.calls.clear()

    assert deliver() == ""
    assert not [call for call in api.calls if not call.startswith("GET")]


def test_old_credentials_are_replaced_and_the_rest_of_the_object_stays(
    api: memory_api.MemoryApi, deliver: Delivery
) -> None:
    old = {"apiVersion": "v1", "kind": "Secret", "data": {"ovirt_password": "b2xk"}}
    api.put(PLACE, {**old, "metadata": {"labels": {"owner": "somebody"}}})

    assert deliver() == "replaced"
    assert plain(api.objects[PLACE])["ovirt_password"] == PASSWORD
    assert api.objects[PLACE]["metadata"]["labels"] == {"owner": "somebody"}


def test_a_namespace_that_is_not_there_yet_is_waited_for(api: memory_api.MemoryApi, deliver: Delivery) -> None:
    api.troubles[f"GET {NAMESPACE}"] = [kube.Missing("there is none")] * 3

    assert deliver() == "created"
    assert deliver.said == ["the cluster to take the platform's credentials: there is no namespace kube-system yet"]


@pytest.mark.parametrize(
    "trouble",
    [
        kube.Unanswered("silence"),
        kube.Refused("nobody"),
        kube.Troubled("503"),
        kube.Forbidden("not yet"),
        kube.HungUp(""),
    ],
    ids=lambda trouble: type(trouble).__name__,
)
def test_an_api_in_trouble_is_asked_again(
    api: memory_api.MemoryApi, deliver: Delivery, trouble: kube.ApiProblem
) -> None:
    api.troubles[f"POST {NAMESPACE}/secrets"] = [trouble, trouble]

    assert deliver() == "created"


def test_an_answer_that_was_lost_is_no_harm(api: memory_api.MemoryApi, deliver: Delivery) -> None:
    # Given a create that took effect although its answer was lost.
    def lost(path: str, content: Any) -> dict[str, Any]:
        memory_api.MemoryApi.create(api, path, content)
        raise kube.Unanswered("the conversation broke")

    api.create = lost  # type: ignore[method-assign]

    assert deliver() == ""
    assert plain(api.objects[PLACE])["ovirt_password"] == PASSWORD


def test_somebody_who_is_faster_is_no_harm(api: memory_api.MemoryApi, deliver: Delivery) -> None:
    api.put(PLACE, {"apiVersion": "v1", "kind": "Secret", "data": {}})
    api.troubles[f"PUT {PLACE}"] = [kube.Conflicting("it has changed")]

    assert deliver() == "replaced"


def test_a_cluster_that_never_takes_them_is_an_error_with_a_remedy(
    api: memory_api.MemoryApi, deliver: Delivery
) -> None:
    encoded = base64.b64encode(PASSWORD.encode()).decode()
    words = f"the API answers 422: Secret is invalid: {encoded} or {PASSWORD}"
    api.troubles[f"POST {NAMESPACE}/secrets"] = [kube.Troubled(words)] * 10_000

    with pytest.raises(delivery.Undelivered) as caught:
        deliver()

    assert caught.value.exit_code == top.INSTALL
    assert "did not take the Secret kube-system/ovirt-credentials after 10 min" in caught.value.message
    assert "oc --kubeconfig" in caught.value.remedy
    assert deliver.clock.now() == pytest.approx(delivery.PATIENCE)
    # What the API repeats of it is not repeated by us: not in the error, not in its causes, not in what was said.
    told = [caught.value.message, str(caught.value), str(caught.value.__context__), *deliver.said]
    assert not [line for line in told if PASSWORD in line or encoded in line]
    assert "(secret)" in caught.value.message


def test_a_wish_to_stop_ends_it(api: memory_api.MemoryApi, deliver: Delivery) -> None:
    api.troubles[f"GET {NAMESPACE}"] = [kube.Unanswered("silence")] * 10
    deliver.clock.request_stop()

    with pytest.raises(errors.Interrupted):
        deliver()


# -- in two places, and early ------------------------------------------------------------------------------------------

MACHINES = "/api/v1/namespaces/openshift-machine-api"
BOTH = contract.ClusterSecret(("kube-system", "openshift-machine-api"), WANTED.name, WANTED.values)


def test_it_is_put_wherever_it_belongs(api: memory_api.MemoryApi, deliver: Delivery) -> None:
    api.put(MACHINES, {})

    deliver(BOTH)

    assert plain(api.objects[PLACE]) == plain(api.objects[f"{MACHINES}/secrets/ovirt-credentials"])
    assert api.objects[f"{MACHINES}/secrets/ovirt-credentials"]["metadata"]["namespace"] == "openshift-machine-api"
    assert deliver.told == [
        f"the platform's credentials are in the cluster: Secret {namespace}/ovirt-credentials was created"
        for namespace in BOTH.namespaces
    ]


def test_the_courier_leaves_what_it_can_and_comes_again_for_the_rest(
    api: memory_api.MemoryApi, deliver: Delivery
) -> None:
    # Given a cluster that is so young that it has only the first of the namespaces.
    courier = deliver.courier(BOTH)
    courier.call()
    assert deliver.told[0].endswith("Secret kube-system/ovirt-credentials was created")

    # When the other one has come
    api.put(MACHINES, {})
    courier.call()

    # Then it is there too; and from then on nobody is asked anything
    assert f"{MACHINES}/secrets/ovirt-credentials" in api.objects
    assert len(deliver.told) == 2
    api.calls.clear()
    courier.call()
    assert api.calls == []


@pytest.mark.parametrize(
    "trouble",
    [kube.Unanswered("silence"), kube.Forbidden("not yet"), kube.Troubled(f"503: {PASSWORD}")],
    ids=lambda trouble: type(trouble).__name__,
)
def test_a_courier_who_is_turned_away_says_nothing_and_comes_again(
    api: memory_api.MemoryApi, deliver: Delivery, trouble: kube.ApiProblem
) -> None:
    api.troubles[f"POST {NAMESPACE}/secrets"] = [trouble]
    courier = deliver.courier(WANTED)

    courier.call()
    assert (deliver.told, PLACE in api.objects) == ([], False)

    courier.call()
    assert plain(api.objects[PLACE])["ovirt_password"] == PASSWORD


def test_a_wish_to_stop_reaches_whoever_waits_beside_the_courier(api: memory_api.MemoryApi, deliver: Delivery) -> None:
    api.troubles[f"GET {NAMESPACE}"] = [errors.Interrupted()]

    with pytest.raises(errors.Interrupted):
        deliver.courier(WANTED).call()
