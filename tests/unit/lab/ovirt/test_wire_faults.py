"""What goes wrong with an engine: permits that lack, locks of others, jobs that lag, restarts, faults on order."""

from __future__ import annotations

import asyncio
import datetime
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import ovirtsdk4
import pytest
from ovirtsdk4 import types

from moorage import lab
from moorage.lab import faults as orders
from moorage.lab.ovirt import events, faults, jobs, locks, permissions, serving, shape
from tests.unit.lab.ovirt import engine_world


def permits(api: Any) -> set[str]:
    """What a client may do, found out as a client can."""
    me = api.get().authenticated_user.id
    given = api.users_service().user_service(me).permissions_service().list(follow="role.permits")
    return {permit.name for permission in given for permit in permission.role.permits}


def test_a_client_finds_out_what_it_may_do(running: engine_world.Running, api: Any) -> None:
    assert permits(api) == set(permissions.PERMITS)
    assert permits(running.connect(serving.VIEWER).system_service()) == {"login"}
    running.tell(lambda: shape.change(running.engine, {"permissions": {"admin@internal": ["login", "create_vm"]}}))
    assert permits(api) == {"login", "create_vm"}


def test_who_may_only_look_changes_nothing(running: engine_world.Running) -> None:
    api = running.connect(serving.VIEWER).system_service()
    assert [each.name for each in api.clusters_service().list()] == ["Default", "Edge"]
    with pytest.raises(ovirtsdk4.AuthError) as refused:
        api.tags_service().add(types.Tag(name="mine"))
    assert (refused.value.code, refused.value.fault.reason, refused.value.fault.detail) == (
        403,
        "Operation Failed",
        "[User is not authorized to perform this action.]",
    )
    assert len(api.tags_service().list()) == 1


def test_a_refused_action_carries_its_fault_inside(running: engine_world.Running) -> None:
    api = running.connect(serving.VIEWER).system_service()
    [vm] = api.vms_service().list(search="name=intranet")
    with pytest.raises(ovirtsdk4.AuthError, match="not authorized") as refused:
        api.vms_service().vm_service(vm.id).stop()
    assert refused.value.code == 403


def test_what_an_action_finds_wrong_comes_back_within_it(running: engine_world.Running) -> None:
    connection = running.connect()
    [vm] = connection.system_service().vms_service().list(search="name=intranet")
    url = f"https://{running.served.fqdn}{vm.href}/start"
    headers = {"Authorization": f"Bearer {connection.authenticate()}", "Content-Type": "application/xml"}
    request = urllib.request.Request(url, b"<action/>", headers, method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, context=engine_world.trusting(running.ca_file))  # noqa: S310
    root = ElementTree.fromstring(refused.value.read())  # noqa: S314
    assert (refused.value.code, root.tag, root.findtext("status")) == (409, "action", "failed")
    assert (root.findtext("fault/reason"), root.findtext("fault/detail")) == (
        "Operation Failed",
        "[Cannot run VM. VM is running.]",
    )


@pytest.mark.parametrize(
    ("method", "path", "permit"),
    [
        ("GET", "/vms", "login"),
        ("POST", "/vms", "create_vm"),
        ("DELETE", "/vms/1", "delete_vm"),
        ("PUT", "/vms/1", "edit_vm_properties"),
        ("POST", "/vms/1/start", "run_vm"),
        ("POST", "/vms/1/stop", "stop_vm"),
        ("POST", "/vms/1/nics", "configure_vm_network"),
        ("PUT", "/vms/1/diskattachments/2", "configure_vm_storage"),
        ("POST", "/vms/1/tags", "tag_management"),
        ("POST", "/tags", "tag_management"),
        ("POST", "/templates", "create_template"),
        ("DELETE", "/templates/1", "delete_template"),
        ("POST", "/disks", "create_disk"),
        ("DELETE", "/disks/1", "delete_disk"),
        ("POST", "/imagetransfers", "edit_disk_properties"),
        ("POST", "/clusters/1/affinitygroups/2/vms", "manipulate_affinity_groups"),
        ("DELETE", "/clusters/1", "edit_cluster_configuration"),
    ],
)
def test_every_change_needs_its_permit(method: str, path: str, permit: str) -> None:
    assert permissions.needed(method, path) == permit


@pytest.mark.parametrize(
    ("kind", "why", "doing", "words"),
    [
        ("vms", locks.LOCKED["vms"], "run VM", "[Cannot run VM: VM is locked. Please try again in a few minutes.]"),
        (
            "templates",
            locks.IN_PROGRESS,
            "remove Template",
            "[Cannot remove Template. Related operation is currently in progress. Please try again later.]",
        ),
        (
            "disks",
            locks.LOCKED["disks"],
            "",
            "[Cannot edit Virtual Disk: Disk is locked. Please try again later.]",
        ),
    ],
)
def test_what_somebody_holds_is_refused_in_the_engines_words(
    running: engine_world.Running, kind: str, why: str, doing: str, words: str
) -> None:
    held = running.engine.locks
    held.hold(kind, "1", why)
    for refuse in (held.check, held.hold):
        with pytest.raises(faults.Fault) as refused:
            refuse(kind, "1", doing=doing)
        assert (refused.value.status, refused.value.detail) == (409, words)
    held.check(kind, "2", doing)
    held.release(kind, "1")
    held.release(kind, "1")
    held.check(kind, "1", doing)


def test_those_who_share_a_thing_do_not_wait_for_each_other(running: engine_world.Running) -> None:
    held = running.engine.locks
    with held.holding("templates", "1", shared=True):
        with held.holding("templates", "1", shared=True):
            held.check("templates", "1", shared=True)
        with pytest.raises(faults.Fault):
            held.hold("templates", "1")
    assert not held.held("templates", "1")


def test_a_job_ends_when_the_engine_looks_which_is_after_its_work(tmp_path: Path) -> None:
    with engine_world.started(tmp_path, speed=4) as running:
        ending: list[asyncio.Event] = []
        done: list[float] = []

        async def work() -> None:
            ending.append(asyncio.Event())
            await ending[0].wait()
            done.append(running.clock.now())

        service = running.connect().system_service().jobs_service()

        def found() -> Any:
            [job] = service.list(search="correlation_id=mine-1")
            return job

        running.tell(lambda: running.engine.jobs.start("mine-1", "Adding Disk", work()))
        running.tell(lambda: running.engine.jobs.start("other", "Adding Disk", lab.sleep(running.clock, 0)))
        assert (found().status, found().description) == (types.JobStatus.STARTED, "Adding Disk")
        running.tell(lambda: ending[0].set())
        running.until(lambda: found().status == types.JobStatus.FINISHED)

        since = running.clock.wall() - datetime.timedelta(seconds=running.clock.now())
        ended = (found().end_time.replace(tzinfo=datetime.UTC) - since).total_seconds()
        assert -0.1 <= ended - done[0] <= 12.0
        assert ended % 10 < 2.0  # it looks every ten seconds, and only then
        steps = service.job_service(found().id).steps_service().list()
        assert [(each.description, each.status) for each in steps] == [
            ("Validating", types.StepStatus.FINISHED),
            ("Executing", types.StepStatus.FINISHED),
            ("Finalizing", types.StepStatus.FINISHED),
        ]


def test_a_job_whose_work_fails_says_so(running: engine_world.Running, api: Any) -> None:
    async def work() -> None:
        raise faults.refused("add Virtual Disk", "Low disk space on Storage Domain data.")

    running.tell(lambda: running.engine.jobs.start("mine-1", "Adding Disk", work()))
    running.until(lambda: api.jobs_service().list(search="correlation_id=mine-1")[0].status == types.JobStatus.FAILED)


def test_jobs_that_went_well_are_forgotten_after_ten_minutes(tmp_path: Path) -> None:
    with engine_world.started(tmp_path, speed=2000) as running:
        began = running.clock.now()
        running.tell(lambda: running.engine.jobs.start("mine-1", "x", lab.sleep(running.clock, 0)))
        running.until(lambda: bool(running.engine.inventory.find("jobs", status=jobs.FINISHED)))
        running.until(lambda: not running.engine.inventory.all("jobs"))
        assert running.clock.now() - began >= 600
        assert running.engine.inventory.all("steps") == []


def test_the_diary_is_read_from_where_one_left_off(running: engine_world.Running, api: Any) -> None:
    seen = api.events_service().list()[0].id
    add = running.engine.events.add
    running.tell(lambda: add(30, events.NORMAL, "VM a started", vm="1", correlation_id="mine-1"))
    running.tell(lambda: add(119, events.ERROR, "VM a is down with error"))
    found = api.events_service().list(from_=int(seen))
    assert [(each.code, each.severity) for each in found] == [
        (119, types.LogSeverity.ERROR),
        (30, types.LogSeverity.NORMAL),
    ]
    assert found[1].vm.id == "1"
    assert [each.code for each in api.events_service().list(search="severity=error")] == [119]
    assert [each.code for each in api.events_service().list(search="correlation_id=mine-1")] == [30]
    assert len(api.events_service().list(max=1)) == 1


def test_a_restart_shows_apaches_page_and_ends_every_session(running: engine_world.Running) -> None:
    connection = running.connect()
    api, token = connection.system_service(), connection.authenticate()
    running.tell(lambda: running.engine.restart(6000.0))
    with pytest.raises(ovirtsdk4.Error, match="text/html"):
        api.get()
    running.tell(lambda: running.engine.restart(60.0))
    running.until(lambda: not running.engine.down)
    assert api.get().product_info.name == "oVirt Engine"
    assert connection.authenticate() != token


def test_a_restart_cuts_off_who_is_being_answered(running: engine_world.Running) -> None:
    connection = running.connect()
    connection.authenticate()
    running.tell(lambda: running.site.faults.add(orders.Rule(orders.DELAY, path="/ovirt-engine/api", seconds=2000)))
    said: list[BaseException] = []

    def ask() -> None:
        try:
            connection.system_service().get()
        except ovirtsdk4.Error as problem:
            said.append(problem)

    asking = threading.Thread(target=ask)
    asking.start()
    running.until(lambda: bool(running.engine.answering))
    running.tell(lambda: running.engine.restart(1.0))
    asking.join(5)
    assert len(said) == 1


def test_faults_on_order_strike_the_engine(running: engine_world.Running, api: Any) -> None:
    api.get()
    order = running.site.faults.add
    path = "/ovirt-engine/api/tags"
    running.tell(
        lambda: order(orders.Rule(orders.APPLY_THEN_DROP, service="ovirt", method="POST", path=path, remaining=1))
    )
    with pytest.raises(ovirtsdk4.Error):
        api.tags_service().add(types.Tag(name="mine"))
    assert [each.name for each in api.tags_service().list()] == ["mine", "root"]

    running.tell(lambda: order(orders.Rule(orders.DUPLICATE, service="ovirt", method="POST", path=path, remaining=1)))
    with pytest.raises(ovirtsdk4.Error, match="already exists"):
        api.tags_service().add(types.Tag(name="yours"))
    assert len(api.tags_service().list()) == 3


def test_a_stale_read_sees_how_it_was_before_the_last_change(running: engine_world.Running, api: Any) -> None:
    running.tell(lambda: running.site.faults.add(orders.Rule(orders.STALE_READ, service="ovirt", method="GET", nth=2)))
    tags = api.tags_service()
    made = tags.add(types.Tag(name="mine"))
    assert tags.tag_service(made.id).get().name == "mine"
    with pytest.raises(ovirtsdk4.NotFoundError):
        tags.tag_service(made.id).get()
    assert [each.name for each in tags.list()] == ["root"]
    # and what was only changed is seen as it was
    tags.tag_service(made.id).update(types.Tag(name="renamed"))
    assert tags.tag_service(made.id).get().name == "mine"


def test_who_asked_what_is_on_record(running: engine_world.Running, api: Any) -> None:
    api.vms_service().list(search="name=x")
    [signing, asking] = running.site.calls.calls(service="ovirt")
    assert (signing.who, signing.path, signing.status) == ("admin@internal", "/ovirt-engine/sso/oauth/token", 200)
    assert (asking.who, asking.method, asking.path) == (
        "admin@internal",
        "GET",
        "/ovirt-engine/api/vms?search=name%3Dx",
    )
    assert asking.seconds >= 0.05
