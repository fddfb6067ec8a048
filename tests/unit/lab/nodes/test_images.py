"""Images that cannot be pulled, on order: told as a kubelet tells it, and waited for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.lab import faults
from moorage.lab import site as sites
from moorage.lab.nodes import images
from tests.unit.lab.nodes.node_world import until
from tests.unit.lab.nodes.programs_world import Story, tell


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            {"action": "fail", "status": 404},
            "initializing source docker://r.example.com/tools/moorage:1: "
            "reading manifest 1 in r.example.com/tools/moorage: manifest unknown",
        ),
        (
            {"action": "drop"},
            "initializing source docker://r.example.com/tools/moorage:1: "
            'pinging container registry r.example.com: Get "https://r.example.com/v2/": EOF',
        ),
    ],
    ids=["unknown", "nobody there"],
)
def test_one_whose_image_cannot_be_pulled_waits_for_it(tmp_path: Path, fault: dict[str, Any], words: str) -> None:
    image = "r.example.com/tools/moorage:1"

    async def told(story: Story) -> None:
        rule = faults.from_json({**fault, "service": "registry", "path": "/v2/tools/moorage/manifests/1"})
        ordered = story.world.site.faults.add(rule)
        story.pod(image=image)
        seen: dict[str, str] = {}

        def waits() -> bool:
            state = story.container().get("state", {}).get("waiting") or {}
            seen[str(state.get("reason"))] = str(state.get("message"))
            return "ImagePullBackOff" in seen

        await until(waits, "a back-off")
        assert seen["ErrImagePull"] == f'Failed to pull image "{image}": {words}'
        assert seen["ImagePullBackOff"] == f'Back-off pulling image "{image}": ErrImagePull: {words}'
        assert story.starts() == []

        story.world.site.faults.remove(ordered)
        await story.started()
        await until(lambda: story.ready(), "ready")
        assert story.container()["restartCount"] == 0

    tell(tmp_path, told)


@pytest.mark.parametrize(
    ("image", "asked"),
    [
        ("r.example.com:5000/a/b:2", "/v2/a/b/manifests/2"),
        ("r.example.com/a@sha256:00", "/v2/a/manifests/sha256:00"),
        ("r.example.com/a", "/v2/a/manifests/latest"),
        ("a", "/v2/a/manifests/latest"),
    ],
)
def test_which_manifest_is_asked_for(image: str, asked: str) -> None:
    async def pulled() -> None:
        site = sites.Site(clocks.Clock(1000.0))
        site.faults.add(faults.from_json({"action": "fail", "service": "registry", "path": asked, "status": 503}))
        with pytest.raises(images.Unpulled, match="received unexpected HTTP status: 503 Service Unavailable"):
            await images.pull(site, image)

    asyncio.run(pulled())
