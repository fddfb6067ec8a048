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
    "kube-system",
    "ovirt-credentials",
    {"ovirt_password": secret.Secret(PASSWORD), "ovirt_url": secret.Secret("https://engine.example.com/api")},
)

api = memory_api.api


class Delivery:
    """One delivery: what was said, and on which clock."""

    def __init__(self) -> None:
        self.clock = clocks.ManualClock()
        self.said: list[str] = []

    def __call__(self) -> str:
        return delivery.deliver(
            WANTED, memory_api.DIRECTORY, self.clock, {}, lambda _stage, what, _seconds: self.said.append(what)
        )


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
