"""Laying configs over each other: the laws that hold for all of them, and the rules that surprise."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.lab.nodes import merging, specs, validation

EMPTY: specs.Config = {"ignition": {"version": "3.5.0"}}

_words = st.sampled_from(["a", "b", "c"])
_paths = st.sampled_from(["/a", "/b", "/c"])
_resource = st.fixed_dictionaries(
    {}, optional={"source": st.sampled_from(["data:,1", "data:,2"]), "compression": st.just("gzip")}
)
_users = {"sshAuthorizedKeys": st.lists(_words, unique=True, max_size=3), "uid": st.just(7)}


def _entries(key: str, keys: st.SearchStrategy[str], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(st.fixed_dictionaries({key: keys}, optional=fields), max_size=3, unique_by=lambda each: each[key])


def _told(said: dict[str, Any]) -> specs.Config:
    """A path occurs once only, be it as a file, link or folder."""
    seen: set[str] = set()
    for name in ("files", "links", "directories"):
        said["storage"][name] = [each for each in said["storage"][name] if each["path"] not in seen]
        seen |= {each["path"] for each in said["storage"][name]}
    return specs.read(json.dumps({**EMPTY, **said}).encode())[0]


configs = st.fixed_dictionaries(
    {
        "storage": st.fixed_dictionaries(
            {
                "files": _entries(
                    "path",
                    _paths,
                    mode=st.sampled_from([256, 420]),
                    contents=_resource,
                    append=st.lists(_resource, max_size=2),
                    user=st.fixed_dictionaries({}, optional={"id": st.integers(0, 2), "name": _words}),
                ),
                "links": _entries("path", _paths, target=_paths, hard=st.booleans()),
                "directories": _entries("path", _paths, mode=st.sampled_from([448, 493])),
            }
        ),
        "systemd": st.fixed_dictionaries(
            {
                "units": _entries(
                    "name",
                    st.sampled_from(["a.service", "b.service"]),
                    enabled=st.booleans(),
                    contents=st.just("[Unit]\n"),
                    dropins=_entries("name", st.sampled_from(["1.conf", "2.conf"]), contents=_words),
                )
            }
        ),
        "passwd": st.fixed_dictionaries({"users": _entries("name", _words, **_users)}),
    }
).map(_told)


@settings(deadline=None, max_examples=50)
@given(configs)
def test_nothing_laid_over_a_config_or_under_it_changes_it(config: specs.Config) -> None:
    alone = merging.merged(EMPTY, config)

    assert merging.merged(config, EMPTY) == alone
    assert merging.merged(alone, EMPTY) == alone


def _kinds_apart(config: specs.Config) -> specs.Config:
    """A file that became a link and then a file again would remember its first life in one order only."""
    for kind, entries in config.get("storage", {}).items():
        for entry in entries:
            entry["path"] = f"/{kind}{entry['path']}"
    return config


steady = configs.map(_kinds_apart)


@settings(deadline=None, max_examples=50)
@given(steady, steady, steady)
def test_it_does_not_matter_which_pair_is_merged_first(
    one: specs.Config, two: specs.Config, three: specs.Config
) -> None:
    left = merging.merged(merging.merged(one, two), three)
    right = merging.merged(one, merging.merged(two, three))

    assert _unordered(left) == _unordered(right)


@settings(deadline=None, max_examples=50)
@given(configs, configs)
def test_a_merge_changes_neither_and_makes_no_duplicates(parent: specs.Config, child: specs.Config) -> None:
    before = copy.deepcopy((parent, child))

    result = merging.merged(parent, child)

    assert (parent, child) == before
    assert validation.duplicates(result) == []


@settings(deadline=None, max_examples=50)
@given(configs, configs)
def test_the_child_has_its_way_and_loses_nothing(parent: specs.Config, child: specs.Config) -> None:
    result = merging.merged(parent, child)

    for kind in ("files", "links", "directories"):
        entries = {each["path"]: each for each in result.get("storage", {}).get(kind, [])}
        for said in child.get("storage", {}).get(kind, []):
            assert said["path"] in entries
            if "mode" in said:
                assert entries[said["path"]]["mode"] == said["mode"]
    units = {each["name"]: each for each in result.get("systemd", {}).get("units", [])}
    for unit in child.get("systemd", {}).get("units", []):
        assert "enabled" not in unit or units[unit["name"]]["enabled"] == unit["enabled"]
        assert {each["name"] for each in unit.get("dropins", [])} <= {
            each["name"] for each in units[unit["name"]].get("dropins", [])
        }


def _unordered(config: specs.Config) -> Any:
    """Lists with keys, sorted: their order depends on who was merged first, and means nothing."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: each if name == "append" else walk(each) for name, each in value.items()}
        if isinstance(value, list):
            return sorted((walk(each) for each in value), key=json.dumps)
        return value

    return walk(config)


@pytest.mark.parametrize(
    ("parent", "child", "result"),
    [
        pytest.param(
            {"ignition": {"config": {"merge": [{"source": "x", "httpHeaders": [{"name": "a", "value": "1"}]}]}}},
            {"ignition": {"config": {"merge": [{"source": "x", "httpHeaders": [{"name": "a"}]}]}}},
            {"ignition": {"config": {"merge": [{"source": "x"}]}}},
            id="a header without a value is taken away",
        ),
        pytest.param(
            {"kernelArguments": {"shouldExist": ["a", "b"]}},
            {"kernelArguments": {"shouldNotExist": ["a"]}},
            {"kernelArguments": {"shouldExist": ["b"], "shouldNotExist": ["a"]}},
            id="an argument that shall not be is no longer wanted",
        ),
        pytest.param(
            {"storage": {"files": [{"path": "/a", "contents": {"source": "x", "compression": "gzip"}}]}},
            {"storage": {"files": [{"path": "/a", "contents": {"source": "y"}}]}},
            {"storage": {"files": [{"path": "/a", "contents": {"source": "y", "compression": "gzip"}}]}},
            id="compression outlives the contents it was meant for",
        ),
        pytest.param(
            {"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["1"], "uid": 1}]}},
            {"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["2", "1"]}]}},
            {"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["1", "2"], "uid": 1}]}},
            id="keys add up",
        ),
        pytest.param(
            {"storage": {"raid": [{"name": "r", "options": ["x"]}]}},
            {"storage": {"raid": [{"name": "r", "options": ["x"]}]}},
            {"storage": {"raid": [{"name": "r", "options": ["x", "x"]}]}},
            id="options may repeat",
        ),
    ],
)
def test_the_rules_that_surprise(parent: specs.Config, child: specs.Config, result: specs.Config) -> None:
    assert merging.merged(parent, child) == result
