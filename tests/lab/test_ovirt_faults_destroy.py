"""What an engine, and others who work on it, do to those who remove a cluster.

In the end nothing of the cluster is left, or it is said what is, and why; whatever belongs to somebody else is as it
was, even where it was made from the cluster's own template.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ovirtsdk4 import types

from moorage.assets import keys
from moorage.engine import progress
from moorage.installer import destroy
from moorage.lab import client
from moorage.platforms.ovirt import client as clients
from tests.lab import ovirt_site, rack

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.Lab]:
    with rack.unhurried_lab(tmp_path_factory.mktemp("lab"), ovirt_site.SPEED) as found:
        yield found


@pytest.fixture
def site(lab: client.Lab, tmp_path: Path, keyring: keys.Keyring) -> ovirt_site.Site:
    """A small cluster to be made from an image of its own."""
    return ovirt_site.opened(lab, tmp_path / "site", keyring, masters=1, workers=1)


@pytest.fixture
def built(site: ovirt_site.Site) -> ovirt_site.Site:
    """Its machines, running."""
    site.build()
    assert site.is_whole()
    return site


def test_what_another_tool_holds_is_removed_when_it_lets_go(built: ovirt_site.Site) -> None:
    kinds = {f"VM {built.infra_id}-master-0": "vms", f"template {built.infra_id}-rhcos": "templates"}

    def forestall(event: progress.Event) -> None:
        if isinstance(event, progress.Deleting) and event.resource in kinds:
            assert built.hold(kinds.pop(event.resource), event.resource.partition(" ")[2], 90)

    built.destroy(forestall)

    assert kinds == {}
    assert 409 in built.calls("POST", "/vms/*/stop")
    assert 409 in built.calls("DELETE", "/templates/*")
    built.assert_only_others_are_left()


def test_a_template_that_somebody_uses_stays_with_its_user_and_goes_after_it(
    built: ovirt_site.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destroy, "ASKING", 60.0)
    borrower = borrowed(built, "borrower", clone=False)
    theirs = [name for name in built.scene.left() if built.infra_id not in name]
    assert theirs == ["vms/borrower"]

    with pytest.raises(destroy.LeftBehind) as left:
        built.destroy(patience=30)

    [template] = left.value.left
    assert template.resource == f"template {built.infra_id}-rhcos"
    assert "Template is being used by the following VMs: borrower" in template.words
    assert set(built.ours()) == {"borrower"}
    [disk] = disks_of(built, borrower)
    assert disk["status"] == "ok"
    with clients.Client(built.around) as engine:
        engine.call("remove the borrower", lambda api: api.vms_service().vm_service(borrower).remove())
    built.until(lambda: not built.ours(), "the borrower to be gone")
    built.destroy()
    built.assert_only_others_are_left()


def test_copies_that_somebody_made_of_the_template_stay_with_their_disks(built: ovirt_site.Site) -> None:
    copy = borrowed(built, "copy", clone=True)
    wanted = types.Template(name="theirs", vm=types.Vm(id=copy))
    with clients.Client(built.around) as engine:
        engine.call("make a template", lambda api: api.templates_service().add(wanted))
    built.until(lambda: is_idle(built), "the template of theirs")
    theirs = {ident: disk for ident, disk in built.disks().items() if disk["name"].endswith("_copy")}
    assert len(theirs) == 2
    assert {disk["description"] for disk in theirs.values()} == {f"moorage: {built.infra_id}"}, "they bear our mark"

    built.destroy()

    assert (set(built.ours()), set(built.ours("templates"))) == ({"copy"}, {"theirs"})
    assert built.disks() == theirs
    assert len(built.scene.left()) == 4, "the copy, the template of theirs, and a disk of each"


def borrowed(site: ovirt_site.Site, name: str, *, clone: bool) -> str:
    """Somebody makes a VM from the cluster's template. Its id."""
    wanted = types.Vm(
        name=name,
        cluster=types.Cluster(name="Default"),
        template=types.Template(name=f"{site.infra_id}-rhcos"),
    )
    with clients.Client(site.around) as engine:
        made = engine.call("make a VM", lambda api: api.vms_service().add(wanted, clone=clone))
    site.until(lambda: is_idle(site), name)
    return str(made.id)


def is_idle(site: ovirt_site.Site) -> bool:
    """Whether nobody works on anything."""
    return site.scene.inventory()["locks"] == []


def disks_of(site: ovirt_site.Site, vm_id: str) -> list[dict[str, Any]]:
    inventory = site.scene.inventory()
    its = {each["disk"]["id"] for each in inventory["disk_attachments"] if each.get("vm", {}).get("id") == vm_id}
    return [each for each in inventory["disks"] if each["id"] in its]


def test_removals_that_happened_without_a_reply_are_not_missed(built: ovirt_site.Site) -> None:
    lost = ("/vms/*", "/templates/*", "/tags/*", "/clusters/*/affinitygroups/*")
    for path in lost:
        built.fault("apply-then-drop", "DELETE", path, remaining=1)
    built.fault("apply-then-drop", "POST", "/vms/*/stop", remaining=2)

    built.destroy()

    assert built.struck() == {**dict.fromkeys(lost, 1), "/vms/*/stop": 2}
    built.assert_only_others_are_left()


def test_an_engine_that_restarts_and_a_session_that_ends_do_not_stop_it(built: ovirt_site.Site) -> None:
    deeds = {"VM": "/lab/ovirt/restart", "affinity": "/lab/tokens/expire"}

    def trouble(event: progress.Event) -> None:
        kind = event.resource.partition(" ")[0]
        if isinstance(event, progress.Deleting) and kind in deeds:
            path = deeds.pop(kind)
            built.control("POST", path, {"seconds": 60} if "restart" in path else None)

    built.destroy(trouble)

    assert deeds == {}
    statuses = {each["status"] for each in built.scene.calls()}
    assert {401, 503} <= statuses
    built.assert_only_others_are_left()


def test_a_removal_that_was_killed_is_ended_by_the_next_one(built: ovirt_site.Site) -> None:
    built.fault("fail", "DELETE", "/templates/*", status=503, remaining=None)
    killed = built.scene.begin("destroy", "cluster")
    built.until(lambda: not built.ours() and built.struck()["/templates/*"], "the template to be next")
    killed.kill()
    killed.communicate(timeout=rack.unhurried(built.scene.lab, 30))
    assert any(name.startswith("templates/") for name in built.scene.left())
    built.heal()

    ended = built.scene.moorage("destroy", "cluster")

    assert ended.returncode == 0, ended.stderr
    built.assert_only_others_are_left()


def test_an_upload_that_nobody_will_end_goes_although_its_disk_is_locked(site: ovirt_site.Site) -> None:
    site.shape(transfers={"die_at": 0.6, "disk": "locked", "seconds": 400})
    killed = site.scene.begin("create", "cluster")
    site.until(lambda: not site.control("GET", "/lab/ovirt")["shape"]["transfers"], "the upload to die")
    killed.kill()
    killed.communicate(timeout=rack.unhurried(site.scene.lab, 30))
    [disk] = site.disks().values()
    assert disk["status"] == "locked"

    site.destroy()

    site.assert_only_others_are_left()
