"""One trial: an installation that is killed at a chosen place, and all that must be true of what comes after.

Each raises AssertionError with the story so far. What a trial ends with is always the same: after destroy, the cloud
holds what it held before, and the neighbours are untouched.
"""

from __future__ import annotations

import dataclasses
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from tests.crash import harness

KILLED = -signal.SIGKILL
REFUSED = "the rack is on fire"


@dataclasses.dataclass(frozen=True)
class Clean:
    """What an undisturbed installation does and leaves: the measure of all others."""

    calls: tuple[str, ...]
    inventory: harness.Inventory
    before: harness.Inventory
    destroy_calls: int
    rollback_calls: int


def fresh(template: Path, folder: Path, cloud: harness.Cloud, **settings: object) -> harness.Site:
    """A copy of the prepared directory, and a cloud with nothing but neighbours."""
    site = harness.Site(harness.copied(template, folder / "harbour"), cloud)
    cloud.reset(**{"lag": 1, **settings})
    cloud.neighbours(site.infra_id)
    return site


def clean_run(template: Path, folder: Path, cloud: harness.Cloud) -> Clean:
    """Number the calls of each command, in runs that nobody disturbs."""
    site = fresh(template, folder, cloud)
    before = cloud.inventory()
    calls = site.calls("create", "cluster")
    inventory = cloud.inventory()
    destroy = site.calls("destroy", "cluster")
    assert cloud.inventory() == before
    site = failing(template, folder, cloud)
    numbered = folder / "rollback.calls"
    numbered.unlink(missing_ok=True)
    done = site.create("--rollback", environ={"FILECLOUD_CALLS": str(numbered)})
    assert done.code == 4, done.said
    assert cloud.inventory() == before
    return Clean(tuple(calls), inventory, before, len(destroy), len(numbered.read_text().splitlines()))


def failing(template: Path, folder: Path, cloud: harness.Cloud) -> harness.Site:
    """A site whose last master is refused."""
    site = fresh(template, folder, cloud)
    cloud.admin("settings", {"fail": {f"{site.infra_id}-master-2": REFUSED}})
    return site


def resumed(site: harness.Site, clean: Clean, *crashes: str) -> None:
    """Die at each of ``crashes`` in turn, then go on undisturbed: exactly the clean run's inventory."""
    for crash in crashes:
        died = site.create(crash=crash)
        # A run may get by with fewer calls than the clean one, which polled more often: it is complete then.
        assert died.code in (KILLED, 0), f"{crash}: {died.said}"
    done = site.create()
    assert done.code == 0, f"{crashes}: {done.said}"
    assert site.cloud.inventory() == clean.inventory, (
        f"{crashes}: {difference(site.cloud.inventory(), clean.inventory)}"
    )


def rolled_back(site: harness.Site, clean: Clean, *crashes: str) -> None:
    """Roll back, dying on the way: in the end nothing is left, and the next run starts afresh."""
    for crash in crashes:
        died = site.create("--rollback", crash=crash)
        assert died.code in (KILLED, 4), f"{crash}: {died.said}"
    done = site.create("--rollback")
    assert done.code == 4, f"{crashes}: {done.said}"
    assert REFUSED in done.said, done.said
    leaks = difference(site.cloud.inventory(), clean.before)
    assert site.cloud.inventory() == clean.before, f"roll-back, {crashes}: {leaks}"


def destroyed(site: harness.Site, clean: Clean, how: str = "") -> None:
    """Destroy in one of `WAYS`: what is left is what was there before the installation."""
    infra_id = site.infra_id
    if how:
        WAYS[how](site)
    words = ["--infra-id", infra_id, "--platform", "filecloud"] if how == "nothing but the mark" else []
    for _ in range(2 if how == "twice" else 1):
        done = site.destroy(*words)
        assert done.code == 0, f"destroy, {how}: {done.said}"
        leaks = difference(site.cloud.inventory(), clean.before)
        assert site.cloud.inventory() == clean.before, f"destroy, {how}: {leaks}"


def _without_journal(site: harness.Site) -> None:
    for path in site.directory.glob(".moorage_journal*"):
        path.unlink()


def _metadata_alone(site: harness.Site) -> None:
    content = (site.directory / "metadata.json").read_bytes()
    _with_nothing(site)
    (site.directory / "metadata.json").write_bytes(content)


def _with_nothing(site: harness.Site) -> None:
    shutil.rmtree(site.directory)
    site.directory.mkdir()


def _killed_first(site: harness.Site) -> None:
    """Die in the middle of destroy, once after each kind of boundary."""
    for crash in ("8:before-send", "12:after-commit", "20:after-reply"):
        died = site.destroy(crash=crash)
        assert died.code in (KILLED, 0), died.said


WAYS: dict[str, Callable[[harness.Site], None]] = {
    "journal deleted": _without_journal,
    "metadata.json alone": _metadata_alone,
    "nothing but the mark": _with_nothing,
    "killed on the way": _killed_first,
    "twice": lambda _site: None,
}


def difference(found: harness.Inventory, wanted: harness.Inventory) -> str:
    """What is too much and what is missing, by name."""
    names, expected = ([f"{item['kind']} {item['name']}" for item in many] for many in (found, wanted))
    extra = [name for name in names if names.count(name) > expected.count(name)]
    missing = [name for name in expected if expected.count(name) > names.count(name)]
    changed = [item["name"] for item in found if item not in wanted]
    return f"too much: {extra}, missing: {missing}, other than it should be: {changed}"
