"""What every platform keeps, whatever it is: the promises of `contract`, tried on its cloud."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path
from typing import ClassVar

import pytest

from moorage.assets import platform as manifests
from moorage.engine import context, errors, flow, journal, outputs, progress, resource
from moorage.installer import destroy, story
from moorage.platforms import contract, registry
from tests.platforms import places


def unheard(_event: progress.Event) -> None:
    """Nobody watches."""


def build(place: places.Place, folder: Path, extra: tuple[resource.Resource[object], ...] = ()) -> flow.Outcome:
    """Run the platform's flow with a journal of its own."""
    infra = registry.infra(place.name)
    declared = infra.declare(place.cluster, place.around)
    secrets = infra.secrets(place.cluster, place.around)
    with journal.Journal(folder / "journal.sqlite", secrets=secrets) as opened:
        return flow.run(
            flow.Flow(declared.name, (*declared.resources, *extra)),
            journal=opened,
            clock=place.around.clock,
            rollback=bool(extra),
        )


def tear_down(place: places.Place, scope: contract.Scope = "cluster") -> destroy.Destroyed:
    return destroy.destroy(place.metadata, scope, registry.destroy(place.name), place.around, unheard)


# -- the shape of the package ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "protocol"),
    [("infra", contract.Infra), ("preflight", contract.Preflight), ("destroy", contract.Destroy)],
)
def test_a_module_has_what_its_protocol_names(any_place: places.Place, part: str, protocol: type) -> None:
    if any_place.name not in places.BUILT and part != "destroy":
        with pytest.raises(registry.NotOffered, match="makes nothing on platform"):
            getattr(registry, part)(any_place.name)
        return
    module = getattr(registry, part)(any_place.name)

    wanted = {name for name in (*vars(protocol), *protocol.__annotations__) if not name.startswith("_")}
    assert wanted <= set(vars(module)), f"{part}.py lacks {wanted - set(vars(module))}"
    for name in wanted & {name for name, value in vars(protocol).items() if inspect.isfunction(value)}:
        expected = len(inspect.signature(getattr(protocol, name)).parameters) - 1
        assert len(inspect.signature(getattr(module, name)).parameters) == expected, f"{part}.{name}"


def test_metadata_holds_the_mark_in_plain_json_and_no_secret(any_place: places.Place) -> None:
    asked = manifests.Context(any_place.cluster.config, any_place.cluster.cluster_id, any_place.cluster.release)

    text = json.dumps(dict(registry.manifests(any_place.name).metadata(asked)))

    for secret in registry.destroy(any_place.name).secrets(any_place.metadata, any_place.around):
        assert secret.reveal() not in text


def test_nothing_to_destroy_is_a_success(any_place: places.Place) -> None:
    before = any_place.inventory()

    done = tear_down(any_place)

    assert done.removed == ()
    assert any_place.inventory() == before


# -- before anything exists --------------------------------------------------------------------------------------------


def test_declaring_calls_nobody_and_needs_no_credentials(place: places.Place) -> None:
    bare = dataclasses.replace(place.around, environ={})

    declared = registry.infra(place.name).declare(place.cluster, bare)

    assert declared.resources
    assert place.traced == []


def test_the_flow_is_the_same_in_every_run(place: places.Place) -> None:
    infra = registry.infra(place.name)

    first, second = (infra.declare(place.cluster, place.around) for _ in range(2))

    assert first.name == second.name != story.FLOW
    assert first.needs == second.needs
    assert [thing.kind for thing in first.resources] == [thing.kind for thing in second.resources]


def test_every_resource_says_how_long_it_takes_and_hides_its_secrets(place: places.Place) -> None:
    infra = registry.infra(place.name)
    spellings = [secret.reveal() for secret in infra.secrets(place.cluster, place.around)]

    for thing in infra.declare(place.cluster, place.around).resources:
        assert 0 < thing.expected < thing.timeout, thing.describe
        assert not [secret for secret in spellings if secret in repr(thing)], thing.describe


def test_a_look_changes_nothing(place: places.Place) -> None:
    before = place.inventory()

    report = registry.preflight(place.name).inspect(place.cluster, place.around)

    assert [finding for finding in report.findings if finding.severity == "error"] == []
    assert all(limit.fits for limit in report.limits)
    assert place.inventory() == before


def test_bad_credentials_are_called_that(place: places.Place) -> None:
    with pytest.raises(errors.Unauthorized):
        registry.preflight(place.name).inspect(place.cluster, place.refused())


# -- making ------------------------------------------------------------------------------------------------------------


def test_without_a_journal_what_exists_is_adopted_not_doubled(place: places.Place, tmp_path: Path) -> None:
    for attempt in ("first", "second"):
        (tmp_path / attempt).mkdir()
    build(place, tmp_path / "first")
    # Without its journal a run cannot know that lists lag behind what it made a moment ago.
    registry.destroy(place.name).discover(place.metadata, "cluster", place.around)
    made = place.inventory()

    build(place, tmp_path / "second")

    assert place.inventory() == made


def test_a_look_at_our_own_things_finds_no_clash(place: places.Place, tmp_path: Path) -> None:
    build(place, tmp_path)

    report = registry.preflight(place.name).inspect(place.cluster, place.around)

    assert [finding for finding in report.findings if finding.severity == "error"] == []
    assert all(limit.fits for limit in report.limits)


def test_calls_are_traced_without_secrets(place: places.Place, tmp_path: Path) -> None:
    build(place, tmp_path)

    assert len(place.traced) >= len(registry.infra(place.name).declare(place.cluster, place.around).resources)
    for secret in registry.infra(place.name).secrets(place.cluster, place.around):
        assert secret.reveal() not in "\n".join(place.traced)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Broken(resource.Resource[object]):
    """Something that no platform ever makes."""

    kind: ClassVar[str] = "broken"

    def lookup(self, inputs: outputs.Inputs, ctx: context.Context) -> object | None:
        return None

    def create(self, inputs: outputs.Inputs, ctx: context.Context) -> str | None:
        raise errors.Terminal("never")

    def delete(self, inputs: outputs.Inputs, output: object, ctx: context.Context) -> None:
        raise AssertionError("it was never there")


def test_a_roll_back_leaves_nothing(place: places.Place, tmp_path: Path) -> None:
    before = place.inventory()
    names = tuple(registry.infra(place.name).declare(place.cluster, place.around).needs)

    with pytest.raises(errors.FlowFailed) as failed:
        build(place, tmp_path, (Broken(name="broken", needs=names),))

    assert failed.value.rolled_back
    assert failed.value.left == ()
    assert place.inventory() == before


# -- destroying --------------------------------------------------------------------------------------------------------


def test_destroy_removes_all_of_ours_and_nothing_else(place: places.Place, tmp_path: Path) -> None:
    mark = place.cluster.infra_id
    for neighbour in (f"x-{mark}", f"{mark}-x", mark[:-1], f"{mark}0"):
        place.settle_neighbour(neighbour)
    before = place.inventory()
    build(place, tmp_path)
    assert place.inventory() != before

    done = tear_down(place)

    assert place.inventory() == before
    assert len(done.removed) >= len(registry.infra(place.name).declare(place.cluster, place.around).resources)


def test_only_the_bootstrap_goes_when_only_it_is_meant(place: places.Place, tmp_path: Path) -> None:
    build(place, tmp_path)
    whole = place.inventory()

    done = tear_down(place, "bootstrap")

    assert done.removed
    assert 0 < len(place.inventory()) == len(whole) - len(done.removed)
    assert all("bootstrap" in name for name in done.removed)


def test_the_mark_alone_finds_as_much_as_all_metadata(place: places.Place, tmp_path: Path) -> None:
    build(place, tmp_path)
    platform = registry.destroy(place.name)
    whole = dataclasses.replace(
        place.metadata,
        settings=registry.manifests(place.name).metadata(
            manifests.Context(place.cluster.config, place.cluster.cluster_id, place.cluster.release)
        ),
    )
    platform.discover(whole, "cluster", place.around)  # the first look may lag behind

    rich, poor = (
        {(remnant.kind, remnant.name, remnant.stage) for remnant in platform.discover(known, "cluster", place.around)}
        for known in (whole, contract.Metadata(place.name, place.cluster.infra_id))
    )

    assert rich == poor
    assert rich
