"""kill -9 in the middle of `create cluster`, roll-back and destroy: a sample; `make conformance` tries every call."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import harness, trials
from tests.crash.filecloud import client

PLACES = 6


@pytest.mark.parametrize("place", range(PLACES))
def test_a_killed_installation_goes_on_to_the_same_inventory(
    site: harness.Site, clean: trials.Clean, place: int
) -> None:
    fatal = 1 + place * len(clean.calls) // PLACES

    trials.resumed(site, clean, f"{fatal}:{client.PHASES[place % 3]}")

    trials.destroyed(site, clean)


def test_the_create_call_whose_reply_was_never_read_is_not_repeated(site: harness.Site, clean: trials.Clean) -> None:
    creates = [number for number, call in enumerate(clean.calls, 1) if " POST " in call]

    trials.resumed(site, clean, f"{creates[0]}:after-commit", "2:after-commit", "9:before-send")


@pytest.mark.parametrize("how", trials.WAYS)
def test_destroy_leaves_nothing_and_spares_the_neighbours(site: harness.Site, clean: trials.Clean, how: str) -> None:
    middle = next(number for number, call in enumerate(clean.calls, 1) if "POST /v1/machine" in call)
    assert site.create(crash=f"{middle}:after-commit").code in (trials.KILLED, 0)

    trials.destroyed(site, clean, how)


@pytest.mark.parametrize("fatal", ["40:after-commit", "60:before-send"])
def test_a_killed_roll_back_goes_on_to_nothing(
    tmp_path: Path, template: Path, cloud: harness.Cloud, clean: trials.Clean, fatal: str
) -> None:
    site = trials.failing(template, tmp_path, cloud)

    trials.rolled_back(site, clean, fatal)

    cloud.admin("settings", {"fail": {}})
    trials.resumed(site, clean)


@pytest.mark.parametrize("fault", ["429", "500", "silent", "twice", "stale"])
def test_a_cloud_that_misbehaves_once_is_survived(site: harness.Site, clean: trials.Clean, fault: str) -> None:
    create = next(number for number, call in enumerate(clean.calls, 1) if "POST /v1/balancer" in call)
    site.cloud.admin("faults", {create: fault, create + 1: "stale"})

    trials.resumed(site, clean)
