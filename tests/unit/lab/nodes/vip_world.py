"""A site for stories about virtual addresses: machines with keepalived or HAProxy, and who is reached."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping

import yaml

from moorage.engine import clock as clocks
from moorage.lab import site as sites
from moorage.lab.nodes import credentials, instance, network, vrrp

SPEED = 200.0
PORT, API, BALANCED = 8080, 6443, 9445
PASSWORD = "harbour"
KEPT = "/etc/keepalived/keepalived.conf"
AUTHORITY = credentials.authority("somebody", credentials.DAY)
PAIR = credentials.serving(AUTHORITY, "api", ["api"], credentials.DAY)


def story(tell: Callable[[Scene], Awaitable[None]]) -> None:
    async def told() -> None:
        site = sites.Site(clocks.Clock(SPEED))
        await site.start()
        try:
            await tell(Scene(site))
        finally:
            await site.stop()

    asyncio.run(told())


def conf(address: str, priority: int, *lines: str, router: int = 51, password: str = PASSWORD, head: str = "") -> str:
    more = "\n".join(lines)
    return f"""{head}
vrrp_instance API {{
    interface ens3
    virtual_router_id {router}
    priority {priority}
    authentication {{
        auth_type PASS
        auth_pass {password}
    }}
    virtual_ipaddress {{
        {address}/20 label vip
    }}
    {more}
}}
"""


def script(command: str, weight: int) -> str:
    return f'vrrp_script chk {{\nscript "{command}"\ninterval 1\nweight {weight}\n}}\n'


TRACK = "track_script {\nchk\n}"


def pod(name: str, folder: str, command: str = "", *, monitor: bool = False, image: str = "") -> str:
    mounts = [{"name": "conf", "mountPath": folder}]
    container: dict[str, object] = {"name": name, "image": image or f"example.com/{name}:1", "volumeMounts": mounts}
    if command:
        container["command"] = ["/bin/bash", "-c", command]
    beside = [{"name": f"{name}-monitor", "image": "example.com/runtimecfg", "command": ["monitor"]}] if monitor else []
    spec = {"volumes": [{"name": "conf", "hostPath": {"path": folder}}], "containers": [container, *beside]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def keepalived(text: str, *, monitor: bool = False) -> dict[str, str]:
    start = f"/usr/sbin/keepalived -f {KEPT} --dont-fork"
    return {
        KEPT: text,
        "/etc/kubernetes/manifests/keepalived.yaml": pod("keepalived", "/etc/keepalived", start, monitor=monitor),
    }


def haproxy(text: str) -> dict[str, str]:
    start = "/usr/sbin/haproxy -W -db -f /etc/haproxy/haproxy.cfg"
    manifest = pod("haproxy", "/etc/haproxy", start, monitor=True)
    return {"/etc/haproxy/haproxy.cfg": text, "/etc/kubernetes/manifests/haproxy.yaml": manifest}


class Web:
    """Answers everything with a machine's name; `status` is whether it is well."""

    def __init__(self, name: str, address: str, port: int, *, tls: bool = False) -> None:
        self.name, self.address, self.port, self.status = name, address, port, 200
        self.answered = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None
        if self._context is not None:
            network.load_pair(self._context, PAIR.certificate, PAIR.key)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._answer, self.address, self.port, ssl=self._context)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (await reader.readline()).strip():
            pass
        head = f"HTTP/1.1 {self.status} X\r\nContent-Length: {len(self.name)}\r\nConnection: close\r\n\r\n"
        writer.write(f"{head}{self.name}".encode())
        writer.close()
        self.answered += 1


class Scene:
    """A site with machines that are made for the story."""

    def __init__(self, site: sites.Site) -> None:
        self.site = site
        self.address = str(site.networks[sites.DEFAULT_NETWORK][100])
        self.webs: dict[str, Web] = {}

    async def machine(
        self, name: str, contents: Mapping[str, str], *units: str, port: int = PORT, tls: bool = False
    ) -> instance.Instance:
        """A machine that is on, with these files, and with something on a port."""
        written = [
            {"path": path, "contents": {"source": f"data:;base64,{base64.b64encode(text.encode()).decode()}"}}
            for path, text in contents.items()
        ]
        services = [{"name": each, "enabled": True, "contents": "[Service]\n"} for each in ("kubelet.service", *units)]
        user_data = {"ignition": {"version": "3.2.0"}, "storage": {"files": written}, "systemd": {"units": services}}
        made = instance.Instance(self.site, name, json.dumps(user_data).encode(), boot_seconds=1.0)
        await made.power_on()
        await until(lambda: made.state == instance.RUNNING)
        await self.serve(made, port, tls=tls)
        return made

    def idle(self, contents: Mapping[str, str]) -> instance.Instance:
        """A machine that is on and has these files, on which nothing runs."""
        made = instance.Instance(self.site, "idle", b"")
        made.state = instance.RUNNING
        made.kept |= {path: text.encode() for path, text in contents.items()}
        return made

    async def serve(self, machine: instance.Instance, port: int = PORT, *, tls: bool = False) -> None:
        self.webs[machine.name] = Web(machine.name, machine.address, port, tls=tls)
        await machine.wire.serve("web", lambda: self.webs[machine.name])

    def holder(self) -> str:
        found = vrrp.link(self.site).holder(self.address)
        return "" if found is None else found.name

    async def held_by(self, name: str) -> None:
        await until(lambda: self.holder() == name, f"{name} never held it: {self.holder()}")

    async def asked(self, port: int = PORT, *, tls: bool = False) -> str:
        """Who answers behind the virtual address; nothing if nobody does."""
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            async with asyncio.timeout(5):
                reader, writer = await asyncio.open_connection(self.address, port, ssl=context)
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                whole = (await reader.read()).decode()
                writer.close()
        except OSError:
            return ""
        return whole.partition("\r\n\r\n")[2]

    async def answered_by(self, name: str, port: int = PORT, *, tls: bool = False) -> None:
        async def look() -> bool:
            return await self.asked(port, tls=tls) == name

        async with asyncio.timeout(10):
            while not await look():
                await asyncio.sleep(0.02)


async def until(look: Callable[[], bool], why: str = "it never came about", seconds: float = 10.0) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not look():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(why) from None


def console(machine: instance.Instance) -> str:
    return "\n".join(machine.console)
