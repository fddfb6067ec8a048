"""The registry: every platform it names keeps what the name promises."""

from __future__ import annotations

import subprocess
import sys

import pytest

from moorage import errors
from moorage.config import model
from moorage.platforms import registry


@pytest.mark.parametrize("name", registry.PLATFORMS)
def test_a_platforms_stanza_is_called_as_it_is_registered(name: str) -> None:
    found = registry.stanzas()[name]

    assert found.name == name
    assert found.title
    assert issubclass(found.platform, model.Section)
    assert issubclass(found.machine_pool, model.Section)


@pytest.mark.parametrize("name", registry.PLATFORMS)
def test_a_platforms_manifests_are_called_as_it_is_registered(name: str) -> None:
    assert registry.manifests(name).name == name


def test_a_platform_that_does_not_exist_has_a_nearest_match() -> None:
    with pytest.raises(errors.MoorageError, match="no platform 'nome'") as caught:
        registry.manifests("nome")

    assert caught.value.remedy == "did you mean `none`?"


def test_looking_at_the_registry_imports_no_platform() -> None:
    program = (
        "import sys; from moorage.platforms import registry; "
        "print(sorted(name for name in sys.modules if name.startswith('moorage.platforms.')))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['moorage.platforms.registry']"
