"""Many looks at once are one list; what is not on it, or may have changed since, is looked at by itself."""

from __future__ import annotations

import dataclasses
import threading
import uuid
from collections.abc import Callable
from concurrent import futures
from typing import Any, cast

import pytest
from ovirtsdk4 import types

from moorage.engine import clock as clocks
from moorage.engine import errors
from moorage.lab.ovirt import guest, shape
from moorage.platforms import contract
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import machine, names, roll
from tests.unit.platforms_ovirt import engine_place
from tests.unit.platforms_ovirt.engine_place import INFRA

MANY = 40


@pytest.fixture
def place(place: engine_place.Place, monkeypatch: pytest.MonkeyPatch) -> engine_place.Place:
    """An engine whose guests, which are none of the site's, tell an address all the same.

    Its time runs so fast that a word would be old before it is here: words are good for ever.
    """
    place.tagged()
    for name in ("SETTLED", "FRESH", "LONGEST", "_LATELY"):
        monkeypatch.setattr(roll, name, 1e9)
    monkeypatch.setattr(roll, "PAGE", 25)
    monkeypatch.setattr(guest, "devices", lambda _engine, vm, _machine, _nics: told(vm))
    return place


def told(vm: dict[str, Any]) -> list[dict[str, Any]]:
    number = vm["name"].rpartition("-")[2]
    names = {"br-ex": f"192.0.2.{number}", "ovn-k8s-mp0": "10.128.0.2"} if number.isdigit() else {}
    return [
        {"id": str(uuid.uuid4()), "name": name, "type": "network", "ips": [{"address": address, "version": "v4"}]}
        for name, address in names.items()
    ]


def fleet(place: engine_place.Place, count: int = MANY) -> list[contract.Machine]:
    """Machines that run and have their tags."""
    tag = place.id("tags", INFRA)

    def add() -> list[str]:
        engine = place.running.engine
        host = engine.inventory.all("hosts")[0]["id"]
        return [
            shape.add_vm(engine, f"{INFRA}-worker-{number}", names.mark(INFRA), host=host, tags=[tag])
            for number in range(count)
        ]

    plain = place.machine()
    return [
        dataclasses.replace(plain, name=f"{INFRA}-worker-{number}", provider_id=names.provider_id(each))
        for number, each in enumerate(place.running.tell(add))
    ]


def lists(place: engine_place.Place, since: int) -> int:
    return sum(call == "GET /vms" for call in place.calls(since))


def called(place: engine_place.Place, machines: list[contract.Machine]) -> int:
    """Ask after all, so that the roll is called; how many calls had been made then."""
    for each in machines:
        place.actuator.exists(each)
    return len(place.traced)


# -- sharing -----------------------------------------------------------------------------------------------------------


def test_a_fleet_is_asked_after_in_a_few_calls_and_found_as_if_one_by_one(place: engine_place.Place) -> None:
    machines = fleet(place)
    one_by_one = [machine.Actuator(place.client).exists(each) for each in machines]
    before = len(place.traced)

    found = [place.actuator.exists(each) for each in machines]

    assert found == one_by_one
    assert all(each is not None and each.ready and each.addresses and each.type for each in found)
    assert lists(place, before) == 2
    assert len(place.calls(before)) == 12, "ten looks, then a list of two pages"


def test_the_roll_tells_where_a_vm_is(place: engine_place.Place) -> None:
    machines = fleet(place)
    called(place, machines)
    spec = {**machines[-1].provider_spec, "cluster_id": str(uuid.uuid4())}

    assert place.actuator.place(dataclasses.replace(machines[-1], provider_spec=spec)).zone == "Default"


def test_threads_that_ask_at_once_wait_for_one_list(place: engine_place.Place) -> None:
    machines = fleet(place)
    before = called(place, machines[:9])
    place.fault("delay", "GET", "/**/vms", seconds=30)

    with futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(place.actuator.exists, machines))

    assert all(found)
    assert lists(place, before) == 2
    assert len(place.calls(before)) < 20, "those that were on their way, and the list"


def test_few_machines_are_looked_at_one_by_one(place: engine_place.Place) -> None:
    machines = fleet(place)[:9]
    before = len(place.traced)

    called(place, machines)

    assert lists(place, before) == 0


# -- not believing -----------------------------------------------------------------------------------------------------


def test_who_is_not_on_the_roll_is_looked_for(place: engine_place.Place) -> None:
    machines = fleet(place)
    called(place, machines)
    late_id = names.provider_id(place.foreign_vm("late", names.mark(INFRA)))
    late = dataclasses.replace(machines[0], name="late", provider_id=late_id)
    gone = dataclasses.replace(machines[0], name="gone", provider_id=names.provider_id(str(uuid.uuid4())))

    assert place.actuator.exists(late) is not None
    assert place.actuator.exists(gone) is None


def test_what_somebody_else_owns_is_not_ours_by_being_listed(place: engine_place.Place) -> None:
    machines = fleet(place)
    other = place.foreign_vm("other", f"moorage: {INFRA}er")
    called(place, machines)

    with pytest.raises(errors.Conflict):
        place.actuator.exists(dataclasses.replace(machines[0], provider_id=names.provider_id(other)))


def test_what_was_done_to_a_vm_shows_at_once(place: engine_place.Place) -> None:
    machines = fleet(place)
    called(place, machines)

    place.actuator.delete(machines[20])

    found = place.actuator.exists(machines[20])
    assert found is not None
    assert found.state in ("powering_down", "down")


def test_a_machine_is_completed_by_how_it_is_now(place: engine_place.Place) -> None:
    machines = fleet(place)
    called(place, machines)
    place.change("vms", machines[30].name, _tags=[])

    place.actuator.update(machines[30])

    vm = place.doc("vms", machines[30].name)
    assert vm is not None
    assert vm["_tags"] == [place.id("tags", INFRA)]


def test_an_engine_that_cannot_list_is_asked_after_each(place: engine_place.Place) -> None:
    machines = fleet(place, 30)
    before = len(place.traced)
    place.fault("fail", "GET", "/ovirt-engine/api/vms", status=500, remaining=None)

    found = [place.actuator.exists(each) for each in machines]

    assert all(found)
    assert lists(place, before) == 1


# -- on a clock that is set by hand ------------------------------------------------------------------------------------


class Counted:
    """An engine of which it is only counted how it is asked; each call takes a while."""

    def __init__(self, vms: list[types.Vm], *, look: float = 0.1, page: float = 1.0) -> None:
        self.clock = clocks.ManualClock()
        self.vms = {str(vm.id): vm for vm in vms}
        self.looks: list[str] = []
        self.pages = 0
        self._look, self._page = look, page
        self.during: Callable[[], None] = lambda: None

    def look(self, what: str, _use: object) -> types.Vm | None:
        self.clock.advance(self._look)
        self.looks.append(what)
        return self.vms.get(what.rpartition(" ")[2])

    def call(self, _what: str, use: Callable[[Any], Any]) -> Any:
        self.clock.advance(self._page)
        self.during()
        self.pages += 1
        return use(self)

    def vms_service(self) -> Counted:
        return self

    def list(self, *, search: str, max: int, follow: str) -> list[types.Vm]:
        assert follow
        number = int(search.rpartition(" ")[2])
        return [*self.vms.values()][(number - 1) * max : number * max]


def vm(number: int, status: types.VmStatus = types.VmStatus.UP, **more: Any) -> types.Vm:
    device = types.ReportedDevice(name="ens3", ips=[types.Ip(address="192.0.2.1")])
    told: dict[str, Any] = {"tags": [types.Tag(name=INFRA)], "reported_devices": [device], **more}
    return types.Vm(id=f"vm-{number}", name=f"vm-{number}", description=names.mark(INFRA), status=status, **told)


def ask(looks: roll.Roll, numbers: range) -> list[Any]:
    return [looks.look(f"vm-{number}", INFRA) for number in numbers]


def of(engine: Counted) -> roll.Roll:
    return roll.Roll(cast("clients.Client", engine))


@pytest.mark.parametrize(
    ("seen", "good_for"),
    [
        (vm(50), roll.SETTLED),
        (vm(50, reported_devices=[]), roll.FRESH),
        (vm(50, tags=[]), roll.FRESH),
        (vm(50, types.VmStatus.IMAGE_LOCKED), roll.FRESH),
        (vm(50, types.VmStatus.DOWN), roll.FRESH),
    ],
)
def test_for_how_long_a_word_is_good(seen: types.Vm, good_for: float) -> None:
    engine = Counted([*(vm(number) for number in range(50)), seen])
    looks = of(engine)
    ask(looks, range(11))
    at = engine.clock.now() - 1.0

    engine.clock.advance(at + good_for - engine.clock.now() - 0.5)
    before = len(engine.looks)
    assert looks.look("vm-50", INFRA).id == "vm-50"
    assert len(engine.looks) == before
    engine.clock.advance(1.0)
    assert looks.look("vm-50", INFRA) is seen, "a look of its own"


def test_a_list_is_made_when_as_much_time_went_into_looks() -> None:
    engine = Counted([vm(number) for number in range(2400)], page=1.2)
    looks = of(engine)
    ask(looks, range(2400))
    assert (len(engine.looks), engine.pages) == (10, 10), "nobody knew what a list takes: twelve seconds"
    engine.clock.advance(600)

    ask(looks, range(2400))

    assert (len(engine.looks), engine.pages) == (10 + 120, 20)


@pytest.mark.parametrize(("page", "good_for"), [(100.0, 200.0), (180.0, roll.LONGEST)])
def test_where_lists_take_long_they_are_good_for_longer(page: float, good_for: float) -> None:
    engine = Counted([vm(number) for number in range(50)], page=page)
    looks = of(engine)
    ask(looks, range(11))
    at = engine.clock.now() - page

    engine.clock.advance(at + good_for - engine.clock.now() - 0.5)
    assert looks.look("vm-40", INFRA) is not engine.vms["vm-40"]
    engine.clock.advance(1.0)
    assert looks.look("vm-40", INFRA) is engine.vms["vm-40"], "a look of its own"


def test_looks_now_and_then_never_add_up_to_a_list() -> None:
    engine = Counted([vm(number) for number in range(100)])
    looks = of(engine)

    for number in range(100):
        ask(looks, range(number, number + 1))
        engine.clock.advance(10)

    assert (len(engine.looks), engine.pages) == (100, 0)


def test_what_was_asked_for_before_a_change_is_no_word_of_it() -> None:
    engine = Counted([vm(number) for number in range(50)])
    looks = of(engine)
    engine.during = lambda: looks.changed("vm-20")
    ask(looks, range(11))
    before = len(engine.looks)

    ask(looks, range(20, 22))

    assert engine.looks[before:] == ["look at VM vm-20"]


def test_who_asks_while_a_list_is_made_waits_for_it() -> None:
    engine = Counted([vm(number) for number in range(50)])
    looks, found = of(engine), list[Any]()
    other = threading.Thread(target=lambda: found.append(looks.look("vm-30", INFRA)))

    def ask_meanwhile() -> None:
        other.start()
        # Long enough for a look of its own, should it make one.
        other.join(0.3)

    engine.during = ask_meanwhile
    ask(looks, range(11))
    other.join(20)

    assert [each.id for each in found] == ["vm-30"]
    assert "look at VM vm-30" not in engine.looks
