"""`create cluster` on bad days that are not crashes: refusals, interrupts, changed minds; told by the real program."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import harness, trials


def test_a_refused_resource_is_explained_to_the_last_command(
    tmp_path: Path, template: Path, cloud: harness.Cloud
) -> None:
    site = trials.failing(template, tmp_path, cloud)

    done = site.create()

    assert done.code == 4
    said = done.said[done.said.index("error:") :]
    assert "master-2 (machine)" in said
    assert trials.REFUSED in said
    assert "left in place: network, image, balancer" in said
    assert f"moorage create cluster --dir {site.directory}" in said
    assert f"moorage destroy cluster --dir {site.directory}" in said


def test_a_full_cloud_is_noticed_before_anything_is_made(site: harness.Site) -> None:
    site.cloud.admin("settings", {"most_machines": 3})
    before = site.cloud.inventory()

    done = site.create()

    assert done.code == 3
    assert "machines: 4 are needed, 3 are left of 3" in done.said
    assert "nothing was created" in done.said
    assert site.cloud.inventory() == before


def test_a_name_that_is_taken_is_noticed_before_anything_is_made(site: harness.Site) -> None:
    taken = {"name": "theirs", "tags": ["cluster:theirs"], "spec": {"host": "api.harbour.example.com"}}
    site.cloud.admin("settings", {"lag": 0})
    site.cloud.admin("things", [["record", taken]])

    done = site.create()

    assert done.code == 3
    assert "metadata.name: the name api.harbour.example.com is taken" in done.said


def test_preflight_can_be_overruled_and_the_platform_has_the_last_word(site: harness.Site) -> None:
    site.cloud.admin("settings", {"most_machines": 3})

    done = site.create(environ={"OPENSHIFT_INSTALL_SKIP_PREFLIGHT_VALIDATIONS": "1"})

    assert done.code == 4
    assert "quota of 3 machines is used up" in done.said


def test_an_interrupt_ends_in_good_order_and_the_next_run_goes_on(site: harness.Site, clean: trials.Clean) -> None:
    slow = {**harness.environment(), **site.cloud.environ(), "MOORAGE_CLOCK_SPEED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "moorage", "create", "cluster", "--dir", str(site.directory)],
        stderr=subprocess.PIPE,
        text=True,
        env=slow,
        cwd=harness.ROOT,
    )
    assert process.stderr
    said = "".join(iter(lambda: line if "waiting for" not in (line := process.stderr.readline()) else "", ""))
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=60)[1]

    assert process.returncode == 8, said + rest
    assert "run the same command again" in rest
    assert "interrupted" in site.moorage("status").output
    trials.resumed(site, clean)


def test_a_second_installer_is_told_who_is_at_work(site: harness.Site) -> None:
    slow = {**harness.environment(), **site.cloud.environ(), "MOORAGE_CLOCK_SPEED": "1"}
    words = [sys.executable, "-m", "moorage", "create", "cluster", "--dir", str(site.directory)]
    first = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=slow, cwd=harness.ROOT)
    try:
        assert first.stderr
        assert any("waiting for" in line for line in iter(first.stderr.readline, ""))
        second = site.create()
        running = json.loads(site.moorage("status", "-o", "json").output)
    finally:
        first.kill()
        first.communicate()
    cut_off = json.loads(site.moorage("status", "-o", "json").output)

    assert second.code == 1
    assert f"is in use by `moorage create cluster` (process {first.pid}" in second.said.replace(
        "__main__.py", "moorage"
    )
    assert running["outcome"] == "running"
    assert running["stages"][-1]["name"] == "infrastructure"
    assert [item["waiting_for"] for item in running["resources"] if item["waiting_for"]]
    assert cut_off["outcome"] == "cut off"


def test_a_changed_graph_is_refused_with_a_safe_way_on(
    tmp_path: Path, template: Path, cloud: harness.Cloud, clean: trials.Clean
) -> None:
    site = trials.failing(template, tmp_path, cloud)
    assert site.create().code == 4
    cloud.admin("settings", {"fail": {}})
    made = cloud.inventory()
    newer = {"FILECLOUD_RESHAPE": "1"}

    refused = site.create(environ=newer)

    assert refused.code == 1
    assert "balancer was a balancer that needs network and is a balancer that needs image, network" in refused.said
    assert f"moorage create cluster --dir {site.directory} --accept-changes" in refused.said
    assert cloud.inventory() == made
    accepted = site.create("--accept-changes", environ=newer)
    assert accepted.code == 0, accepted.said
    assert cloud.inventory() == clean.inventory


def test_another_name_in_the_install_config_does_not_orphan_what_exists(
    tmp_path: Path, template: Path, cloud: harness.Cloud
) -> None:
    site = trials.failing(template, tmp_path, cloud)
    assert site.create().code == 4
    mark = site.infra_id
    config = site.directory / "install-config.yaml"
    config.write_text(config.read_text().replace("name: harbour", "name: marina"))

    done = site.create()

    assert done.code == 1
    assert f"holds the cluster {mark} on filecloud" in done.said
    assert site.infra_id == mark


def test_a_half_destroyed_cluster_is_not_built_upon(site: harness.Site, clean: trials.Clean) -> None:
    trials.resumed(site, clean)
    assert site.destroy(crash="25:after-commit").code == trials.KILLED

    done = site.create()

    assert done.code == 1
    assert f"let it end first: moorage destroy cluster --dir {site.directory}" in done.said
    trials.destroyed(site, clean)


def test_after_destroy_a_new_cluster_starts_afresh(site: harness.Site, clean: trials.Clean) -> None:
    trials.resumed(site, clean)
    first = site.infra_id
    trials.destroyed(site, clean)

    assert sorted(path.name for path in site.directory.iterdir() if not path.name.startswith(".moorage")) == [
        "destroyed",
        "install-config.yaml",
    ]
    assert site.create().code == 0
    assert site.infra_id != first
    assert len(site.cloud.inventory()) == len(clean.inventory)


def test_the_bootstrap_is_not_made_again_once_it_is_gone(site: harness.Site, clean: trials.Clean) -> None:
    removed = next(number for number, call in enumerate(clean.calls, 1) if "DELETE" in call)
    assert site.create(crash=f"{removed + 2}:after-reply").code == trials.KILLED

    calls = site.calls("create", "cluster")

    assert not [call for call in calls if " POST " in call]
    assert site.cloud.inventory() == clean.inventory


def test_the_bootstrap_can_be_kept_and_destroyed_by_hand(site: harness.Site, clean: trials.Clean) -> None:
    assert site.create(environ={"OPENSHIFT_INSTALL_PRESERVE_BOOTSTRAP": "1"}).code == 0
    kept = site.cloud.inventory()

    done = site.moorage("destroy", "bootstrap")

    assert done.code == 0, done.said
    assert [item["name"] for item in kept if item not in clean.inventory] == [f"{site.infra_id}-bootstrap"]
    assert site.cloud.inventory() == clean.inventory


def test_what_refuses_to_go_is_reported_and_the_rest_goes(site: harness.Site, clean: trials.Clean) -> None:
    trials.resumed(site, clean)
    stuck = f"{site.infra_id}-master-1"
    site.cloud.admin("settings", {"stuck": [stuck]})

    done = site.destroy(environ={"MOORAGE_CLOCK_SPEED": "5000"})

    assert done.code == 4
    told = done.said[done.said.index("3 of ") :]
    assert f"machine {stuck}:" in told
    assert f"{stuck} is locked by an operation of the provider" in told
    assert f"{site.infra_id}-network is in use by {stuck}" in told
    left = [item["name"] for item in site.cloud.inventory() if item not in clean.before]
    assert sorted(left) == sorted([stuck, f"{site.infra_id}-image", f"{site.infra_id}-network"])
    site.cloud.admin("settings", {"stuck": []})
    trials.destroyed(site, clean)


def test_the_journal_and_the_log_are_private_and_hold_no_secret(site: harness.Site, clean: trials.Clean) -> None:
    trials.resumed(site, clean)

    for name in (".moorage_journal.sqlite", ".moorage.log"):
        path = site.directory / name
        assert path.stat().st_mode & 0o777 == 0o600
        for secret in (b"open-sesame", b"c29tZWJvZHk6dmVyeS1zZWNyZXQ="):
            assert secret not in path.read_bytes()
    assert b"call: POST /v1/machine -> 201" in (site.directory / ".moorage.log").read_bytes()


@pytest.mark.parametrize("credentials", [True, False])
def test_a_plan_makes_nothing_and_needs_no_credentials(site: harness.Site, credentials: bool) -> None:
    before = site.cloud.inventory()
    for path in site.directory.iterdir():
        if path.is_file() and path.name != "install-config.yaml":
            path.unlink()

    done = site.moorage("plan", environ={} if credentials else {"FILECLOUD_TOKEN": ""})

    assert done.code == 0, done.said
    assert "9 resources (1 network, 1 image, 1 balancer, 2 record, 4 machine)" in done.output
    assert "decided by (*): network → balancer → bootstrap → master-" in done.output
    if credentials:
        assert "limit machines: 0 used + 4 = 4 of 8" in done.output
    else:
        assert "limits, clashes and reuse are unknown: there are no credentials" in done.output
    assert site.cloud.inventory() == before
    assert {path.name for path in site.directory.iterdir() if path.is_file()} == {
        "install-config.yaml",
        ".moorage.lock",
        ".moorage.log",
        ".moorage_state.json",
    }
