"""Running the real Ignition engine without a boot, and a machine-config server for it to talk to."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import IGNITION

CORE = 1000


def embedded(config: Path) -> dict[str, bytes]:
    """Files of an Ignition config by path."""
    files = json.loads(config.read_bytes())["storage"]["files"]
    return {
        file["path"]: base64.b64decode(file["contents"]["source"].partition(",")[2])
        for file in files
        if "contents" in file
    }


def prepare(work: Path) -> Path:
    """A root such as RHCOS has before Ignition runs: user core exists, SELinux relabelling is a no-op."""
    root = work / "root"
    for folder in ("etc/selinux", "home/core", "var"):
        (root / folder).mkdir(parents=True)
    os.chown(root / "home/core", CORE, CORE)
    (root / "etc/selinux/config").write_text("SELINUX=disabled\nSELINUXTYPE=targeted\n")
    (root / "etc/motd").write_text("Welcome.\n")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\ncore:x:1000:1000:core:/home/core:/bin/bash\n")
    (root / "etc/group").write_text("root:x:0:\ncore:x:1000:\n")
    setfiles = work / "bin/setfiles"
    setfiles.parent.mkdir()
    setfiles.write_text("#!/bin/sh\nexit 0\n")
    setfiles.chmod(0o755)
    (work / "run").mkdir()
    return root


def run(work: Path, config: Path, hosts: str = "", seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Stages fetch and files on ``work``/root. ``hosts`` is what /etc/hosts says, inside a namespace of its own."""
    script = ["set -e"]
    if hosts:
        (work / "hosts").write_text(hosts)
        script.append(f"mount --bind {work}/hosts /etc/hosts")
    for stage in ("fetch", "files"):
        script.append(
            f"{IGNITION} -platform file -root {work}/root -config-cache {work}/run/ignition.json "
            f"-state-file {work}/run/state -neednet {work}/run/neednet -log-to-stdout -stage {stage}"
        )
    environment = {**os.environ, "IGNITION_CONFIG_FILE": str(config), "PATH": f"{work}/bin:{os.environ['PATH']}"}
    unshare = shutil.which("unshare")
    assert unshare is not None
    process = subprocess.Popen(
        [unshare, "--mount", "sh", "-c", "\n".join(script)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return subprocess.CompletedProcess([], -signal.SIGKILL, output)
    return subprocess.CompletedProcess([], process.returncode, output)


@contextlib.contextmanager
def machine_config_server(address: str, cert: Path, key: Path, answer: bytes) -> Iterator[list[tuple[str, str]]]:
    """TLS on port 22623 with the given certificate; yields the requests it gets as (path, Accept)."""
    asked: list[tuple[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Accept", "")))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet: what was asked is in ``asked``."""

    server = http.server.ThreadingHTTPServer((address, 22623), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
