"""The machine-config server: who gets which spec, and who gets nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.lab.nodes import conversion, machine_configs, mcs, network, resources, specs, x509
from tests.conformance import ignition as embedded

IGNITION = "application/vnd.coreos.ignition+json"
CONFIG: specs.Config = {
    "ignition": {"version": "3.5.0"},
    "storage": {"files": [{"path": "/a", "overwrite": True, "contents": {"source": "data:,x"}}]},
}


def asks(version: str) -> str:
    return f"{IGNITION};version={version}, */*;q=0.1"


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        (asks("3.5.0"), (3, 5, 0)),
        (asks("3.2.0"), (3, 2, 0)),
        (asks("3.2.0-experimental"), (3, 2, 0)),
        (asks("3.2.7"), (3, 2, 0)),
        (asks("3.9.0"), (3, 5, 0)),
        (asks("3.0.0"), (3, 0, 0)),
        (asks("2.2.0"), (2, 2, 0)),
        (asks("2.4.0"), (2, 2, 0)),
        ("", (2, 2, 0)),
        ("*/*", (2, 2, 0)),
        ("text/html", (2, 2, 0)),
        ("nonsense", (2, 2, 0)),
        (IGNITION, (2, 2, 0)),
        (f"{IGNITION};version=3", (2, 2, 0)),
        (f"{IGNITION};version=3;version=3.1.0", (3, 1, 0)),
        (f"{IGNITION}; version=2.4.0, {IGNITION}; version=1; q=0.5, */*; q=0.1", (2, 2, 0)),
        (f"{IGNITION};version=3.1.0;q=0.3, {IGNITION};version=3.4.0;q=0.9", (3, 4, 0)),
        (f"{IGNITION};version=3.1.0;q=0.9, {IGNITION};version=3.4.0;q=0.3", (3, 1, 0)),
        (f"{IGNITION};version=3.1.0, {IGNITION};version=3.4.0", (3, 1, 0)),
        (f"{IGNITION};q=nonsense;version=3.1.0, {IGNITION};version=3.4.0;q=0.9", (3, 1, 0)),
        (asks("1.0.0"), None),
        (asks("2.1.0"), None),
        (asks("4.0.0"), None),
        (f"{IGNITION};version=4.0.0, {IGNITION};version=3.1.0;q=0.5", None),
    ],
)
def test_the_spec_is_the_one_most_wanted(accept: str, version: specs.Version | None) -> None:
    if version is None:
        with pytest.raises(mcs.UnsupportedVersion, match="unsupported Ignition version"):
            mcs.version_for(accept)
    else:
        assert mcs.version_for(accept) == version


@settings(deadline=None)
@given(st.text(alphabet="av/;=,q.013 +*-", max_size=40))
def test_any_accept_header_is_understood_or_refused(accept: str) -> None:
    with contextlib.suppress(mcs.UnsupportedVersion):
        assert mcs.version_for(accept) in (*conversion.TARGETS, (3, 0, 0))


@contextlib.asynccontextmanager
async def running(server: mcs.MachineConfigServer) -> AsyncIterator[str]:
    runner = web.AppRunner(server.app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def server_of(config: specs.Config | None = None, log: list[str] | None = None, **more: Any) -> mcs.MachineConfigServer:
    """A server with the pools master and worker."""

    def render(pool: str) -> bytes | None:
        return json.dumps(config or CONFIG).encode() if pool in ("master", "worker") else None

    return mcs.MachineConfigServer(render, "", "", log=(log if log is not None else []).append, **more)


def asked(
    server: mcs.MachineConfigServer, path: str, accept: str = "", method: str = "GET"
) -> tuple[int, dict[str, str], bytes]:
    async def story() -> tuple[int, dict[str, str], bytes]:
        async with (
            running(server) as url,
            aiohttp.ClientSession() as session,
            session.request(method, url + path, headers={"Accept": accept}) as reply,
        ):
            return reply.status, {name.lower(): value for name, value in reply.headers.items()}, await reply.read()

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("method", "path", "accept", "bootstrap", "status"),
    [
        ("GET", "/config/worker", asks("3.5.0"), False, 200),
        ("GET", "/config/some/where/worker", asks("3.5.0"), False, 200),
        ("HEAD", "/config/worker", asks("3.5.0"), False, 200),
        ("POST", "/config/worker", asks("3.5.0"), False, 405),
        ("PUT", "/healthz", "", False, 405),
        ("DELETE", "/", "", False, 405),
        ("GET", "/healthz", "", False, 200),
        ("HEAD", "/healthz", "", False, 200),
        ("GET", "/healthz/", "", False, 404),
        ("GET", "/", "", False, 404),
        ("GET", "/configs/worker", "", False, 404),
        ("GET", "/config/worker", asks("4.0.0"), False, 400),
        ("GET", "/config/worker", asks("3.0.0"), False, 500),
        ("GET", "/config/absent", asks("3.5.0"), False, 500),
        ("GET", "/config/", asks("3.5.0"), False, 500),
        ("GET", "/config/master", asks("3.5.0"), True, 200),
        ("GET", "/config/worker", asks("3.5.0"), True, 500),
        ("GET", "/config/arbiter", asks("3.5.0"), True, 404),
    ],
)
def test_who_gets_an_answer(method: str, path: str, accept: str, bootstrap: bool, status: int) -> None:
    found, headers, body = asked(server_of(bootstrap=bootstrap), path, accept, method)

    assert found == status
    if status == 200 and "/config/" in path:
        assert headers["content-type"].startswith("application/json")
        assert int(headers["content-length"]) == len(body) or method == "HEAD"
        assert int(headers["content-length"]) > 50
        assert bool(body) == (method == "GET")
    else:
        assert (headers["content-length"], body) == ("0", b"")


@pytest.mark.parametrize("minor", range(1, 6))
def test_a_machine_gets_the_spec_it_asked_for(minor: int) -> None:
    _, _, body = asked(server_of(), "/config/worker", asks(f"3.{minor}.0"))

    assert json.loads(body) == {**CONFIG, "ignition": {"version": f"3.{minor}.0"}}


def test_who_asks_like_a_browser_gets_the_old_spec() -> None:
    _, _, body = asked(server_of(), "/config/worker", "*/*")

    found = json.loads(body)
    assert found["ignition"]["version"] == "2.2.0"
    assert found["storage"]["files"] == [
        {
            "filesystem": "root",
            "path": "/a",
            "overwrite": True,
            "contents": {"source": "data:,x", "verification": {}},
        }
    ]


def test_the_log_tells_who_asked_and_why_not() -> None:
    log: list[str] = []

    asked(server_of(bootstrap=True, log=log), "/config/worker", asks("3.5.0"))

    assert log[0].startswith('Pool "worker" requested by address:"127.0.0.1"')
    assert "refusing to serve bootstrap configuration" in log[1]


def test_a_pool_that_cannot_be_rendered_is_an_error_of_the_server() -> None:
    def render(pool: str) -> bytes | None:
        raise machine_configs.CannotRender("nonsense in 99-mine")

    log: list[str] = []

    status, _, body = asked(mcs.MachineConfigServer(render, "", "", log=log.append), "/config/worker", asks("3.2.0"))

    assert (status, body) == (500, b"")
    assert "nonsense in 99-mine" in log[-1]


def test_a_path_given_twice_is_an_error_of_the_server() -> None:
    twice = {**CONFIG, "storage": {"files": CONFIG["storage"]["files"] * 2}}

    assert asked(server_of(twice), "/config/worker", asks("3.5.0"))[0] == 500


@pytest.mark.parametrize(
    ("said", "version", "converts"),
    [
        ({"kernelArguments": {"shouldExist": ["a"]}}, (3, 3, 0), True),
        ({"kernelArguments": {"shouldExist": ["a"]}}, (3, 2, 0), False),
        ({"storage": {"luks": [{"name": "a", "discard": True}]}}, (3, 4, 0), True),
        ({"storage": {"luks": [{"name": "a", "discard": True}]}}, (3, 3, 0), False),
        ({"storage": {"luks": [{"name": "a"}]}}, (3, 1, 0), False),
        ({"passwd": {"users": [{"name": "a", "shouldExist": False}]}}, (3, 1, 0), False),
        ({"passwd": {"users": [{"name": "a", "shouldExist": True}]}}, (3, 1, 0), True),
        ({"passwd": {"users": [{"name": "a", "shouldExist": False}]}}, (2, 2, 0), False),
        ({"ignition": {"version": "3.5.0", "proxy": {"httpProxy": "http://p"}}}, (3, 1, 0), True),
        ({"ignition": {"version": "3.5.0", "proxy": {"httpProxy": "http://p"}}}, (2, 2, 0), False),
        ({"storage": {"disks": [{"device": "/dev/a"}]}}, (2, 2, 0), False),
        ({}, (3, 0, 0), False),
        ({}, (2, 3, 0), False),
    ],
)
def test_what_an_older_spec_cannot_say_is_refused(said: specs.Config, version: specs.Version, converts: bool) -> None:
    config = {**CONFIG, **said}

    if converts:
        found = conversion.converted(config, version)
        assert found["ignition"]["version"] == specs.written(version)
        assert "shouldExist" not in json.dumps(found.get("passwd", {}))
    else:
        with pytest.raises(conversion.CannotConvert):
            conversion.converted(config, version)


def test_one_file_of_spec_3_is_several_of_spec_2() -> None:
    file = {
        "path": "/a",
        "mode": 420,
        "overwrite": True,
        "contents": {"source": "data:,1", "compression": "gzip"},
        "append": [{"source": "data:,2", "verification": {"hash": "sha256-x"}}],
    }
    config = {
        "ignition": {"version": "3.5.0", "config": {"merge": [{"source": "https://more"}]}},
        "storage": {"files": [file], "links": [{"path": "/l", "target": "/a"}]},
        "systemd": {"units": [{"name": "a.service", "enabled": True}]},
    }

    found = conversion.converted(config, conversion.V2)

    node = {"filesystem": "root", "path": "/a", "mode": 420}
    assert found["storage"]["files"] == [
        {**node, "overwrite": True, "contents": {"source": "data:,1", "verification": {}, "compression": "gzip"}},
        {
            **node,
            "overwrite": False,
            "append": True,
            "contents": {"source": "data:,2", "verification": {"hash": "sha256-x"}},
        },
    ]
    assert found["storage"]["links"] == [{"filesystem": "root", "path": "/l", "target": "/a"}]
    assert found["ignition"]["config"] == {"append": [{"source": "https://more", "verification": {}}]}
    assert found["systemd"] == config["systemd"]


def test_kernel_arguments_reach_machines_whose_ignition_knows_none() -> None:
    held = json.dumps({"spec": {"kernelArguments": ["a"]}}).encode()
    encapsulated = {"path": machine_configs.ENCAPSULATED, "contents": {"source": resources.encoded(held)}}
    config = {**CONFIG, "storage": {"files": [encapsulated]}, "kernelArguments": {"shouldExist": ["b"]}}

    _, _, body = asked(server_of(config), "/config/worker", asks("3.2.0"))

    source = json.loads(body)["storage"]["files"][0]["contents"]["source"]
    assert json.loads(resources.decoded(source))["spec"]["kernelArguments"] == ["a", "b"]
    unwanted = {**config, "kernelArguments": {"shouldNotExist": ["b"]}}
    assert asked(server_of(unwanted), "/config/worker", asks("3.2.0"))[0] == 500
    assert asked(server_of(unwanted), "/config/worker", asks("3.3.0"))[0] == 200


def test_a_machine_believes_the_server_with_the_product_s_certificate(cluster_dir: Path) -> None:
    files = embedded.embedded(cluster_dir / "bootstrap.ign")
    pair = [files[f"/opt/openshift/tls/machine-config-server.{kind}"].decode() for kind in ("crt", "key")]
    root = files["/opt/openshift/tls/root-ca.crt"].decode()
    server = mcs.MachineConfigServer(lambda pool: json.dumps(CONFIG).encode(), *pair)

    async def story(name: str, authorities: str) -> str:
        listening = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0, ssl=server.tls())
        async with listening:
            port = listening.sockets[0].getsockname()[1]
            try:
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=x509.client_context(authorities), server_hostname=name
                )
            except OSError as problem:
                return network.words(problem)
            writer.transport.abort()
            return ""

    assert asyncio.run(story("api-int.harbour.example.com", root)) == ""
    assert "unknown authority" in asyncio.run(story("api-int.harbour.example.com", ""))
    assert "not elsewhere.example.com" in asyncio.run(story("elsewhere.example.com", root))
