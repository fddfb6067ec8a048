"""The lab: a simulated datacentre on this machine's loopback network, in which clusters really come up.

What the product writes is exercised by parts that refuse what real ones refuse: `names` answers DNS questions from the
records that were written, `balancer` passes connections to the members that were configured, and `faults` and `calls`
make an API misbehave on order and remember who asked it for what. The lab shares no reading of any format with the
product, because a shared misreading would hide itself.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from moorage import errors

if TYPE_CHECKING:
    from moorage.engine import clock as clocks

_HERE = ipaddress.ip_network("127.0.0.0/8")


class NotInLab(errors.MoorageError):
    """An address lies outside the loopback network, and so outside the lab."""


def loopback(address: str) -> str:
    """The address in its canonical form, if the lab may listen on it or connect to it."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        found = None
    if found is None or found not in _HERE:
        raise NotInLab(f"{address!r} is not an address of the lab", remedy=f"choose one within {_HERE}")
    return str(found)


async def sleep(clock: clocks.Clock, seconds: float) -> None:
    """Let cloud seconds pass without holding up the event loop, as `Clock.sleep` would."""
    # Imported here, so that `client`, which talks to a lab without being one, costs no more than an HTTP request.
    import asyncio

    deadline = clock.deadline(seconds)
    while (left := deadline.remaining()) > 0:
        await asyncio.sleep(left / clock.speed)
