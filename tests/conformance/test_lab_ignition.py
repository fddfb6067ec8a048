"""The lab's machine and the real Ignition engine end up with the same disk from the same user data, or both refuse."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gzip
import hashlib
import json
import os
import socket
import stat
import subprocess
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import abc, web

from moorage.engine import clock as clocks
from moorage.lab.nodes import disk, machine_configs, mcs, network, x509
from moorage.lab.nodes import ignition as lab_ignition
from tests.conformance import ignition

ADDRESS = "127.62.26.24"
NAME = "api-int.harbour.example.com"
HOSTS = f"127.0.0.1 localhost\n{ADDRESS} {NAME}\n"
FAST = 50.0

# What useradd and the engine itself leave behind is not what the config asked for.
LEFT_BEHIND = ("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/.pwd.lock", "/etc/.ignition-result")

pytestmark = pytest.mark.needs("ignition", "unshare", "root")


@pytest.fixture
def work() -> Iterator[Path]:
    """A folder that user core can walk through: Ignition writes the authorized keys under that identity."""
    with tempfile.TemporaryDirectory(prefix="moorage-ignition-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def on_disk(root: Path) -> dict[str, disk.File | disk.Directory | disk.Link]:
    """Everything below a folder, as the lab would describe it."""
    found: dict[str, disk.File | disk.Directory | disk.Link] = {}
    for folder, folders, files in os.walk(root):
        for each in (Path(folder) / name for name in (*folders, *files)):
            path, state = f"/{each.relative_to(root)}", each.lstat()
            mode = stat.S_IMODE(state.st_mode)
            if path.startswith(LEFT_BEHIND):
                continue
            if each.is_symlink():
                found[path] = disk.Link(str(each.readlink()), state.st_uid, state.st_gid)
            elif each.is_dir():
                found[path] = disk.Directory(mode, state.st_uid, state.st_gid)
            else:
                found[path] = disk.File(each.read_bytes(), mode, state.st_uid, state.st_gid)
    return found


def in_lab(done: lab_ignition.Provisioned) -> dict[str, disk.File | disk.Directory | disk.Link]:
    """All that the lab's machine has, with the directories that came along with its files."""
    entries = {**done.files, **done.directories, **done.links}
    parents = {str(parent) for path in entries for parent in Path(path).parents} - {"/"}
    return {**{parent: disk.Directory() for parent in parents}, **entries}


class _Hosts(abc.AbstractResolver):
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[abc.ResolveResult]:
        if host != NAME:
            raise OSError(f"lookup {host}: no such host")
        return [abc.ResolveResult(hostname=host, host=ADDRESS, port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        """Nothing is held."""


async def fetch(url: str, headers: Mapping[str, str], authorities: Sequence[str]) -> network.Reply:
    """What a machine's wire does, where the name is in its hosts file."""
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=_Hosts()), auto_decompress=False) as session,
            session.get(url, headers=headers, ssl=x509.client_context("\n".join(authorities))) as reply,
        ):
            return network.Reply(reply.status, {k.lower(): v for k, v in reply.headers.items()}, await reply.read())
    except aiohttp.ClientConnectorCertificateError as problem:
        raise problem.certificate_error from problem
    except aiohttp.ClientConnectorError as problem:
        raise problem.os_error from problem


@contextlib.asynccontextmanager
async def serving(server: mcs.MachineConfigServer | None) -> AsyncIterator[None]:
    if server is None:
        yield
        return
    runner = web.AppRunner(server.app())
    await runner.setup()
    try:
        await web.TCPSite(runner, ADDRESS, mcs.PORT, ssl_context=server.tls()).start()
        yield
    finally:
        await runner.cleanup()


def both(
    work: Path, config: bytes, server: mcs.MachineConfigServer | None = None, seconds: float = 60
) -> tuple[subprocess.CompletedProcess[str], Path, lab_ignition.Provisioned | str, list[str]]:
    """The real engine and the lab's machine on the same user data, and the same disk before it."""
    root = ignition.prepare(work)
    (work / "config.ign").write_bytes(config)
    present = on_disk(root)
    console: list[str] = []

    async def story() -> tuple[subprocess.CompletedProcess[str], lab_ignition.Provisioned | str]:
        async with serving(server):
            real = asyncio.to_thread(ignition.run, work, work / "config.ign", HOSTS, seconds)
            ours = lab_ignition.provision(config, fetch, console.append, clock=clocks.Clock(FAST), present=present)
            done, made = await asyncio.gather(real, asyncio.wait_for(ours, seconds), return_exceptions=True)
            assert isinstance(done, subprocess.CompletedProcess)
            if isinstance(made, lab_ignition.IgnitionError):
                return done, made.message
            if isinstance(made, TimeoutError):
                return done, "still trying"
            assert not isinstance(made, BaseException), made
            return done, made

    done, made = asyncio.run(story())
    return done, root, made, console


def assert_same_disk(work: Path, config: bytes, server: mcs.MachineConfigServer | None = None) -> Any:
    done, root, made, console = both(work, config, server)
    assert done.returncode == 0, done.stdout[-3000:]
    assert isinstance(made, lab_ignition.Provisioned), (made, console[-5:])
    real, ours = on_disk(root), in_lab(made)
    assert sorted(real) == sorted(ours)
    for entries in (real, ours):
        presets = entries.get(lab_ignition.PRESETS)
        if isinstance(presets, disk.File):
            # The order of the lines is the engine's whim, and means nothing to systemd.
            ordered = b"".join(sorted(presets.content.splitlines(keepends=True)))
            entries[lab_ignition.PRESETS] = dataclasses.replace(presets, content=ordered)
    for path, entry in real.items():
        assert ours[path] == entry, path
    return made


def test_the_bootstrap_machine(cluster_dir: Path, work: Path) -> None:
    made = assert_same_disk(work, (cluster_dir / "bootstrap.ign").read_bytes())

    assert made.units["bootkube.service"].contents
    assert made.files["/etc/motd"].content.startswith(b"Welcome.\n")


def server_of(cluster_dir: Path, asked: list[str] | None = None) -> mcs.MachineConfigServer:
    """The machine-config server with what the bootstrap machine finds on its disk."""
    files = ignition.embedded(cluster_dir / "bootstrap.ign")
    folders = ("/opt/openshift/manifests/", "/opt/openshift/openshift/")
    manifests = [
        document
        for path, content in files.items()
        if path.startswith(folders)
        for document in yaml.safe_load_all(content)
        if document
    ]

    def render(pool: str) -> bytes | None:
        config = machine_configs.rendered(
            manifests,
            pool,
            kubeconfig=files["/opt/openshift/auth/kubeconfig-kubelet"].decode(),
            root_ca=files["/opt/openshift/tls/root-ca.crt"].decode(),
            kubelet_ca=files["/opt/openshift/tls/kube-apiserver-complete-client-ca-bundle.crt"].decode(),
        )
        return None if config is None else json.dumps(config).encode()

    pair = [files[f"/opt/openshift/tls/machine-config-server.{kind}"].decode() for kind in ("crt", "key")]
    return mcs.MachineConfigServer(render, *pair, log=(asked if asked is not None else []).append)


@pytest.mark.parametrize("role", ["master", "worker"])
def test_a_machine_that_fetches_from_our_machine_config_server(cluster_dir: Path, work: Path, role: str) -> None:
    asked: list[str] = []

    made = assert_same_disk(work, (cluster_dir / f"{role}.ign").read_bytes(), server_of(cluster_dir, asked))

    # Debian's engine knows spec 3.3 at most, the lab's machine 3.5: each got what it asked for.
    assert {"3.3.0", "3.5.0"} <= {line.partition("version=")[2][:5] for line in asked}
    assert made.files["/etc/kubernetes/kubeconfig"].content
    assert made.units["kubelet.service"].enabled
    assert made.users["core"].ssh_keys


def test_neither_trusts_a_server_of_another_ca(cluster_dir: Path, work: Path) -> None:
    cert, key = work / "other.crt", work / "other.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=impostor", "-days", "1"),
            *("-addext", f"subjectAltName=DNS:{NAME}", "-keyout", key, "-out", cert),
        ],
        check=True,
        capture_output=True,
    )
    server = mcs.MachineConfigServer(lambda pool: b"{}", cert.read_text(), key.read_text())

    done, root, made, console = both(work, (cluster_dir / "worker.ign").read_bytes(), server, seconds=4)

    assert done.returncode != 0
    assert made == "still trying"
    said = "x509: certificate signed by unknown authority"
    assert said in done.stdout
    assert any(said in line for line in console)
    assert not (root / "etc/kubernetes").exists()


def config(**sections: Any) -> bytes:
    return json.dumps({"ignition": {"version": "3.3.0", **sections.pop("ignition", {})}, **sections}).encode()


def file(path: str = "/etc/made", content: str = "data:,made", **more: Any) -> dict[str, Any]:
    return {"path": path, "contents": {"source": content}, **more}


def files(*each: dict[str, Any], **more: Any) -> bytes:
    return config(storage={"files": list(each), **more})


def dropin(name: str) -> dict[str, str]:
    return {"name": name, "contents": "[Unit]\n"}


def packed(text: str) -> str:
    return "data:;base64," + b64encode(gzip.compress(text.encode())).decode()


def merging(*children: bytes, **mine: Any) -> bytes:
    sources = [{"source": "data:;base64," + b64encode(child).decode()} for child in children]
    return config(ignition={"config": {"merge": sources}}, **mine)


SHA512 = "sha512-" + hashlib.sha512(b"made").hexdigest()
SHA256 = "sha256-" + hashlib.sha256(b"made").hexdigest()
UNIT = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"

TAKEN = {
    "nothing but a version": config(),
    "an unknown key": config(colour="blue"),
    "spec 3.0": b'{"ignition":{"version":"3.0.0"},"kernelArguments":{"shouldExist":["a"]}}',
    "keys in another case": b'{"Ignition":{"Version":"3.2.0"},"storage":{"FILES":[{"PATH":"/etc/made"}]}}',
    "percent encoding": files(file(content="data:text/plain;charset=utf-8,a%20b%0Ac%2f")),
    "a media type with parameters": files(file(content='data:text/plain;x="a%20b;,";y=z;base64,bWFkZQ==')),
    "no contents": files({"path": "/etc/empty", "mode": 384}),
    "an empty source": files(file(content="", compression="gzip")),
    "gzip": files(file(contents={"source": packed("made"), "compression": "gzip"})),
    "gzip with a checksum of what is in it": files(
        file(contents={"source": packed("made"), "compression": "gzip", "verification": {"hash": SHA512}})
    ),
    "a good sha256": files(file(contents={"source": "data:,made", "verification": {"hash": SHA256}})),
    "append to what is there": files({"path": "/etc/motd", "append": [{"source": "data:,1"}, {"source": "data:,2"}]}),
    "append to what is not": files({"path": "/etc/new", "mode": 288, "append": [{"source": "data:,1"}]}),
    "contents and append": files(file(append=[{"source": "data:,%20more"}])),
    "append to what is overwritten": files(file("/etc/motd", overwrite=True, append=[{"source": "data:,!"}])),
    "overwrite": files(file("/etc/motd", overwrite=True, mode=256)),
    "overwrite a folder": files(file("/home", overwrite=True)),
    "mode of what is there": files({"path": "/etc/motd", "mode": 384}),
    "owners": files(file(user={"name": "core"}, group={"id": 7})),
    "a folder": config(storage={"directories": [{"path": "/a/b", "mode": 448, "user": {"id": 1000}}]}),
    "a folder over one that is there": config(storage={"directories": [{"path": "/etc", "mode": 493}]}),
    "a folder and files in it": files(file("/a/b/c"), file("/a/d"), directories=[{"path": "/a", "mode": 448}]),
    "links": files(file("/a/file"), links=[{"path": "/a/link", "target": "../file", "user": {"id": 1000}}]),
    "a link over a file": config(storage={"links": [{"path": "/etc/motd", "target": "/x", "overwrite": True}]}),
    "hard links": files(file("/a/b/c"), links=[{"path": "/hard", "target": "/a/b/c", "hard": True}]),
    "units": config(
        systemd={
            "units": [
                {"name": "b.service", "enabled": True, "contents": UNIT},
                {"name": "a.service", "contents": UNIT, "dropins": [{"name": "x.conf", "contents": "[Unit]\n"}]},
                {"name": "d.service", "mask": True},
                {"name": "e.service", "contents": UNIT, "mask": True},
                {"name": "f.service", "dropins": [{"name": "none.conf"}, {"name": "empty.conf", "contents": ""}]},
                {"name": "g.service", "contents": ""},
                {"name": "h.service", "mask": False, "contents": UNIT},
            ]
        }
    ),
    "a merge that changes a file": merging(
        files(file(content="data:,child", mode=384)), storage={"files": [file(content="data:,parent", mode=292)]}
    ),
    "a merge that adds to a file": merging(
        files({"path": "/etc/made", "append": [{"source": "data:,child"}]}),
        storage={"files": [file(append=[{"source": "data:,parent"}])]},
    ),
    "a merge that makes a link of a file": merging(
        config(storage={"links": [{"path": "/etc/made", "target": "/x"}]}), storage={"files": [file(), file("/b")]}
    ),
    "a merge of units": merging(
        config(systemd={"units": [{"name": "a.service", "enabled": False, "dropins": [dropin("2.conf")]}]}),
        config(systemd={"units": [{"name": "a.service", "enabled": True}]}),
        systemd={"units": [{"name": "a.service", "contents": UNIT, "dropins": [dropin("1.conf")]}]},
    ),
    "merges in a row and in depth": merging(merging(files(file("/a"))), files(file("/b")), files(file("/c"))),
    "a merge of nothing, which undoes everything": merging(b"", storage={"files": [file()]}),
    "a replacement": config(
        ignition={"config": {"replace": {"source": "data:;base64," + b64encode(files(file("/new"))).decode()}}},
        storage={"files": [file("/old")]},
    ),
    "SSH keys": merging(
        config(passwd={"users": [{"name": "core", "sshAuthorizedKeys": ["b", "c"]}]}),
        passwd={"users": [{"name": "core", "sshAuthorizedKeys": ["a", "b"]}]},
    ),
}

REFUSED = {
    "nonsense": b"nonsense",
    "a list": b"[]",
    "no version": b'{"ignition":{}}',
    "spec 2.2": b'{"ignition":{"version":"2.2.0"}}',
    "spec 2.3": b'{"ignition":{"version":"2.3.0"},"storage":{"files":[]}}',
    "a version of the future": b'{"ignition":{"version":"4.0.0"}}',
    "a patch of a version": b'{"ignition":{"version":"3.2.1"}}',
    "half a version": b'{"ignition":{"version":"3.2"}}',
    "a mode in quotes": files(file(mode="0644")),
    "a mode with a fraction": files(file(mode=420.5)),
    "an illegal mode": files(file(mode=65536)),
    "a relative path": files(file("etc/made")),
    "a path with dots": files(file("/etc/../made")),
    "a path with a slash at its end": files(file("/etc/made/")),
    "a path twice": files(file(), file()),
    "a path as file and link": files(file("/a"), links=[{"path": "/a", "target": "/b"}]),
    "a file below a link": files(file("/a/b"), links=[{"path": "/a", "target": "/c"}]),
    "a link to nowhere": config(storage={"links": [{"path": "/a"}]}),
    "a hard link to what is not there": config(storage={"links": [{"path": "/a", "target": "/no", "hard": True}]}),
    "overwrite without contents": files({"path": "/etc/motd", "overwrite": True}),
    "a file that is there": files(file("/etc/motd")),
    "a file that is there, kept by word": files(file("/etc/motd", overwrite=False)),
    "a file where a folder is": files(file("/etc")),
    "a folder where a file is": config(storage={"directories": [{"path": "/etc/motd"}]}),
    "a file below a file": files(file("/etc/motd/x")),
    "a wrong sha512": files(file(contents={"source": "data:,mad", "verification": {"hash": SHA512}})),
    "a wrong sha256": files(file(contents={"source": "data:,mad", "verification": {"hash": SHA256}})),
    "half a checksum": files(file(contents={"source": "data:,made", "verification": {"hash": SHA512[:-2]}})),
    "an unknown checksum": files(file(contents={"source": "data:,made", "verification": {"hash": "md5-00"}})),
    "an unknown compression": files(file(contents={"source": "data:,made", "compression": "xz"})),
    "gzip that is none": files(file(contents={"source": "data:,made", "compression": "gzip"})),
    "an unknown scheme": files(file(content="ftp://example.com/x")),
    "a data URL with a space": files(file(content="data:,a b")),
    "a data URL without a comma": files(file(content="data:text/plain")),
    "a broken escape": files(file(content="data:,%zz")),
    "broken base64": files(file(content="data:;base64,abc")),
    "base64 said too early": files(file(content="data:;base64;charset=utf-8,YQ==")),
    "headers for a data URL": files(file(contents={"source": "data:,a", "httpHeaders": [{"name": "a", "value": "b"}]})),
    "an unknown owner": files(file(user={"name": "nobody-here"})),
    "an owner by name and number": files(file(user={"name": "core", "id": 1})),
    "a unit that is no unit": config(systemd={"units": [{"name": "a.txt", "contents": UNIT}]}),
    "a unit without sense": config(systemd={"units": [{"name": "a.service", "contents": "[Unit]\nnonsense\n"}]}),
    "an unclosed section": config(systemd={"units": [{"name": "a.service", "contents": "[Unit\n"}]}),
    "a drop-in that is none": config(systemd={"units": [{"name": "a.service", "dropins": [{"name": "x"}]}]}),
    "an authority that is none": config(
        ignition={"security": {"tls": {"certificateAuthorities": [{"source": "data:,nonsense"}]}}}
    ),
    "a merge of spec 2": merging(b'{"ignition":{"version":"2.2.0"}}'),
    "a merge without a source": config(ignition={"config": {"merge": [{}]}}),
    "a merge that is not what was promised": config(
        ignition={"config": {"merge": [{"source": "data:,%7b%7d", "verification": {"hash": SHA512}}]}}
    ),
    "a merge that puts a file below a link": merging(
        config(storage={"links": [{"path": "/a", "target": "/b"}]}), storage={"files": [file("/a/c")]}
    ),
}


@pytest.mark.parametrize("said", TAKEN.values(), ids=TAKEN.keys())
def test_what_the_engine_takes(work: Path, said: bytes) -> None:
    assert_same_disk(work, said)


@pytest.mark.parametrize("said", REFUSED.values(), ids=REFUSED.keys())
def test_what_the_engine_refuses(work: Path, said: bytes) -> None:
    done, _, made, _ = both(work, said)

    assert done.returncode > 0, done.stdout[-3000:]
    assert isinstance(made, str), made
    assert made != "still trying"
