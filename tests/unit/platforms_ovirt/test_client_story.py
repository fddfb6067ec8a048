"""The client against the lab's engine: sessions that end, restarts, locks and refusals, as installations meet them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import pytest
from ovirtsdk4 import services, types

from moorage.engine import errors, retry, secret
from moorage.lab.ovirt import serving
from moorage.platforms import contract
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import credentials
from tests.unit.lab.ovirt import engine_world


@pytest.fixture
def running(tmp_path: Path) -> Iterator[engine_world.Running]:
    with engine_world.started(tmp_path) as found:
        yield found


def client_of(running: engine_world.Running, user: str = serving.ADMIN) -> clients.Client:
    password = secret.Secret(running.served.password(user))
    who = credentials.Credentials(running.served.url, user, password, running.engine.ca_pem)
    return clients.Client(contract.Surroundings({}, running.clock, lambda _: None), who)


def make_tag(api: services.SystemService) -> types.Tag:
    return api.tags_service().add(types.Tag(name="abc"))


def tags(running: engine_world.Running) -> list[str]:
    return [each["name"] for each in running.engine.inventory.all("tags") if each["name"] == "abc"]


def test_the_session_is_gone_from_the_engine_when_the_client_is(running: engine_world.Running) -> None:
    with client_of(running) as client:
        client.call("look", lambda api: api.get())
        assert running.tell(running.engine.sessions.clear) == 1
        client.call("look", lambda api: api.get())

    assert running.tell(running.engine.sessions.clear) == 0


def test_a_session_that_ends_before_a_create_does_not_make_two(running: engine_world.Running) -> None:
    with client_of(running) as client:
        client.call("look", lambda api: api.get())
        running.tell(running.engine.sessions.clear)

        client.call("make tag abc", make_tag, safe=False)

    assert tags(running) == ["abc"]


def test_a_thread_that_slept_through_two_sessions_goes_on(running: engine_world.Running) -> None:
    with client_of(running) as client, futures.ThreadPoolExecutor(1) as other:

        def look() -> None:
            client.call("look", lambda api: api.get())

        # Given a thread that knows the first session, and another that was given a second, both over
        other.submit(look).result()
        running.tell(running.engine.sessions.clear)
        look()
        running.tell(running.engine.sessions.clear)

        other.submit(look).result()


def test_an_engine_that_restarts_is_waited_for(running: engine_world.Running) -> None:
    with client_of(running) as client:
        client.call("look", lambda api: api.get())
        running.tell(lambda: running.engine.restart(60))

        with pytest.raises(errors.Transient):
            client.call("make tag abc", make_tag, safe=False)
        found = retry.retry(lambda: client.call("look", lambda api: api.get()), deadline=running.clock.deadline(300))

    assert found.product_info.version.major == 4
    assert tags(running) == []


def test_who_may_only_look_is_refused_with_what_was_tried(running: engine_world.Running) -> None:
    with client_of(running, serving.VIEWER) as client, pytest.raises(errors.Unauthorized) as refusal:
        client.call("make tag abc", make_tag, safe=False)

    assert refusal.value.message == "the user may not make tag abc"
    assert refusal.value.words == "User is not authorized to perform this action."


def test_a_name_that_exists_and_a_thing_that_does_not(running: engine_world.Running) -> None:
    with client_of(running) as client:
        client.call("make tag abc", make_tag, safe=False)

        with pytest.raises(errors.AlreadyExists):
            client.call("make tag abc", make_tag, safe=False)
        assert client.look("look at VM 1", lambda api: api.vms_service().vm_service("1").get()) is None


def test_what_another_operation_holds_is_to_be_tried_again_later(running: engine_world.Running) -> None:
    with client_of(running) as client:
        (vm,) = client.named("vms", "intranet")
        running.tell(
            lambda: running.engine.locks.hold("vms", vm.id, "VM is locked. Please try again in a few minutes.")
        )

        with pytest.raises(errors.Transient) as busy:
            client.call("remove VM intranet", lambda api: api.vms_service().vm_service(vm.id).remove(), safe=False)

    assert busy.value.retry_after == 10.0


@pytest.mark.parametrize(
    ("collection", "name", "count"),
    [
        ("vms", "intranet", 1),
        ("vms", "Intranet", 0),
        ("vms", "intra*", 0),
        ("templates", "centos", 1),
        ("clusters", "Default", 1),
        ("storage_domains", "data", 1),
        ("disks", "intranet-disk", 1),
        ("instance_types", "XLarge", 1),
        ("vnic_profiles", "storage-trusted", 1),
        ("vms", 'with "quotes"', 0),
    ],
)
def test_names_are_names(running: engine_world.Running, collection: str, name: str, count: int) -> None:
    with client_of(running) as client:
        assert len(client.named(collection, name)) == count
