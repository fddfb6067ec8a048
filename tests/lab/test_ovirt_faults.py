"""What an engine does to those who make a cluster on it: sessions end, replies are lost, locks stay, it restarts.

Each story is told to the lab's engine as a whole: the flow of `create cluster` meets the trouble, gets over it (or says
what is to be done, and goes on from there), and what it made can be removed without a trace of it and without harm to
others. How single calls fail is told in tests/unit/platforms_ovirt.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage import errors as top
from moorage.assets import keys
from moorage.engine import errors, progress
from moorage.lab import client
from tests.lab import ovirt_site, rack

pytestmark = pytest.mark.long

Open = Callable[..., ovirt_site.Site]

#: A whole cluster has deadlines of minutes, which must be seconds for a busy computer.
WHOLE_CLUSTER = 60.0

APART = ("affinityGroups:", "- name: controlplane", "  priority: 5", "  enforcing: {enforcing}")
COPIES = ("defaultMachinePlatform:", "  format: raw", "  sparse: false")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.Lab]:
    with rack.unhurried_lab(tmp_path_factory.mktemp("lab"), ovirt_site.SPEED) as found:
        yield found


@pytest.fixture
def opened(lab: client.Lab, tmp_path: Path, keyring: keys.Keyring) -> Iterator[Open]:
    """Opens sites; what a story leaves there must go without harm to anybody else."""
    sites: list[ovirt_site.Site] = []

    def opened(*more: str, **scene: int) -> ovirt_site.Site:
        sites.append(ovirt_site.opened(lab, tmp_path / "site", keyring, more=more, **scene))
        return sites[-1]

    yield opened
    for site in sites:
        site.heal()
        site.destroy()
        site.assert_only_others_are_left()


def made(statuses: list[int | None]) -> int:
    """How many of the calls were obeyed."""
    return sum(1 for status in statuses if status is not None and status < 300)


def test_a_session_that_ends_again_and_again_costs_nothing_but_new_ones(opened: Open) -> None:
    site = opened()

    def expire(event: progress.Event) -> None:
        if isinstance(event, progress.Creating) and event.resource in ("template", "master-1"):
            site.control("POST", "/lab/tokens/expire")

    site.build(expire)

    assert site.is_whole()
    refused = [each for each in site.scene.calls() if each["status"] == 401]
    assert len(refused) >= 2, "both ends were met"
    vms = site.calls("POST", "/vms")
    assert made(vms) == len(site.machines()) + 1, "each VM once, and the template's"
    assert "session" not in site.told(), "an ended session is nothing to tell of"


def test_machines_that_somebody_locks_before_they_start_are_started_when_they_are_free(opened: Open) -> None:
    site = opened(ovirt_site.OWN_TEMPLATE)
    held = site.fault("fail", "POST", "/vms/*/start", status=503, remaining=None)
    failures: list[BaseException] = []

    def build() -> None:
        try:
            site.build()
        except BaseException as failure:  # noqa: BLE001 - told below
            failures.append(failure)

    building = threading.Thread(target=build)
    building.start()
    names = sorted(site.machines())[:3]
    site.until(lambda: waits_for_its_start(site, names), "machines that only want to be started")
    for name in names:
        site.until(lambda name=name: site.hold("vms", name, 400), f"{name} to be free for another tool")
    site.control("DELETE", f"/lab/faults/{held}")
    building.join(60)

    assert failures == []
    assert site.is_whole()
    assert 409 in site.calls("POST", "/vms/*/start")
    assert "VM is locked. Please try again in a few minutes." in site.told()


def waits_for_its_start(site: ovirt_site.Site, names: list[str]) -> bool:
    vms = site.ours()
    return all(name in vms and site.calls("POST", f"/vms/{vms[name]['id']}/start") for name in names)


@pytest.mark.parametrize(("order", "disks"), [({"disk": "locked", "seconds": 200}, 2), ({}, 1)], ids=["locked", "cut"])
def test_an_upload_that_dies_at_sixty_percent_is_gone_on_with_or_begun_anew(
    order: dict[str, object], disks: int, opened: Open
) -> None:
    site = opened(workers=0)
    site.shape(transfers={"die_at": 0.6, **order})

    site.build()

    assert site.is_whole()
    assert site.control("GET", "/lab/ovirt")["shape"]["transfers"] == {}, "it never died"
    assert made(site.calls("POST", "/disks")) == disks
    assert set(site.ours("templates")) == {f"{site.infra_id}-rhcos"}
    assert site.loose_disks() == set(), "the disk that died is left"


def test_a_run_that_was_killed_between_creation_and_start_is_gone_on_with_by_the_next(opened: Open) -> None:
    site = opened(ovirt_site.OWN_TEMPLATE)
    site.fault("fail", "POST", "/vms/*/start", status=503, remaining=None)
    killed = site.scene.begin("create", "cluster")
    site.until(lambda: set(site.ours()) == site.machines() and min(site.struck().values()) > 5, "all machines")
    killed.kill()
    killed.communicate(timeout=rack.unhurried(site.scene.lab, 30))
    before = {name: vm["id"] for name, vm in site.ours().items()}
    assert {vm["status"] for vm in site.ours().values()} <= {"down", "image_locked"}
    site.heal()

    second = site.scene.begin("create", "cluster")
    site.until(site.is_whole, "all machines to run")
    second.send_signal(signal.SIGINT)
    said, _ = second.communicate(timeout=rack.unhurried(site.scene.lab, 60))

    assert second.returncode == top.INTERRUPT, said
    assert {name: vm["id"] for name, vm in site.ours().items()} == before, "nothing was made a second time"
    assert made(site.calls("POST", "/vms/*/start")) == len(before)


def test_two_hosts_for_three_masters_are_explained_before_anything_is_made(opened: Open) -> None:
    site = opened()
    site.shape(hosts={"Default": 2})

    ended = site.scene.moorage("create", "cluster")

    assert ended.returncode == top.ConfigError.exit_code
    assert "nothing was created" in ended.stderr
    assert "the 3 machines of group 'controlplane' must run on different hosts" in ended.stderr
    assert "the cluster has 2 active" in ended.stderr
    assert "enforcing: false" in ended.stderr
    assert site.scene.left() == []


def test_two_hosts_carry_three_masters_that_may_share_them(opened: Open) -> None:
    site = opened(ovirt_site.OWN_TEMPLATE, *(line.format(enforcing="false") for line in APART))
    site.shape(hosts={"Default": 2})

    assert site.objections() == []
    site.build()

    assert site.is_whole()
    hosts = [vm["host"]["id"] for name, vm in site.ours().items() if "-master-" in name]
    assert sorted(hosts.count(host) for host in set(hosts)) == [1, 2], "spread as far as it goes"


def test_a_host_that_fails_meanwhile_ends_it_with_a_reason_and_the_next_run_completes_it(opened: Open) -> None:
    site = opened(ovirt_site.OWN_TEMPLATE, workers=0)
    assert site.objections() == []
    site.shape(host_status={"default-3": "non_operational"})

    with pytest.raises(errors.FlowFailed) as failed:
        site.build()

    [failure] = failed.value.failures
    assert "no host that satisfies current scheduling constraints" in str(failure)
    assert "negative affinity" in str(failure)
    assert "enforcing: false" in failure.remedy
    before = {name: vm["id"] for name, vm in site.ours().items()}
    assert set(before) == site.machines(), "what could be made was not"
    site.shape(host_status={"default-3": "up"})
    site.build()
    assert site.is_whole()
    assert {name: vm["id"] for name, vm in site.ours().items()} == before, "nothing was made a second time"


def test_storage_that_fills_up_while_disks_are_copied_is_told_and_space_lets_it_go_on(opened: Open) -> None:
    site = opened(ovirt_site.OWN_TEMPLATE, *COPIES)
    # Each copy of 10 GiB fits by itself, all of them together do not.
    site.shape(storage={"data": {"free_gib": 22}})

    with pytest.raises(errors.FlowFailed) as failed:
        site.build()

    vanished = [failure for failure in failed.value.failures if "is not there" in str(failure)]
    assert vanished, "no disk was being copied any more"
    assert all("Failed to create VM" in str(failure) for failure in vanished)
    helpless = [failure for failure in failed.value.failures if "storage domain" not in failure.remedy]
    assert helpless == [], "each is told what may help"
    there = {name: vm["id"] for name, vm in site.ours().items()}
    assert 0 < len(there) < len(site.machines())
    site.shape(storage={"data": {"free_gib": 2000}})
    site.build()
    assert site.is_whole()
    assert there.items() <= {name: vm["id"] for name, vm in site.ours().items()}.items()


def test_machines_without_an_agent_are_made_and_have_no_address(opened: Open) -> None:
    site = opened(ovirt_site.OWN_TEMPLATE, masters=1, workers=1)
    site.shape(guest={"agent": "never"})

    site.build()

    assert site.is_whole()
    site.until(lambda: {vm["status"] for vm in site.ours().values()} == {"up"}, "the engine to take them for up")
    told = {name: instance.addresses for name, instance in site.instances().items()}
    assert told == dict.fromkeys(site.machines(), ())


def test_a_cluster_whose_virtual_addresses_are_told_first_comes_up_while_the_engine_restarts(
    tmp_path: Path, keyring: keys.Keyring
) -> None:
    with rack.unhurried_lab(tmp_path / "lab", WHOLE_CLUSTER) as lab:
        site = ovirt_site.opened(lab, tmp_path / "site", keyring, more=[ovirt_site.OWN_TEMPLATE])
        _told_first(site)
        site.destroy()
        site.assert_only_others_are_left()


def _told_first(site: ovirt_site.Site) -> None:
    site.shape(guest={"agent": "vip-first"})
    installing = site.scene.begin("create", "cluster")
    site.until(site.is_whole, "all machines to run")
    site.control("POST", "/lab/ovirt/restart", {"seconds": 300})

    said, _ = installing.communicate(timeout=rack.unhurried(site.scene.lab, 240))

    assert installing.returncode == 0, said
    own = {each["name"]: each["address"] for each in site.control("GET", "/lab")["machines"]}
    virtual = {site.scene.api, site.scene.ingress}
    told = site.reported()
    assert virtual == {addresses[0] for addresses in told.values()} & virtual, "the guests tell them first"
    bootstrap = f"{site.infra_id}-bootstrap"
    assert {name: instance.addresses for name, instance in site.instances().items()} == {
        name: (own[name],) for name in site.machines() - {bootstrap}
    }


CREATIONS = ("/tags", "/clusters/*/affinitygroups", "/disks", "/imagetransfers", "/templates", "/vms")


def test_creations_that_happened_without_a_reply_are_found_and_not_repeated(opened: Open) -> None:
    site = opened()
    for path in CREATIONS:
        site.fault("apply-then-drop", "POST", path, remaining=3 if path == "/vms" else 1)

    site.build()

    assert site.struck() == {path: 3 if path == "/vms" else 1 for path in CREATIONS}
    assert site.is_whole()
    assert set(site.ours("templates")) == {f"{site.infra_id}-rhcos"}
    assert set(site.ours("affinity_groups")) == {f"{site.infra_id}-{name}" for name in ("controlplane", "compute")}
    assert site.loose_disks() == set(), "a second disk was made"


def test_changes_that_happened_without_a_reply_are_not_done_twice(opened: Open) -> None:
    site = opened(workers=0)
    lost = ("/vms/*/diskattachments", "/vms/*/nics", "/vms/*/tags", "/vms/*/start", "/imagetransfers/*/finalize")
    lost += ("/clusters/*/affinitygroups/*/vms",)
    for path in lost:
        site.fault("apply-then-drop", "POST", path, remaining=2)
    site.fault("apply-then-drop", "PUT", "/vms/*/diskattachments/*", remaining=2)

    site.build()

    assert min(site.struck().values()) > 0, site.struck()
    assert site.is_whole()
    members = [group["vms"] for group in site.ours("affinity_groups").values()]
    assert sorted(len(set(each)) for each in members) == sorted(len(each) for each in members)


def test_an_engine_that_restarts_while_it_is_waited_for_is_waited_for_too(opened: Open) -> None:
    site = opened()
    moments = {"template": 0, "master-0": 0}

    def restart(event: progress.Event) -> None:
        if isinstance(event, progress.Waiting) and event.resource in moments:
            moments[event.resource] += 1
            if moments[event.resource] == 2:
                site.control("POST", "/lab/ovirt/restart", {"seconds": 90})

    site.build(restart)

    assert min(moments.values()) >= 2
    assert 503 in {each["status"] for each in site.scene.calls()}
    assert "the engine is not there at the moment" in site.told()
    assert site.is_whole()
