"""The story of controllers that are killed (-9) at calls to the platform; how many of them is the teller's choice.

Each place is a machine of its own in one cluster. There is one worker, so that a death which one of them brings about
meets no other in the middle of a call, where it would have to die too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.machines import mooring, pier_side

#: Real seconds for which a new instance is not seen: longer than a life takes to begin, and with a call that is late
#: still less than an instance is waited for.
LAG: Final = 1.2
#: Cloud seconds in a real one: an instance is waited for for six real ones, of which a busy machine may take a few.
SPEED: Final = 10.0
#: Which moments of a call, given by its verb and number, to die at.
Choice = Callable[[str, int], tuple[str, ...]]


def everywhere(_verb: str, _number: int) -> tuple[str, ...]:
    return pier_side.MOMENTS


def sample(verb: str, number: int) -> tuple[str, ...]:
    """All of the calls that ask for an instance and for its end, and the worst of the others."""
    return pier_side.MOMENTS if verb in ("create", "delete") and number == 1 else ("done",)


def tell(moored: mooring.Mooring, plain: str, choice: Choice) -> None:
    """No death makes an instance twice or leaves one behind; ``plain`` is a name for a machine that nobody dies of."""
    pier = moored.pier
    with moored.controllers("lives", "--no-leader-elect", "--workers=1", program="tests.machines.lives"):
        made, removed = _watched(moored, plain)
        assert {call.verb for call in made} == {"exists", "create", "update"}
        assert len(removed) >= 2

        while_made, while_removed = _plan(pier, made, choice), _plan(pier, removed, choice)
        everyone = [*while_made, *while_removed]
        moored.add(*everyone)
        moored.have("Provisioned", *everyone)
        assert _unreached(while_made) == []
        assert _counts(pier, everyone) == dict.fromkeys(everyone, 1)
        assert pier.names() == sorted(everyone)

        moored.delete(*everyone)
        moored.have("")

    assert _unreached(while_removed) == []
    assert pier.deaths == len(everyone)
    assert pier.names() == []
    assert _counts(pier, everyone) == dict.fromkeys(everyone, 1)


def _watched(moored: mooring.Mooring, name: str) -> tuple[list[pier_side.Call], list[pier_side.Call]]:
    """The calls that it takes to make a machine, and those to remove it."""
    moored.add(name)
    moored.have("Provisioned", name)
    made = moored.pier.asked(name)
    moored.delete(name)
    moored.have("")
    # A machine that waits for its node is looked at again and again: what counts is the way there.
    first = next(index for index, call in enumerate(made) if (call.verb, call.number) == ("update", 2))
    return made[: first + 1], [call for call in moored.pier.asked(name) if call.verb == "delete"]


def _plan(pier: pier_side.Pier, watched: list[pier_side.Call], choice: Choice) -> dict[str, pier_side.Order]:
    """A machine for each moment of each call, and what will happen to who makes it."""
    orders: dict[str, pier_side.Order] = {}
    for call in watched:
        moment: Any
        for moment in choice(call.verb, call.number):
            name = f"{mooring.INFRA}-{call.verb}-{call.number}-{moment}"
            orders[name] = pier.order(pier_side.Call(call.verb, call.number, name), moment)
    return orders


def _unreached(orders: dict[str, pier_side.Order]) -> list[str]:
    return [name for name, order in orders.items() if not order.reached.is_set()]


def _counts(pier: pier_side.Pier, names: list[str]) -> dict[str, int]:
    return {name: pier.made[name] for name in names}
