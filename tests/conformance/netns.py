"""Machines for real programs: each a network and a mount namespace of its own, joined by a bridge in another one.

Nothing has a name that could be left behind: a namespace lives as long as a process that sleeps in it, and every
process here is killed by the kernel when the test's ends, however that ends. The host's own network is never touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from moorage.network import pods, rendering, settings, view
from tests.kube import pki

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = Path(__file__).with_name("api_stand_in.py")
DOMAIN = "harbour.example.com"
SETTINGS = settings.Settings(
    infra_id="harbour-x7k2p",
    cluster_domain=DOMAIN,
    api_vips=("10.99.0.5",),
    ingress_vips=("10.99.0.6",),
    machine_networks=("10.99.0.0/24",),
)
API_VIP, INGRESS_VIP = SETTINGS.api_vips[0], SETTINGS.ingress_vips[0]
_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_ADVERTS_APART = 1.5


def until(done: Callable[[], Any], seconds: float, what: str, logs: Callable[[], str] = str) -> float:
    """Wait until something is so; the seconds it took. The test ends if it never is."""
    begun = time.monotonic()
    while not done():
        if time.monotonic() - begun > seconds:
            raise AssertionError(f"{what}: not after {seconds:.0f} s\n{logs()}")
        time.sleep(0.02)
    return time.monotonic() - begun


class Machine:
    """A namespace with ``eth0``, files of its own in /etc, /run, /opt and /var/lib, and the programs that run in it."""

    def __init__(self, folder: Path, name: str, role: str, address: str) -> None:
        self.folder = folder / name
        self.name, self.role, self.address = name, role, address
        self.wanted = SETTINGS
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.folder.mkdir()
        shutil.copytree("/etc", self.folder / "etc", symlinks=True)
        self._holder = subprocess.Popen([*_WITH_US, "unshare", "--net", "--mount", "sleep", "infinity"])
        until(self._apart, 10, f"{name}: a namespace")
        mounts = f"mount --bind {self.folder}/etc /etc"
        for path in ("run", "opt", "var/lib"):
            (self.folder / path).mkdir(parents=True)
            mounts += f" && mount --bind {self.folder}/{path} /{path}"
        self.do("sh", "-c", mounts)
        self.do("ip", "link", "set", "lo", "up")

    @property
    def pid(self) -> int:
        return self._holder.pid

    @property
    def both(self) -> tuple[str, str]:
        """Its addresses, of either family."""
        return self.address, self.address.replace("10.99.0.", "fd99::")

    @property
    def node(self) -> view.Node:
        return view.Node(self.name, self.role, self.both)

    @property
    def me(self) -> view.Self:
        return view.Self(self.name, self.address, "eth0", 24, self.both)

    def _apart(self) -> bool:
        own, its = (Path(f"/proc/{each}/ns/mnt").readlink() for each in ("self", self.pid))
        return own != its and Path(f"/proc/{self.pid}/comm").read_text().strip() == "sleep"

    def inside(self, *words: str) -> list[str]:
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", f"--wd={ROOT}", *words]

    def do(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run something to its end."""
        return subprocess.run(self.inside(*words), capture_output=True, text=True, check=check)

    def start(self, name: str, *words: str, environ: Mapping[str, str] | None = None) -> None:
        """Start a program in a process group of its own, with a log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*_WITH_US, *self.inside(*words)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environ or {})},
            )

    def start_container(self, name: str) -> None:
        """Start a container of the node's pod by the very command line that is in the manifest."""
        containers: Any = pods.pod(self.wanted, self.role)["spec"]
        command = next(each["command"] for each in containers["containers"] if each["name"] == name)
        self.start(name, *command)

    def start_agent(self, speed: float = 10.0) -> None:
        """The agent in accelerated time, so that its patience does not try ours; keepalived's time is real."""
        environ = {"NODE_NAME": self.name, "MOORAGE_CLOCK_SPEED": str(speed)}
        self.start("agent", *self.moorage("run", "--role", self.role), environ=environ)

    def moorage(self, *words: str) -> list[str]:
        return [sys.executable, "-P", "-m", "moorage", "node-network", *words]

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """Ask a program to end, or kill it and all that it has started, and wait until it is gone."""
        process = self.running.pop(name)
        if how == signal.SIGKILL:
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        process.wait(20)

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def addresses(self) -> list[str]:
        links = json.loads(self.do("ip", "-json", "address", "show", "dev", "eth0").stdout)
        return [each["local"] for link in links for each in link["addr_info"]]

    def holds(self, address: str = API_VIP) -> bool:
        return address in self.addresses()

    def path(self, path: str) -> Path:
        """A path of the machine, seen from outside."""
        return self.folder / path.removeprefix("/")

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).write_text(text)
        self.path(path).chmod(mode)

    def render(self, nodes: Sequence[Machine], resolvers: tuple[str, ...] = ()) -> None:
        """The configs that the agent would write if it saw these nodes."""
        seen = view.View(self.me, tuple(sorted(each.node for each in nodes)), resolvers)
        self.write(settings.PATH, self.wanted.to_json())
        self.path("/run/moorage").mkdir(exist_ok=True)
        for path, text in rendering.files(self.wanted, self.role, seen).items():
            self.write(path, text, 0o755 if path.endswith(".sh") else 0o644)

    def serve_api(self, authority: pki.Authority) -> None:
        """An API server's stand-in on port 6443 that says whose it is."""
        pair = authority.server("127.0.0.1", names=("localhost", f"api-int.{DOMAIN}"))
        self.write("/var/lib/api/server.pem", pair.certificate + pair.key)
        self.write("/var/lib/api/ca.pem", authority.pair.certificate)
        self.write("/var/lib/api/nodes.json", json.dumps({"kind": "NodeList", "items": []}))
        self.set_ready(True)
        self.start("api", sys.executable, str(STAND_IN), self.name, "/var/lib/api")
        until(lambda: self.asks("https://localhost:6443/readyz") is not None, 20, "the API answers", self.logs)

    def set_ready(self, ready: bool) -> None:
        self.write("/var/lib/api/ready", "ok" if ready else "no")

    def show_nodes(self, nodes: Sequence[Machine]) -> None:
        """Let the API here list these nodes; one is NotReady, which is nobody's business."""
        items = [
            {
                "metadata": {"name": each.name, "labels": {f"node-role.kubernetes.io/{each.role}": ""}},
                "status": {
                    "addresses": [{"type": "InternalIP", "address": each.address}],
                    "conditions": [{"type": "Ready", "status": "False"}],
                },
            }
            for each in nodes
        ]
        self.write("/var/lib/api/nodes.json", json.dumps({"kind": "NodeList", "items": items}))

    def give_kubeconfig(self, authority: pki.Authority) -> None:
        """What a kubelet has: files beside its kubeconfig, and the server under the internal name."""
        pair = authority.client(f"system:node:{self.name}", ["system:nodes"])
        path = pods.KUBECONFIGS[self.role]
        folder = str(Path(path).parent)
        self.write(f"{folder}/pki/client.pem", pair.certificate + pair.key, 0o600)
        self.write(f"{folder}/ca.crt", authority.pair.certificate)
        server = "localhost" if self.role == view.BOOTSTRAP else f"api-int.{DOMAIN}"
        config = {
            "current-context": "node",
            "contexts": [{"name": "node", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [
                {"name": "here", "cluster": {"server": f"https://{server}:6443", "certificate-authority": "ca.crt"}}
            ],
            "users": [{"name": "me", "user": {"client-certificate": "pki/client.pem", "client-key": "pki/client.pem"}}],
        }
        self.write(path, json.dumps(config))

    def asks(self, url: str, seconds: float = 1.0) -> str | None:
        """What curl gets; None if it is an error, or nothing within ``seconds``."""
        ended = self.do("curl", "-ksf", "--max-time", f"{seconds:g}", url, check=False)
        return ended.stdout if ended.returncode == 0 else None

    def logs(self) -> str:
        return "\n".join(f"--- {self.name} {name}\n{self.log(name)[-3000:]}" for name in ("keepalived", "agent", "api"))

    def close(self) -> None:
        for process in [*self.running.values()]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        self._holder.kill()
        self._holder.wait(10)


class Segment:
    """Machines on one bridge."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._closing = contextlib.ExitStack()
        self.authority = pki.Authority()
        self.machines: list[Machine] = []
        self._switch = self._opened("switch", "", "")
        self._switch.do("ip", "link", "add", "br0", "type", "bridge")
        self._switch.do("ip", "link", "set", "br0", "up")

    def _opened(self, name: str, role: str, address: str) -> Machine:
        machine = Machine(self._folder, name, role, address)
        self._closing.callback(machine.close)
        return machine

    def machine(self, name: str, role: str = view.MASTER) -> Machine:
        """Another machine on the bridge, with an address of each family."""
        number = len(self.machines) + 11
        machine = self._opened(name, role, f"10.99.0.{number}")
        port = f"p{number}"
        self._switch.do("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(machine.pid))
        self._switch.do("ip", "link", "set", port, "master", "br0", "up")
        machine.do("ip", "address", "add", f"{machine.address}/24", "dev", "eth0")
        machine.do("ip", "address", "add", f"{machine.both[1]}/64", "dev", "eth0", "nodad")
        machine.do("ip", "link", "set", "eth0", "up")
        self.machines.append(machine)
        return machine

    def holders(self, address: str = API_VIP) -> list[Machine]:
        return [each for each in self.machines if each.holds(address)]

    def logs(self) -> str:
        return "\n".join(each.logs() for each in self.machines)

    def settle(self, seconds: float = 15.0) -> Machine:
        """Wait until one machine alone holds the API's address, and has for longer than adverts are apart.

        Equals that miss a holder take the address in one moment; the lesser lets go when it hears the other. Who
        looks in between may see the one that is about to let go.
        """
        found, since = self.holders(), time.monotonic()

        def settled() -> bool:
            nonlocal found, since
            if (now := self.holders()) != found:
                found, since = now, time.monotonic()
            return len(found) == 1 and time.monotonic() - since > _ADVERTS_APART

        until(settled, seconds, "one holder", self.logs)
        return found[0]

    def close(self) -> None:
        self._closing.close()


@contextlib.contextmanager
def segment(folder: Path) -> Iterator[Segment]:
    opened = Segment(folder)
    try:
        yield opened
    finally:
        opened.close()
