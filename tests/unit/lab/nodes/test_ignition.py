"""A machine's first boot: what it makes of its user data, and what it refuses without falling over."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.engine import clock as clocks
from moorage.installer import produce
from moorage.lab.nodes import disk, fetching, ignition, network, resources, specs, unit_files


async def nowhere(url: str, headers: Mapping[str, str], authorities: Sequence[str]) -> fetching.Answer:
    raise AssertionError(f"nobody was to be asked, but {url} was")


def provisioned(
    said: bytes | dict[str, Any], fetch: fetching.Fetch = nowhere, log: list[str] | None = None, **more: Any
) -> ignition.Provisioned:
    raw = said if isinstance(said, bytes) else json.dumps({"ignition": {"version": "3.5.0"}, **said}).encode()
    console = [] if log is None else log
    return asyncio.run(ignition.provision(raw, fetch, console.append, clock=clocks.Clock(1000.0), **more))


def test_the_product_s_bootstrap_config_is_read_to_the_byte(
    ready_dir: Path, make: Callable[..., produce.Produced]
) -> None:
    make(ready_dir)
    raw = (ready_dir / "bootstrap.ign").read_bytes()

    done = provisioned(raw, present={"/etc/motd": disk.File(b"Welcome.\n")})

    said = json.loads(raw)
    for file in said["storage"]["files"]:
        written = done.files[file["path"]]
        assert written.mode == file["mode"]
        for resource in filter(None, [file.get("contents"), *file.get("append", [])]):
            assert base64.b64decode(resource["source"].partition(",")[2]) in written.content
    assert done.files["/etc/motd"].content.startswith(b"Welcome.\n")
    assert set(done.units) == {unit["name"] for unit in said["systemd"]["units"]}
    assert (
        done.files["/etc/systemd/system/bootkube.service"].content.decode() == done.units["bootkube.service"].contents
    )
    assert done.files["/home/core/.ssh/authorized_keys.d/ignition"].uid == 1000


def test_user_data_may_be_compressed() -> None:
    said = {"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": "/a", "contents": {"source": "data:,x"}}]}}

    done = provisioned(gzip.compress(json.dumps(said).encode()))

    assert done.files["/a"] == disk.File(b"x")


def test_a_machine_without_user_data_boots_with_nothing() -> None:
    console: list[str] = []

    done = provisioned(b"", log=console)

    assert done.files == {}
    assert any("not a config (empty)" in line for line in console)


def test_instances_of_a_template_share_a_line_of_the_presets() -> None:
    units = [
        {"name": "tunnel@b.service", "enabled": True},
        {"name": "tunnel@a.service", "enabled": True},
        {"name": "tunnel@c.service", "enabled": False},
        {"name": "plain.service", "enabled": True},
        {"name": "silent.service"},
    ]

    done = provisioned({"systemd": {"units": units}})

    assert done.files[ignition.PRESETS].content.decode().splitlines() == [
        "enable plain.service",
        "disable tunnel@.service c",
        "enable tunnel@.service b a",
    ]
    assert done.units["silent.service"].enabled is None


def test_users_and_groups_are_made_before_the_files_they_own() -> None:
    said = {
        "passwd": {
            "groups": [{"name": "crew", "gid": 77}, {"name": "deck"}],
            "users": [{"name": "pilot", "groups": ["crew"], "primaryGroup": "deck"}, {"name": "cook", "uid": 5000}],
        },
        "storage": {
            "files": [
                {"path": "/a", "user": {"name": "pilot"}, "group": {"name": "crew"}},
                {"path": "/b", "user": {"name": "cook"}, "group": {"name": "cook"}},
            ]
        },
    }

    done = provisioned(said)

    pilot = done.users["pilot"]
    assert (done.files["/a"].uid, done.files["/a"].gid) == (pilot.uid, 77)
    assert pilot.groups == ("crew",)
    assert (done.files["/b"].uid, done.files["/b"].gid) == (5000, 5000)


THERE = {
    "/etc/motd": disk.File(b"Welcome.\n", 0o600, 3, 4),
    "/srv/folder/file": disk.File(b"deep"),
    "/srv/link": disk.Link("/x"),
}


@pytest.mark.parametrize(
    ("kind", "node", "left"),
    [
        ("files", {"path": "/etc/motd", "mode": 292}, disk.File(b"Welcome.\n", 0o444, 3, 4)),
        ("files", {"path": "/etc/motd", "append": [{"source": "data:,!"}]}, disk.File(b"Welcome.\n!", 0o600, 3, 4)),
        ("files", {"path": "/etc/motd", "overwrite": True, "contents": {"source": "data:,x"}}, disk.File(b"x")),
        ("files", {"path": "/srv/folder", "overwrite": True, "contents": {"source": "data:,x"}}, disk.File(b"x")),
        ("files", {"path": "/a", "user": {"id": 5}, "group": {"id": 6}}, disk.File(b"", 0o644, 5, 6)),
        ("files", {"path": "/a", "mode": 0o4755}, disk.File(b"", 0o755)),
        ("directories", {"path": "/srv", "mode": 448, "user": {"name": "core"}}, disk.Directory(0o700, 1000, 0)),
        ("links", {"path": "/srv/link", "target": "/x/"}, disk.Link("/x")),
        ("links", {"path": "/srv/link", "target": "/y", "overwrite": True}, disk.Link("/y")),
        ("links", {"path": "/a", "target": "/etc/motd", "hard": True}, disk.File(b"Welcome.\n", 0o600, 3, 4)),
        ("files", {"path": "/etc/motd", "contents": {"source": "data:,x"}}, "A file exists there already"),
        ("files", {"path": "/srv/folder", "contents": {"source": "data:,x"}}, "A non regular file exists"),
        ("files", {"path": "/srv/link"}, "A non regular file exists"),
        ("files", {"path": "/etc/motd/x"}, "not a directory"),
        ("files", {"path": "/a", "group": {"name": "nobody-here"}}, 'no such group "nobody-here"'),
        ("directories", {"path": "/etc/motd"}, "A non-directory already exists"),
        ("links", {"path": "/srv/link", "target": "/y"}, "something else exists"),
        ("links", {"path": "/etc/motd", "target": "/srv/folder/file", "hard": True}, "a file already exists"),
    ],
)
def test_what_is_there_stays_unless_the_config_says_otherwise(
    kind: str, node: dict[str, Any], left: disk.File | disk.Directory | disk.Link | str
) -> None:
    said = {"storage": {kind: [node]}}
    if isinstance(left, str):
        with pytest.raises(ignition.IgnitionError, match=left):
            provisioned(said, present=THERE)
        return

    done = provisioned(said, present=THERE)

    entries = {**done.files, **done.directories, **done.links}
    assert entries[node["path"]] == left
    assert ("/srv/folder/file" in entries) == (node["path"] != "/srv/folder")


def test_kernel_arguments_are_for_the_next_boot() -> None:
    done = provisioned({"kernelArguments": {"shouldExist": ["a=1"], "shouldNotExist": ["quiet"]}})

    assert (done.kernel_arguments, done.unwanted_kernel_arguments) == (("a=1",), ("quiet",))


def test_a_file_fetched_in_the_second_stage_is_verified() -> None:
    async def server(url: str, headers: Mapping[str, str], authorities: Sequence[str]) -> fetching.Answer:
        return network.Reply(200, {}, b"made")

    contents = {"source": "http://files/x", "verification": {"hash": "sha256-" + "0" * 64}}
    console: list[str] = []

    with pytest.raises(ignition.IgnitionError, match='failed to create file "/a": hash verification failed'):
        provisioned({"storage": {"files": [{"path": "/a", "contents": contents}]}}, server, console)

    assert console[-1].startswith("ignition[786]: Ignition failed: ")


def test_configs_that_refer_to_each_other_for_ever_are_given_up() -> None:
    again = json.dumps(
        {"ignition": {"version": "3.2.0", "config": {"replace": {"source": "http://configs/again"}}}}
    ).encode()

    async def server(url: str, headers: Mapping[str, str], authorities: Sequence[str]) -> fetching.Answer:
        return network.Reply(200, {}, again)

    with pytest.raises(ignition.IgnitionError, match="refer to each other"):
        provisioned(again, server)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b'{"ignition":{"version":"2.2.0"}}', "unsupported config version"),
        (b'{"ignition":{"version":"3.6.0"}}', "unsupported config version"),
        (b'{"ignition":{"version":"3.5.0-rc1"}}', "unsupported config version"),
        (b'{"ignition":{"version":"latest"}}', "invalid config version"),
        (b'{"ignition":{"version":3}}', "invalid config version"),
        (b'{"ignition":{"version":"3.2.0"},"storage":[]}', "cannot unmarshal array into Go struct field storage"),
        (b'{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","mode":true}]}}', "cannot unmarshal bool"),
        (b'{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"a"}]}}', r"\$.storage.files.0.path: path not"),
        (b'{"ignition":{"version":"3.2.0"}} trailing', "config is not valid"),
        (b'{"ignition":{"version":"3.2.0","timeouts":{"httpTotal":NaN}}}', "config is not valid"),
        (b"\x1f\x8bnot gzip", "gzip: invalid header"),
        (gzip.compress(b"{}", mtime=0)[:-4], "unexpected EOF"),
        (b"[" * 100_000, "config is not valid"),
    ],
)
def test_what_is_refused_is_refused_in_words(said: bytes, words: str) -> None:
    console: list[str] = []

    with pytest.raises(ignition.IgnitionError, match=words):
        provisioned(said, log=console)

    assert "failed to fetch config" in console[-2]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_keys = [
    *("storage", "files", "links", "directories", "path", "contents", "source", "append", "verification", "hash"),
    *("systemd", "units", "name", "dropins", "enabled", "mask", "passwd", "users", "groups", "sshAuthorizedKeys"),
    *("mode", "user", "group", "id", "overwrite", "target", "hard", "kernelArguments", "shouldExist"),
]
_texts = [
    *("", "/", "/a", "/a/b", "a", "core", "data:,x", "data:;base64,eA==", "data:", "a.service", "x.conf", "sha256-0"),
    *("\ud800", "http:// ", "a@.service"),
]
_values = st.none() | st.booleans() | st.integers(-1, 5000) | st.sampled_from(_texts)
_config = st.recursive(
    _values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_keys), inner, max_size=5),
    max_leaves=25,
)


def _taken_or_refused(raw: bytes) -> None:
    with contextlib.suppress(ignition.IgnitionError):
        assert provisioned(raw).units is not None


@settings(deadline=None, max_examples=100)
@given(_json)
def test_any_json_is_taken_or_refused(said: Any) -> None:
    _taken_or_refused(json.dumps(said).encode())


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.sampled_from(["storage", "systemd", "passwd", "kernelArguments"]), _config))
def test_anything_like_a_config_is_taken_or_refused(said: dict[str, Any]) -> None:
    _taken_or_refused(json.dumps({"ignition": {"version": "3.5.0"}, **said}).encode())


_nodes = st.fixed_dictionaries(
    {"path": st.sampled_from(["/a", "/a/b", "/c", "/"])},
    optional={
        "contents": st.fixed_dictionaries({"source": st.sampled_from(["data:,x", "", "data:"])}),
        "target": st.sampled_from(["/c", "/a", "x"]),
        "hard": st.booleans(),
        "overwrite": st.booleans(),
        "user": st.fixed_dictionaries({"name": st.sampled_from(["core", "none"])}),
    },
)
_kinds = st.sampled_from(["files", "links", "directories"])


@settings(deadline=None, max_examples=100)
@given(st.lists(_nodes, max_size=4), st.lists(_kinds, min_size=4, max_size=4))
def test_any_paths_in_any_relation_are_written_or_refused(nodes: list[dict[str, Any]], kinds: list[str]) -> None:
    storage: dict[str, list[Any]] = {}
    for node, kind in zip(nodes, kinds, strict=False):
        storage.setdefault(kind, []).append(node)

    _taken_or_refused(json.dumps({"ignition": {"version": "3.5.0"}, "storage": storage}).encode())


@settings(deadline=None, max_examples=100)
@given(st.binary())
def test_what_was_encoded_is_decoded(content: bytes) -> None:
    assert resources.decoded(resources.encoded(content)) == content
    assert resources.decoded("data:text/plain;charset=utf-8;base64," + base64.b64encode(content).decode()) == content
    assert resources.decoded("data:," + quote(content)) == content
    assert resources.gunzipped(gzip.compress(content[:3]) + gzip.compress(content[3:])) == content


@settings(deadline=None, max_examples=100)
@given(st.text())
def test_a_data_url_is_decoded_or_refused(text: str) -> None:
    for url in (text, f"data:{text}", f"data:,{text}", f"data:;base64,{text}"):
        with contextlib.suppress(specs.IgnitionError):
            assert isinstance(resources.decoded(url), bytes)


@pytest.mark.parametrize(
    ("url", "content"),
    [
        ("data:,", b""),
        ("data:,a%2Cb", b"a,b"),
        ("data:,a,b;base64", b"a,b;base64"),
        ("data:text/plain,a", b"a"),
        ("data:x-custom/thing;a=b,c", b"c"),
        ("data:;base64,YQ==", b"a"),
        ('data:text/plain;a="q,;";base64,YQ==', b"a"),
        ("data:base64,YQ==", None),
        ("data:;base64,YQ", None),
        ("data:;base64,YQ===", None),
        ("data:;base64,Y=Q=", None),
        ("data:;base64,_-==", None),
        ("data:,%4", None),
        ("data:,{}", None),
        ("data:,ä", None),
        ("data:nonsense/plain,a", None),
        ("http://a", None),
    ],
)
def test_the_grammar_of_data_urls(url: str, content: bytes | None) -> None:
    if content is None:
        with pytest.raises(specs.IgnitionError, match="invalid data URL"):
            resources.decoded(url)
    else:
        assert resources.decoded(url) == content


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ""),
        ("# a remark \\\n nonsense\n[Unit]\n; another\nA=\\\n  b\nC=d", ""),
        ("nonsense before\n[Unit]\n", ""),
        ("[Unit]\nnonsense\n", "unexpected newline"),
        ("[Unit\n", "unable to find end of section"),
        ("[Unit] x\n", "found garbage after section name"),
        (f"[Unit]\nA={'x' * 2048}\n", "line too long"),
    ],
)
def test_a_unit_has_sections_and_options(text: str, problem: str) -> None:
    found = unit_files.problem(text)

    assert found.startswith(problem) if problem else found == ""
