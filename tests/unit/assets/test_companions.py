"""Files for other tools: written with the rest, and the user's as soon as the user touches them."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.assets import platform, values
from moorage.installer import produce
from moorage.platforms import registry
from moorage.platforms.none import manifests as none
from tests.conftest import make

FILE = "terraform.harbour.auto.tfvars.json"


class Terraformed(none.NoPlatform):
    """A platform that has something to say to Terraform."""

    def companion_files(self, context: platform.Context) -> values.Files:
        return {FILE: context.infra_id.encode()}


@pytest.fixture
def terraformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "manifests", lambda _name: Terraformed())


@pytest.mark.usefixtures("terraformed")
@pytest.mark.parametrize("targets", [produce.MANIFESTS, produce.IGNITION_CONFIGS], ids=["manifests", "ignition"])
def test_they_lie_beside_the_other_files(ready_dir: Path, targets: tuple[str, ...]) -> None:
    made = make(ready_dir, targets)

    assert (ready_dir / FILE).read_text() == made.result.values["cluster_id"].infra_id
    assert FILE in made.result.written


@pytest.mark.usefixtures("terraformed")
def test_what_the_user_writes_there_stays(ready_dir: Path) -> None:
    make(ready_dir)
    (ready_dir / FILE).write_text("mine")

    again = make(ready_dir)

    assert (ready_dir / FILE).read_text() == "mine"
    assert f"{FILE}: your edit is kept" in again.result.notes


def test_a_platform_without_any_writes_none(ready_dir: Path) -> None:
    make(ready_dir, (*produce.MANIFESTS, *produce.IGNITION_CONFIGS))

    assert not list(ready_dir.glob("terraform*"))
