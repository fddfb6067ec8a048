"""Platforms of others plug in through the environment, and cannot pose as ours."""

from __future__ import annotations

import pytest

from moorage import errors
from moorage.platforms import registry


def test_a_platform_of_others_is_one_like_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.PLUGINS, " filecloud = tests.crash.filecloud ,")

    assert registry.packages()["filecloud"] == "tests.crash.filecloud"
    assert registry.stanzas()["filecloud"].name == "filecloud"
    assert registry.manifests("filecloud").name == "filecloud"
    assert registry.destroy("filecloud").SETTLE > 0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("quay", "'quay' is not name=package"),
        ("=package", "is not name=package"),
        ("none=tests.crash.filecloud", "there is a platform 'none' already"),
    ],
)
def test_a_wrong_setting_is_refused(monkeypatch: pytest.MonkeyPatch, value: str, message: str) -> None:
    monkeypatch.setenv(registry.PLUGINS, value)

    with pytest.raises(errors.ConfigError, match=message):
        registry.stanzas()


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.PLUGINS, "quay=no_such_package")

    with pytest.raises(errors.MoorageError, match="platform 'quay' needs no_such_package") as caught:
        registry.infra("quay")

    assert registry.PLUGINS in caught.value.remedy


def test_where_the_machines_are_the_users_the_way_is_shown() -> None:
    with pytest.raises(registry.NotOffered, match="makes nothing on platform 'none'") as caught:
        registry.infra("none")

    assert "moorage create ignition-configs" in caught.value.remedy
    assert "moorage wait-for bootstrap-complete" in caught.value.remedy
