"""A whole cluster for long stories: all controllers as `assembly` puts them together, on one thread and one clock.

The API is in memory, the platform is a yard behind a password, and kubelets report for what is up there. A death of the
controllers is an exception that nothing catches: all that they knew goes with it, what they did stays. Controllers that
are stopped in the middle of a call wait while others lead, and then go on with all that they believed before.
"""

from __future__ import annotations

import base64
import dataclasses
import itertools
import random
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from moorage.engine import clock as clocks
from moorage.engine import errors as platform_errors
from moorage.machines import assembly, nodelink, objects
from moorage.machines.runtime import controller, errors, kinds
from tests.unit.machines import memory, voyage_api, yard
from tests.unit.machines.berth import cluster_credentials
from tests.unit.machines.berth import machine as berths
from tests.unit.machines.voyage_api import Cache, Killed

Object = dict[str, Any]

PLACE: Final = assembly.NAMESPACE
INFRA: Final = "harbour-x7k2p"
SET: Final = f"{INFRA}-worker-0"
LABELS: Final = {"machine.openshift.io/cluster-api-machineset": SET}
#: Somebody else's, on the same platform.
FOREIGN: Final = yard.Vessel("i-0", f"{SET}-bcdfg", f"{INFRA}0", b"", 0.0, 0, "up", addresses=("10.0.0.200",))
#: How long a kubelet takes to report, and until it is missed.
BOOT, MISSED = 60.0, 40.0
#: How often is looked whether anything has happened outside of the cluster.
TICK: Final = 15.0

_numbers = itertools.count(1)


class Leadership:
    """Whether the controllers of one life may act: they ask before each call that changes something."""

    def __init__(self) -> None:
        self.lost = threading.Event()

    def check(self) -> None:
        if self.lost.is_set():
            raise errors.NotLeader("another leads")


@dataclasses.dataclass
class Lives:
    """One life of the controllers: it ends when they are killed."""

    caches: assembly.Caches
    controllers: list[controller.Controller]
    leading: Leadership

    def each_cache(self) -> list[Cache]:
        return [cast("Cache", each) for each in self.caches]


class Voyage:
    """The cluster. ``seed`` decides who works first where that is open."""

    def __init__(self, replicas: int, seed: int = 0) -> None:
        self.clock = clocks.ManualClock()
        self.api = voyage_api.Api(self.clock)
        self.fired = self.api.fired
        self.name = f"berth-{next(_numbers)}"
        self.yard = berths.BERTHS[self.name] = berths.Berths(self.clock, "first", self._uid, self.fired)
        self.yard.instances.append(dataclasses.replace(FOREIGN))
        self.api.up = lambda: {each.name for each in self.ours() if each.state == "up"}
        self.api.passed = self._passed
        self.yard.before = self._called
        self._stop: tuple[str, float] | None = None
        self._chance = random.Random(seed)
        self.deaths = 0
        self._hidden: dict[str, float] = {}
        self._missed: dict[str, float] = {}
        self._furnish(replicas)
        self.life = self._born()

    def end(self) -> None:
        del berths.BERTHS[self.name]

    def _furnish(self, replicas: int) -> None:
        self._secret("worker-user-data", {"userData": "{pointer}"})
        self.rotate("first")
        spec = {"providerSpec": {"value": {"userDataSecret": {"name": "worker-user-data"}}}}
        labels = {**LABELS, objects.CLUSTER_LABEL: INFRA, objects.ROLE_LABEL: "worker"}
        self.api.put(
            kinds.MACHINE_SET,
            {
                "apiVersion": kinds.MACHINE_SET.api_version,
                "kind": "MachineSet",
                "metadata": {"name": SET, "namespace": PLACE, "generation": 1},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": dict(LABELS)},
                    "template": {"metadata": {"labels": labels}, "spec": spec},
                },
            },
        )
        sick = [{"type": "Ready", "status": status, "timeout": "5m"} for status in ("False", "Unknown")]
        self.api.put(
            kinds.MACHINE_HEALTH_CHECK,
            {
                "apiVersion": kinds.MACHINE_HEALTH_CHECK.api_version,
                "kind": "MachineHealthCheck",
                "metadata": {"name": "workers", "namespace": PLACE, "generation": 1},
                "spec": {"selector": {"matchLabels": dict(LABELS)}, "unhealthyConditions": sick},
            },
        )

    def _secret(self, name: str, values: Mapping[str, str]) -> None:
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        self.api.put(kinds.SECRET, {"metadata": {"name": name, "namespace": PLACE}, "data": data})

    # -- the controllers -------------------------------------------------------------------------------------------

    def _born(self) -> Lives:
        """The controllers as a new process has them; see `assembly.Assembly`, whose wiring this is."""
        caches = self._caches()
        given = assembly.caches
        assembly.caches = lambda _client, _namespace: caches
        try:
            made = assembly.Assembly(
                cast("Any", self.api),
                assembly.Settings("berth", INFRA),
                elect=False,
                environ={"BERTH_NAME": self.name},
            )
        finally:
            assembly.caches = given
        leading = made.manager._leading = Leadership()
        return Lives(caches, made.manager._controllers, leading)

    def _caches(self) -> assembly.Caches:
        kept = (kinds.MACHINE, kinds.MACHINE_SET, kinds.MACHINE_HEALTH_CHECK, kinds.NODE, kinds.CSR)
        found = assembly.Caches(*(cast("Any", Cache(self.api, kind, self.clock)) for kind in kept))
        nodelink.index(found.machines)
        nodelink.index_nodes(found.nodes)
        return found

    def killed(self) -> None:
        """The process is gone, and another one begins."""
        self.deaths += 1
        self.life = self._born()

    def live(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass, with all that happens in it; True as soon as something is so."""
        end = self.clock.now() + seconds
        while not until():
            self._kubelets()
            for cache in self.life.each_cache():
                cache.step()
            if self._work():
                continue
            now = self.clock.now()
            if now >= end:
                return False
            moments = [each.queue._order.next_moment() for each in self.life.controllers]
            soonest = min([end, now + TICK, *(moment for moment in moments if moment is not None)])
            self.clock.advance(max(0.001, soonest - now))
        return True

    def _work(self) -> bool:
        """Let each controller look at one key; False if none has any."""
        life = self.life
        order = list(life.controllers)
        self._chance.shuffle(order)
        worked = False
        for each in order:
            key = each.queue.get(patience=0.0)
            if key is None:
                continue
            worked = True
            try:
                each.step(key)
            except Killed:
                if self.life is life:
                    self.killed()
                return True
            each.queue.done(key)
        # One that was stopped meanwhile has ended its round, by what it knew before; now it knows, and ends.
        return worked or self.life is not life

    # -- a leader that is stopped for longer than its lease lasts --------------------------------------------------

    def stop_at(self, moment: str, seconds: float) -> None:
        """Stop the leader at the next such moment: another one leads for a while, then it goes on where it was.

        The moments are writes to the API that have just been made, and calls to the platform that are about to be sent
        (its own checks are behind them).
        """
        self._stop = (moment, seconds)

    @property
    def is_to_stop(self) -> bool:
        return self._stop is not None

    def _passed(self, moment: str) -> bool:
        if self._stop is None or self._stop[0] != moment:
            return False
        (_, seconds), self._stop = self._stop, None
        self.fired[f"stopped: {moment}"] += 1
        self.life.leading.lost.set()
        self.life = self._born()
        self.live(seconds)
        return True

    def _called(self, call: str) -> None:
        verb, name = call.split()
        whose = self._uid(name)
        if not self._passed(f"platform {verb}") or verb != "create":
            return
        # What was checked before a lease ended and arrives after another has led is beyond the reach of any check.
        if self.yard.of(name):
            # Platforms refuse a second instance of one name. The yard does not, to find out everybody else.
            self.fired["platform: refused by name"] += 1
            raise platform_errors.AlreadyExists(f"there is an instance {name}")
        if self._uid(name) != whose:
            # Its machine has ended meanwhile, and there is none of that name.
            self.fired["platform: too late"] += 1

    # -- machines that boot, and report ----------------------------------------------------------------------------

    def _kubelets(self) -> None:
        now = self.clock.now()
        up = {each.name: each for each in self.ours() if each.state == "up" and now - each.born >= BOOT}
        known = {each["metadata"]["name"]: each["status"]["conditions"][0]["status"] for each in self.nodes()}
        for name, vessel in up.items():
            self._missed.pop(name, None)
            if name not in known:
                address = [{"type": "InternalIP", "address": vessel.addresses[0]}]
                self.api.put(kinds.NODE, {"metadata": {"name": name}, "spec": {}, "status": {"addresses": address}})
                pod = {"metadata": {"name": f"app-on-{name}", "namespace": "apps"}, "spec": {"nodeName": name}}
                self.api.put(kinds.POD, pod)
            if known.get(name) != "True":
                self._report(name, "True")
        for name, ready in known.items():
            if name not in up and now - self._missed.setdefault(name, now) >= MISSED and ready != "Unknown":
                self._report(name, "Unknown")
        for place, pod in list(self.api.objects.items()):
            if place[0] == str(kinds.POD) and pod["spec"]["nodeName"] not in {*up, *known}:
                del self.api.objects[place]

    def _report(self, name: str, ready: str) -> None:
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": memory.stamp(self.clock.wall())}
        self.api.change(kinds.NODE, name, "", lambda found: found["status"].update(conditions=[condition]))

    # -- what people and fate do -----------------------------------------------------------------------------------

    def scale(self, replicas: int) -> None:
        def change(found: Object) -> None:
            found["spec"]["replicas"] = replicas
            found["metadata"]["generation"] += 1

        if replicas != self.replicas:
            self.api.change(kinds.MACHINE_SET, SET, PLACE, change)

    def delete(self, name: str) -> None:
        self.api.by_hand(lambda: self.api.delete(kinds.MACHINE, name, PLACE))

    def sink(self, name: str) -> None:
        """An instance is lost. If nobody has written down yet that it was there, its machine may get another."""
        known = objects.provider_id(self.api.have(kinds.MACHINE, name, PLACE) or {})
        for each in self.yard.of(name):
            if not known and each.id in self.yard.owners:
                self.yard.made[self.yard.owners.pop(each.id)] -= 1
                self.fired["platform: lost unseen"] += 1
        self.yard.sink(name)

    def expire(self) -> None:
        """The platform's password is another one from now on, and nobody has said so to the cluster."""
        self.yard.password = f"password-{next(_numbers)}"

    def rotate(self, password: str = "") -> None:
        """The cluster is told the password of the moment."""
        self._secret(cluster_credentials.SECRET, {"password": password or self.yard.password})

    def hide(self, name: str, seconds: float) -> bool:
        """Lists miss an instance for less time than it takes to believe them, and not twice in a row.

        It is one that the controllers know: they have written its id down.
        """
        machine = self.api.have(kinds.MACHINE, name, PLACE) or {}
        if self.clock.now() < self._hidden.get(name, 0.0) or not objects.provider_id(machine):
            return False
        self._hidden[name] = self.clock.now() + 300.0
        self.yard.hide(name, seconds)
        return True

    def forget_half_built(self, failure: BaseException, *, after: bool) -> bool:
        """One more is made and nobody hears of it; completing it fails, and then lists miss it for a long while.

        It was asked to be completed, so it was seen: whoever goes on must know of it.
        """
        known = set(self.afloat())
        self.yard.lag = 0.0
        self.yard.fail("create", cast("Exception", Killed()), after=True)
        self.scale(len(self.active()) + 1)
        if not self.live(60.0, lambda: bool(set(self.afloat()) - known)):
            return False
        name = min(set(self.afloat()) - known)
        self.yard.fail("update", cast("Exception", failure), after=after, times=2, name=name)
        if not self.live(200.0, lambda: f"update {name}" in self.yard.calls[-5:]):
            return False
        self.yard.hide(name, 100.0)
        return True

    def calm(self) -> None:
        """From here on nothing goes wrong any more."""
        self.api.calm()
        self.yard._orders.clear()
        self._stop = None
        self.yard.lag = 0.0
        self.rotate()

    # -- what there is ---------------------------------------------------------------------------------------------

    @property
    def replicas(self) -> int:
        found = self.api.have(kinds.MACHINE_SET, SET, PLACE)
        assert found is not None
        return int(found["spec"]["replicas"])

    def machines(self) -> list[Object]:
        return [each for (kind, _, _), each in self.api.objects.items() if kind == str(kinds.MACHINE)]

    def _uid(self, name: str) -> str:
        found = self.api.have(kinds.MACHINE, name, PLACE)
        return f"{name} {objects.uid(found)}" if found is not None else f"{name}, which is no machine"

    def nodes(self) -> list[Object]:
        return [each for (kind, _, _), each in self.api.objects.items() if kind == str(kinds.NODE)]

    def active(self) -> list[str]:
        return [objects.name(each) for each in self.machines() if not objects.is_deleted(each)]

    def running(self) -> list[str]:
        found = self.machines()
        return sorted(objects.name(each) for each in found if objects.status(each).get("phase") == "Running")

    def ours(self) -> list[yard.Vessel]:
        return [each for each in self.yard.instances if each.infra_id == INFRA]

    def afloat(self) -> list[str]:
        """Every instance there is, by its machine's name."""
        return sorted(each.name for each in self.ours())

    def broken(self) -> list[str]:
        """What was done that must never be, whatever goes wrong."""
        found = [f"{whose} had {count} instances" for whose, count in self.yard.made.items() if count > 1]
        wanted = {self._uid(name) for name in self.active()}
        found += [
            f"the instance of {whose} is removed, and that is wanted" for whose in self.yard.leaving_owners() & wanted
        ]
        if FOREIGN not in self.yard.instances:
            found.append("somebody else's instance was touched")
        return [*found, *self.api.broken]

    def at_rest(self) -> bool:
        """Whether everything is as it is wanted: as many machines, instances and nodes, and the same ones."""
        names = sorted(objects.name(each) for each in self.machines())
        nodes = sorted(each["metadata"]["name"] for each in self.nodes())
        return len(names) == self.replicas and names == self.running() == self.afloat() == nodes

    def told(self) -> str:
        """How it is, for whoever has to find out why it is not as it should be."""
        lines = self.broken()
        lines += [f"replicas {self.replicas} deaths {self.deaths} at {self.clock.now():.0f}", f"afloat {self.afloat()}"]
        lines += [
            f"{objects.name(each)} {each['metadata'].get('deletionTimestamp')} {each.get('status')}"
            for each in self.machines()
        ]
        lines += [f"node {each['metadata']} {each['status']}" for each in self.nodes()]
        return "\n".join([*lines, *self.yard.calls[-30:], *self.api.calls[-30:]])
