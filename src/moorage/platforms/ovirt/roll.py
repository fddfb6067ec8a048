"""Looks at VMs, shared: whoever keeps thousands of machines asks after all of them at once, now and then.

One by one that is a call for each; a list tells hundreds of them in one. The roll is called as soon as the looks of
the last minute have taken as long as it would, so that nobody who asks after one VM has ten thousand listed. Only what
it says of those who are there is believed, and not for long: who is not on it is looked for by itself, as ever.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import threading
from collections.abc import Iterator
from typing import Any, Final

from moorage.engine import errors
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import machine_steps as steps
from moorage.platforms.ovirt import names, vms

#: Cloud seconds for which a word of the roll is good: of a VM that runs and has told its addresses, and of any other,
#: of which somebody waits to hear something new. The former is believed for longer where lists take long, up to a most.
SETTLED: Final = 120.0
FRESH: Final = 20.0
LONGEST: Final = 300.0
#: How many VMs one call tells of: an engine searches through all of them for every page.
PAGE: Final = 250
#: Looks of so many cloud seconds count towards a list, and there must be more than a few.
_LATELY: Final = 60.0
_FEW: Final = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Ip:
    address: str


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A network interface as its guest reports it; see `Sighting`."""

    name: str
    ips: tuple[Ip, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Sighting:
    """What a list tells of a VM, under the SDK's names, in a tenth of its space. ``at`` is when it was asked for."""

    at: float
    id: str
    name: str
    description: str
    status: Any
    tags: tuple[Any, ...]
    reported_devices: tuple[Device, ...]
    cpu: Any
    memory: int
    cluster: Any

    @property
    def is_settled(self) -> bool:
        return vms.status(self) == "up" and bool(self.tags and self.reported_devices)


class Roll:
    """Looks at VMs by their ids; shared by threads."""

    def __init__(self, client: clients.Client) -> None:
        self._client = client
        self._clock = client.clock
        # The one is held by who has the list made; the other guards what is noted here.
        self._calling = threading.Lock()
        self._turn = threading.Lock()
        self._seen: dict[str, Sighting] = {}
        #: When something was done to a VM: what was seen before says nothing any more.
        self._changed: dict[str, float] = {}
        #: When a VM was looked at by itself, and for how long that took.
        self._looks: collections.deque[tuple[float, float]] = collections.deque()
        self._price = 0.0
        self._parts: dict[tuple[object, ...], Any] = {}

    def look(self, vm_id: str, infra_id: str) -> Any | None:
        """The VM of that id, as it was a moment ago; None if there surely is none."""
        found = self._known(vm_id)
        if found is None and (self._calling.locked() or self._is_worthwhile()):
            with self._calling:
                # Whoever waited for another's list has it by now.
                found = self._known(vm_id)
                if found is None and self._is_worthwhile():
                    self._call(infra_id)
                    found = self._known(vm_id)
        return self._look(vm_id) if found is None else found

    def changed(self, vm_id: str) -> None:
        """Something is being done to a VM."""
        with self._turn:
            self._seen.pop(vm_id, None)
            self._changed[vm_id] = self._clock.now()

    def _known(self, vm_id: str) -> Sighting | None:
        with self._turn:
            found = self._seen.get(vm_id)
        return found if found is not None and self._is_good(found, self._clock.now()) else None

    def _is_good(self, found: Sighting, now: float) -> bool:
        settled = min(LONGEST, max(SETTLED, 2 * self._price))
        return now - found.at < (settled if found.is_settled else FRESH)

    def _look(self, vm_id: str) -> Any | None:
        began = self._clock.now()
        try:
            return vms.look(self._client, vm_id, vms.FOLLOW_STATE)
        finally:
            with self._turn:
                self._looks.append((began, self._clock.now() - began))

    def _is_worthwhile(self) -> bool:
        with self._turn:
            while self._looks and self._clock.now() - self._looks[0][0] > _LATELY:
                self._looks.popleft()
            return len(self._looks) >= _FEW and sum(took for _, took in self._looks) >= self._price

    def _call(self, infra_id: str) -> None:
        began = self._clock.now()
        with self._turn:
            self._looks.clear()
            self._seen = {vm_id: each for vm_id, each in self._seen.items() if self._is_good(each, began)}
            self._changed = {vm_id: at for vm_id, at in self._changed.items() if at >= began}
        try:
            for page in self._pages(infra_id):
                self._note(page)
        except errors.PlatformFailure:
            # What an engine cannot list may yet be looked at one by one; it is not asked for a list again soon.
            self._price = max(LONGEST, self._clock.now() - began)
        else:
            self._price = self._clock.now() - began
        self._parts = {}

    def _pages(self, infra_id: str) -> Iterator[list[Sighting]]:
        """All VMs of a cluster, those that are half built included, which bear the mark but not the tag."""
        tag, mark = (clients.search_value(each) for each in (names.tag(infra_id), names.mark(infra_id)))
        for number in itertools.count(1):
            at = self._clock.now()
            found = self._page(infra_id, f"tag={tag} or description={mark} page {number}")
            yield [self._sighting(vm, at) for vm in found]
            if len(found) < PAGE:
                return

    def _page(self, infra_id: str, search: str) -> list[Any]:
        return self._client.call(
            f"list the VMs of {infra_id}",
            lambda api: list(api.vms_service().list(search=search, max=PAGE, follow=vms.FOLLOW_STATE)),
        )

    def _note(self, page: list[Sighting]) -> None:
        with self._turn:
            for each in page:
                if each.at > self._changed.get(each.id, float("-inf")):
                    self._seen[each.id] = each

    def _sighting(self, vm: Any, at: float) -> Sighting:
        devices = tuple(
            Device(self._once((each.name,), each.name), tuple(Ip(ip.address) for ip in each.ips or ()))
            for each in vm.reported_devices or ()
            if steps.is_own(each)
        )
        tags = tuple(self._once(("tag", tag.name), tag) for tag in vm.tags or ())
        topology = vm.cpu.topology if vm.cpu is not None else None
        made_of = (topology.cores, topology.sockets, topology.threads) if topology is not None else ()
        cpu = self._once(("cpu", *made_of), vm.cpu)
        cluster = self._once(("cluster", vm.cluster.id if vm.cluster is not None else ""), vm.cluster)
        mark = self._once((vm.description,), vm.description)
        return Sighting(at, str(vm.id), vm.name, mark, vm.status, tags, devices, cpu, vm.memory, cluster)

    def _once(self, key: tuple[object, ...], part: Any) -> Any:
        """VMs of a cluster are much alike: what they have in common is kept once."""
        return self._parts.setdefault(key, part)
