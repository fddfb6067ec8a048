"""A machine of the datacentre: it has an address, user data and a console, and can be switched on, off and cut off.

Switched on, it waits for its firmware, does what Ignition would do with its user data (on its first boot only: the disk
stays), and then becomes what the units on its disk say: a bootstrap node, a node with a kubelet, or an idle machine.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Mapping, Sequence

from moorage import lab
from moorage.lab import site as sites
from moorage.lab.nodes import ignition, network

OFF, BOOTING, RUNNING, FAILED = "off", "booting", "running", "failed"

BOOT_SECONDS = 45.0
_MOST_LINES = 2000
_ANNOTATIONS = "/etc/machine-config-daemon/node-annotations.json"

_log = logging.getLogger(__name__)


class Instance:
    """One machine. Its disk (`provisioned`, `kept`) survives reboots; what runs on it does not."""

    def __init__(
        self,
        site: sites.Site,
        name: str,
        user_data: bytes,
        address: str = "",
        *,
        network_name: str = sites.DEFAULT_NETWORK,
        boot_seconds: float = BOOT_SECONDS,
    ) -> None:
        self.site = site
        self.clock = site.clock
        self.name = name
        self.user_data = user_data
        self.network_name = network_name
        self.address = site.allocate(address, network_name)
        self.wire = network.Wire(site, self.address)
        self.state = OFF
        self.console: list[str] = []
        self.provisioned: ignition.Provisioned | None = None
        #: What programs on the machine wrote to its disk, by path.
        self.kept: dict[str, bytes] = {}
        self._boot_seconds = boot_seconds
        self._life: asyncio.Task[None] | None = None
        self._switching = asyncio.Lock()
        site.house(self)

    @property
    def on(self) -> bool:
        return self.state in (BOOTING, RUNNING)

    @property
    def reachable(self) -> bool:
        """Whether others can talk to it: it runs, and its line is not cut."""
        return self.state == RUNNING and self.wire.connected

    @property
    def role(self) -> str:
        """What its disk makes of it: bootstrap, the name of its machine-config pool, or nothing."""
        if self.provisioned is None:
            return ""
        if "bootkube.service" in self.provisioned.units:
            return "bootstrap"
        annotations = self.provisioned.files.get(_ANNOTATIONS)
        try:
            found = json.loads(annotations.content) if annotations is not None else {}
            config = str(found["machineconfiguration.openshift.io/currentConfig"])
        except (ValueError, LookupError, TypeError):
            return ""
        return config.removeprefix("rendered-").rpartition("-")[0]

    def say(self, line: str) -> None:
        """Write a line on the console."""
        self.console.append(f"{self.clock.wall():%Y-%m-%dT%H:%M:%SZ} {line}")
        if len(self.console) > _MOST_LINES:
            del self.console[: _MOST_LINES // 2]

    async def power_on(self) -> None:
        """Switch it on; on already, nothing changes."""
        async with self._switching:
            await self._on()

    async def power_off(self) -> None:
        """Cut the power: whatever ran is gone at once, without a word to anybody."""
        async with self._switching:
            await self._off()

    async def reboot(self) -> None:
        async with self._switching:
            await self._off()
            await self._on()

    async def partition(self) -> None:
        """Cut its network line; it goes on running."""
        self.say("network: link is down")
        await self.wire.partition()

    async def heal(self) -> None:
        self.say("network: link is up")
        await self.wire.heal()

    async def delete(self) -> None:
        """Remove it and its disk; its address is free again."""
        async with self._switching:
            await self._off()
            self.site.evict(self)

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "address": self.address,
            "state": self.state,
            "connected": self.wire.connected,
            "role": self.role,
            "services": sorted(self.wire.listening),
        }

    async def _on(self) -> None:
        if self.site.instances.get(self.name) is not self:
            raise sites.SiteRefused(f"machine {self.name} is gone", remedy="make a new one")
        if not self.on:
            await self.wire.open()
            self.state = BOOTING
            self._life = asyncio.get_running_loop().create_task(self._live(), name=f"machine {self.name}")

    async def _off(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
        await self.wire.close()
        if self.state != OFF:
            self.say("power off")
        self.state = OFF

    async def _live(self) -> None:
        try:
            await lab.sleep(self.clock, self._boot_seconds)
            if self.provisioned is None:
                self.provisioned = await ignition.provision(self.user_data, self._fetch, self.say, clock=self.clock)
            self.state = RUNNING
            from moorage.lab.nodes import roles

            await roles.run(self)
        except ignition.IgnitionError as problem:
            self.say(f"ignition: {problem}; entering emergency mode")
            self.state = FAILED
        except Exception:  # noqa: BLE001 - told where it will be looked for
            # A defect of the lab must be seen as one, not as a machine that takes its time.
            _log.exception("machine %s", self.name)
            self.say("kernel panic - the lab has a defect: see its log")
            self.state = FAILED
            await self.wire.close()

    async def _fetch(self, url: str, headers: Mapping[str, str], authorities: Sequence[str]) -> network.Reply:
        tls: ssl.SSLContext | None = network.trusting("\n".join(authorities)) if url.startswith("https:") else None
        return await self.wire.request("GET", url, headers=headers, tls=tls)
