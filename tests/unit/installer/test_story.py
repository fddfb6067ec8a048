"""The story of `create cluster`: its stages, what a second run passes over, and how each kind of bad end is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from moorage import errors as top
from moorage.assets import keys
from moorage.config import findings
from moorage.engine import clock as clocks
from moorage.engine import errors, flow, secret
from moorage.engine import journal as journals
from moorage.installer import aside, stages, story, waiting
from moorage.platforms import contract, registry
from tests.unit.engine import toycloud
from tests.unit.installer import quay

INSTALLED = waiting.Installed("https://api", "https://console", "4.20.0", Path("kubeconfig"), Path("password"))


class Harbour:
    """A platform in memory, its cluster that comes up as told, and a person who types `create cluster`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cloud = toycloud.Cloud()
        self.quay = quay.Quay(bootstrap=0)
        self.report = contract.Report()
        self.inspected = 0
        self.waits: dict[str, list[Exception]] = {"bootstrap": [], "install": []}
        self.waited: list[str] = []
        self.credentials: contract.ClusterSecret | None = None
        self.clock = clocks.ManualClock()

    def declare(self, cluster: contract.Cluster, around: contract.Surroundings) -> flow.Flow:
        return flow.Flow("infrastructure", toycloud.harbour(self.cloud))

    def secrets(self, cluster: contract.Cluster, around: contract.Surroundings) -> Sequence[secret.Secret]:
        return (secret.Secret("open-sesame"),)

    def cluster_secret(self, cluster: contract.Cluster, around: contract.Surroundings) -> contract.ClusterSecret | None:
        return self.credentials

    def inspect(self, cluster: contract.Cluster, around: contract.Surroundings) -> contract.Report:
        self.inspected += 1
        return self.report

    def wait(self, stage: str, clock: clocks.Clock, say: stages.Say) -> waiting.Installed:
        self.waited.append(stage)
        say(stage, "the tide", 0.0)
        if self.waits[stage]:
            raise self.waits[stage].pop(0)
        clock.sleep(600)
        return INSTALLED

    def create(self, environ: Mapping[str, str] | None = None, **how: Any) -> story.Created:
        self.clock = clocks.ManualClock()
        self.waited = []
        return story.create_cluster(
            self.directory, keys.KeySource(0), self.clock, environ or {}, story.Audience(**how.pop("to", {})), **how
        )

    def stages(self) -> dict[str, str]:
        with journals.Journal(self.directory / aside.JOURNAL, create=False) as journal:
            return stages.last_states(journal, story.FLOW, story.STAGES)


@pytest.fixture
def harbour(ready_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Harbour:
    made = Harbour(ready_dir)
    monkeypatch.setattr(registry, "infra", lambda _name: made)
    monkeypatch.setattr(registry, "preflight", lambda _name: made)
    monkeypatch.setattr(registry, "destroy", lambda _name: made.quay)

    def waits(stage: str) -> Callable[..., waiting.Installed]:
        def wait(
            _directory: Path,
            clock: clocks.Clock,
            _environ: Mapping[str, str],
            say: stages.Say,
            meanwhile: Callable[[], None] = lambda: None,
        ) -> waiting.Installed:
            meanwhile()
            return made.wait(stage, clock, say)

        return wait

    monkeypatch.setattr(waiting, "bootstrap_complete", waits("bootstrap"))
    monkeypatch.setattr(waiting, "install_complete", waits("install"))
    return made


def test_all_stages_in_their_order(harbour: Harbour) -> None:
    created = harbour.create()

    assert created.installed == INSTALLED
    assert created.resources == len(toycloud.harbour(harbour.cloud))
    assert harbour.stages() == dict.fromkeys(story.STAGES, "finished")
    assert harbour.cloud.inventory() == toycloud.names(toycloud.harbour(harbour.cloud))
    assert harbour.quay.removed == ["bootstrap"]
    assert harbour.waited == ["bootstrap", "install"]


def test_a_finished_story_is_not_told_twice(harbour: Harbour) -> None:
    harbour.create()
    harbour.cloud.calls.clear()
    looks = harbour.quay.looks

    harbour.create()

    assert harbour.cloud.calls == []
    assert harbour.quay.looks == looks
    assert harbour.inspected == 1
    assert harbour.waited == ["install"]


@pytest.mark.parametrize(
    ("stage", "failure", "code"),
    [
        ("bootstrap", waiting.BootstrapIncomplete, top.BOOTSTRAP),
        ("install", waiting.InstallIncomplete, top.INSTALL),
        ("install", waiting.OperatorsUnsettled, top.OPERATORS),
    ],
)
def test_a_wait_that_fails_keeps_its_exit_code_and_the_next_run_goes_on(
    harbour: Harbour, stage: str, failure: type[waiting.WaitFailed], code: int
) -> None:
    harbour.waits[stage] = [failure("no water", stage=stage, missing="water", remedy="wait for the tide")]

    with pytest.raises(story.Stopped, match=f"{stage} of harbour-.....* stopped: no water") as caught:
        harbour.create()

    assert caught.value.exit_code == code
    assert "left in place: all 6 resources made so far" in caught.value.message
    assert caught.value.remedy.splitlines()[0] == "wait for the tide"
    assert f"moorage create cluster --dir {harbour.directory}" in caught.value.remedy
    assert f"moorage destroy cluster --dir {harbour.directory}" in caught.value.remedy
    assert harbour.stages()[stage] == "failed"
    harbour.create()
    assert harbour.stages()[stage] == "finished"


def test_a_refused_resource_names_itself_and_what_exists(harbour: Harbour) -> None:
    harbour.cloud.before["create", "master"] = [
        toycloud.fails(errors.Terminal("refused", words="the crane is broken by open-sesame", remedy="mend it"))
    ]

    with pytest.raises(story.Stopped) as caught:
        harbour.create()

    assert caught.value.exit_code == top.INFRASTRUCTURE
    assert "master (thing): refused: the crane is broken by (secret)" in caught.value.message
    assert "left in place: network, image, balancer, bootstrap, record, master (unfinished)" in caught.value.message
    assert "mend it" in caught.value.remedy
    assert harbour.waited == []


def test_a_roll_back_says_that_nothing_is_left_and_the_next_run_looks_again(harbour: Harbour) -> None:
    harbour.cloud.before["create", "master"] = [toycloud.fails(errors.Terminal("refused"))]

    with pytest.raises(story.Stopped, match="left in place: nothing") as caught:
        harbour.create(rollback=True)

    assert "destroy" not in caught.value.remedy
    assert harbour.cloud.inventory() == {}
    harbour.create()
    assert harbour.inspected == 2


def test_preflight_is_not_repeated_over_our_own_things(harbour: Harbour) -> None:
    harbour.cloud.before["create", "master"] = [toycloud.fails(errors.Terminal("refused"))]
    with pytest.raises(story.Stopped):
        harbour.create()
    harbour.report = contract.Report(limits=(contract.Limit("berths", 6, 6, 6),))

    harbour.create()

    assert harbour.inspected == 1


def test_a_limit_that_would_break_refuses_before_anything_is_made(harbour: Harbour) -> None:
    harbour.report = contract.Report(limits=(contract.Limit("berths", 3, 6, 6),))

    with pytest.raises(story.Refused, match="nothing was created") as caught:
        harbour.create()

    assert caught.value.exit_code == top.INSTALL_CONFIG
    assert [finding.message for finding in caught.value.findings] == ["berths: 6 are needed, 3 are left of 6"]
    assert harbour.cloud.calls == []


def test_warnings_of_the_platform_are_passed_on(harbour: Harbour) -> None:
    told: list[findings.Finding] = []
    warning = findings.Finding("platform.none", "shallow", "warning")
    harbour.report = contract.Report(findings=(warning,))

    harbour.create(to={"finding": told.append})

    assert told == [warning]


def test_preflight_can_be_left_out(harbour: Harbour) -> None:
    harbour.create({story.SKIP_PREFLIGHT: "1"})

    assert harbour.inspected == 0


def test_an_interrupt_in_a_wait_is_journaled_and_gone_on_from(harbour: Harbour) -> None:
    harbour.waits["install"] = [errors.Interrupted()]

    with pytest.raises(errors.Interrupted):
        harbour.create()

    assert harbour.stages()["install"] == "stopped"
    harbour.create()
    assert harbour.waited == ["install"]


def test_what_is_waited_for_is_journaled(harbour: Harbour) -> None:
    harbour.create()

    with journals.Journal(harbour.directory / aside.JOURNAL, create=False) as journal:
        waits = [(entry.resource, entry.waiting_for) for entry in journal.events(story.FLOW) if entry.waiting_for]
    assert waits == [("bootstrap", "the tide"), ("install", "the tide")]


def test_once_the_bootstrap_began_to_go_the_infrastructure_is_left_alone(harbour: Harbour) -> None:
    harbour.quay.refuse = {"bootstrap": [errors.Terminal("stuck")] * 10_000}
    with pytest.raises(story.Stopped, match="bootstrap-removal"):
        harbour.create()
    harbour.quay.refuse = {}
    harbour.cloud.calls.clear()

    harbour.create(accept_changes=True)

    assert harbour.cloud.calls == []
    assert harbour.quay.removed == ["bootstrap"]
    assert harbour.waited == ["install"]


def test_the_bootstrap_is_kept_on_request(harbour: Harbour) -> None:
    notes: list[str] = []

    harbour.create({story.PRESERVE_BOOTSTRAP: "1"}, to={"note": notes.append})

    assert harbour.quay.removed == []
    assert "moorage destroy bootstrap" in notes[-1]


def test_a_broken_install_config_begins_no_story(harbour: Harbour) -> None:
    (harbour.directory / "install-config.yaml").write_text("apiVersion: v0\n")

    with pytest.raises(findings.Invalid):
        harbour.create()

    assert not (harbour.directory / aside.JOURNAL).exists()


def test_a_fault_in_a_platform_leaves_a_trace_and_is_not_dressed_up(harbour: Harbour) -> None:
    harbour.report = dataclasses.replace(harbour.report, limits=(None,))  # type: ignore[arg-type]

    with pytest.raises(AttributeError):
        harbour.create()

    assert harbour.stages()["preflight"] == "failed"


def test_a_lost_state_does_not_orphan_what_exists(harbour: Harbour) -> None:
    harbour.create()
    (harbour.directory / ".moorage_state.json").unlink()

    with pytest.raises(top.StoreError, match=r"holds the cluster harbour-.* now describes a new cluster"):
        harbour.create()


def test_metadata_of_another_cluster_is_not_built_over(harbour: Harbour) -> None:
    (harbour.directory / "metadata.json").write_text('{"infraID": "marina-abcde", "none": {}}')

    with pytest.raises(top.StoreError, match="is about marina-abcde, and not about harbour-") as caught:
        harbour.create()

    assert "destroy it first" in caught.value.remedy
    assert harbour.cloud.calls == []


def test_credentials_that_are_refused_leave_nothing(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> contract.Report:
        raise errors.Unauthorized("refused", words="who are you?")

    monkeypatch.setattr(harbour, "inspect", refuse)

    with pytest.raises(story.Stopped, match="refused: who are you") as caught:
        harbour.create()

    assert "left in place: nothing" in caught.value.message
    assert caught.value.exit_code == top.INFRASTRUCTURE


def test_a_platform_in_passing_trouble_is_looked_at_again(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> None:
    troubles = [errors.Transient("busy", retry_after=5), ConnectionResetError("gone away")]

    def troubled(*_: object) -> contract.Report:
        if troubles:
            raise troubles.pop()
        return contract.Report()

    monkeypatch.setattr(harbour, "inspect", troubled)

    harbour.create()

    assert harbour.stages()["preflight"] == "finished"


def test_after_a_roll_back_the_bootstrap_is_waited_for_anew(harbour: Harbour) -> None:
    harbour.quay.things = {}
    harbour.create({story.PRESERVE_BOOTSTRAP: "1"})
    with journals.Journal(harbour.directory / aside.JOURNAL) as journal:
        journal.forget("infrastructure", ["master"])
    harbour.cloud.things["master"].clear()
    harbour.cloud.before["create", "master"] = [toycloud.fails(errors.Terminal("refused"))]
    with pytest.raises(story.Stopped, match="left in place: nothing"):
        harbour.create(rollback=True)
    harbour.waits["bootstrap"] = [errors.Interrupted()]
    with pytest.raises(errors.Interrupted):
        harbour.create()

    harbour.create()

    assert harbour.waited == ["bootstrap", "install"]
