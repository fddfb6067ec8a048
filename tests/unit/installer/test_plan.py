"""The plan: what will be made, when, for how long, and what speaks against it; the same in every format."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.config import findings, load, model
from moorage.engine import flow
from moorage.installer import plan
from moorage.platforms import contract, registry
from tests.conftest import INSTALL_CONFIG
from tests.unit.installer import quay
from tests.unit.platforms_ovirt import manifests_world


@pytest.fixture(scope="module")
def config() -> model.InstallConfig:
    return load.parse(INSTALL_CONFIG, registry.stanzas())[0]


FLOW = flow.Flow(
    "infrastructure",
    (
        quay.Berth(name="late", needs=("early", "crane"), expected=30),
        quay.Berth(name="early", expected=60),
        quay.Crane(name="crane", expected=20),
        quay.Berth(name="loner", expected=10),
    ),
)


def test_needs_come_first_with_the_second_they_can_start(config: model.InstallConfig) -> None:
    made = plan.make(FLOW, contract.Report(), config)

    assert [(row.name, row.start) for row in made.rows] == [("early", 0), ("crane", 0), ("loner", 0), ("late", 60)]
    assert made.counts == {"berth": 3, "crane": 1}
    assert made.path == ("early", "late")
    assert [row.name for row in made.rows if row.critical] == ["early", "late"]
    assert made.seconds == 90


@given(times=st.lists(st.floats(0.1, 1000), min_size=4, max_size=4))
def test_no_resource_starts_before_its_needs_are_done(times: list[float]) -> None:
    config = load.parse(INSTALL_CONFIG, registry.stanzas())[0]
    things = tuple(
        type(thing)(name=thing.name, needs=thing.needs, expected=time)
        for thing, time in zip(FLOW.resources, times, strict=True)
    )

    made = plan.make(flow.Flow("infrastructure", things), None, config)

    ends = {row.name: row.start + row.expected for row in made.rows}
    assert all(row.start >= max((ends[need] for need in row.needs), default=0) for row in made.rows)
    assert made.seconds == pytest.approx(max(ends.values()))


def test_what_is_made_already_takes_no_time(config: model.InstallConfig) -> None:
    made = plan.make(FLOW, contract.Report(), config, finished={"early"})

    assert made.seconds == 50
    assert made.path == ("crane", "late")
    assert "1 of them made already" in plan.render(made, "text")


def test_what_the_cluster_makes_itself_is_told_and_is_no_resource(config: model.InstallConfig) -> None:
    made = plan.make(FLOW, None, config, later=(plan.Later("harbour-worker-0", 2), plan.Later("harbour-worker-1", 1)))

    assert made.counts == {"berth": 3, "crane": 1}
    lines = plan.render(made, "text").splitlines()
    told = "made by the cluster itself, once its control plane is up:"
    assert f"{told} 2 machines of MachineSet harbour-worker-0" in lines
    assert f"{told} 1 machine of MachineSet harbour-worker-1" in lines
    assert json.loads(plan.render(made, "json"))["later"][0] == {"machine_set": "harbour-worker-0", "count": 2}


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({}, [plan.Later("harbour-x7k2p-worker-0", 2)]),
        ({"workers": 0}, []),
        # There the installer makes them all: nobody else does.
        ({"platformType": "oVirt"}, []),
    ],
    ids=["External", "compact", "oVirt"],
)
def test_what_is_left_for_the_cluster_to_make(changes: dict[str, Any], left: list[plan.Later]) -> None:
    assert list(plan.later(manifests_world.cluster(**changes))) == left


def test_a_broken_limit_is_an_error_with_the_numbers(config: model.InstallConfig) -> None:
    report = contract.Report(
        limits=(contract.Limit("memory", used=90, adds=20, most=100, unit="GiB"), contract.Limit("disks", 1, 2, 3)),
        reused=(contract.Reused("network", "office", "named in the install-config"),),
    )

    made = plan.make(FLOW, report, config)

    assert not made.feasible
    text = plan.render(made, "text")
    assert "limit memory: 90 used + 20 = 110 of 100 GiB: over by 10 GiB" in text
    assert "limit disks: 1 used + 2 = 3 of 3\n" in text
    assert "error: platform: memory: 20 GiB are needed, 10 GiB are left of 100 GiB" in text
    assert "reused, and left alone by destroy: network office (named in the install-config)" in text


def test_warnings_do_not_make_it_infeasible(config: model.InstallConfig) -> None:
    report = contract.Report(findings=(findings.Finding("platform.none", "is slow today", "warning"),))

    assert plan.make(FLOW, report, config).feasible


def test_a_platform_that_could_not_be_asked_is_said_to_be_unknown(config: model.InstallConfig) -> None:
    made = plan.make(FLOW, None, config, unknown="there are no credentials")

    assert made.feasible
    assert "limits, clashes and reuse are unknown: there are no credentials" in plan.render(made, "text")


def test_text_marks_the_critical_path(config: model.InstallConfig) -> None:
    text = plan.render(plan.make(FLOW, contract.Report(), config), "text")

    assert "4 resources (3 berth, 1 crane)" in text
    assert re.search(r"^\*  early +berth +\+0 s +1 min +-$", text, re.MULTILINE)
    assert re.search(r"^\*  late +berth +\+1 min +30 s +early, crane$", text, re.MULTILINE)
    assert "takes about 1 min 30 s; decided by (*): early → late" in text


def test_json_holds_everything(config: model.InstallConfig) -> None:
    told = json.loads(
        plan.render(plan.make(FLOW, contract.Report(limits=(contract.Limit("m", 1, 1, 1),)), config), "json")
    )

    assert [row["name"] for row in told["resources"]] == ["early", "crane", "loner", "late"]
    assert told["limits"][0]["fits"] is False
    assert told["feasible"] is False
    assert told["seconds"] == 90


def test_drawings_have_every_node_and_edge_and_survive_odd_names(config: model.InstallConfig) -> None:
    odd = flow.Flow("f", (quay.Berth(name="a:b/c"), quay.Crane(name="z", needs=("a:b/c",))))
    made = plan.make(odd, contract.Report(), config)

    mermaid, dot = plan.render(made, "mermaid"), plan.render(made, "dot")

    assert mermaid.startswith("flowchart LR\n")
    assert 'r0["berth a:b/c<br>' in mermaid
    assert "  r0 --> r1" in mermaid
    assert '"a:b/c" -> "z"' in dot
    assert dot.count("penwidth=3") == 2
    assert dot.endswith("}")
