"""How long everything takes in the engine's world, in cloud seconds, all in one place.

Where life varies, a duration is drawn from a range by what it is for, so that two runs of one story take the same
time and no two machines of a cluster finish together. What hangs on a size hangs on it here too.
"""

from __future__ import annotations

import hashlib

Range = tuple[float, float]

# Bytes that the storage copies in a second.
COPY_SPEED = 150 * 1024**2

# The engine asks hosts about asynchronous tasks this often: a thing may be done, and its job not.
ASYNC_POLL = 10.0
# How often it looks at the machines on its hosts.
HOST_REFRESH = 3.0

ANSWER: Range = (0.05, 0.2)
CREATE_THIN: Range = (10.0, 20.0)
COPY_OVERHEAD: Range = (8.0, 12.0)
CREATE_DISK: Range = (3.0, 6.0)
CREATE_TEMPLATE: Range = (60.0, 90.0)
RESIZE_DISK: Range = (4.0, 6.0)
REMOVE: Range = (4.0, 6.0)

WAIT_FOR_LAUNCH: Range = (2.5, 3.5)
# How long a host waits for word from a guest before it takes it for up.
POWERING_UP = 60.0
SHUTDOWN: Range = (15.0, 30.0)
POWER_OFF: Range = (1.5, 3.0)
# From a machine that runs to an agent in it that answers.
GUEST_AGENT: Range = (35.0, 45.0)
GUEST_AGENT_LATE: Range = (240.0, 300.0)

TRANSFER_PREPARE: Range = (3.0, 6.0)
TRANSFER_FINALIZE: Range = (4.0, 8.0)
# How often the engine looks at a transfer, how long a ticket lasts and how long before its end it is renewed.
TRANSFER_LOOK = 5.0
TICKET = 300.0
TICKET_ALLOWANCE = 60.0
TRANSFER_INACTIVITY = 60
# How long the engine remembers a transfer that has ended.
TRANSFER_KEPT = 30 * 60.0


def drawn(within: Range, *what: object) -> float:
    """A duration from a range: always the same for the same thing."""
    digest = hashlib.sha256("\0".join(map(str, what)).encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return within[0] + (within[1] - within[0]) * share


def copying(size: int, *what: object) -> float:
    """How long the storage takes to copy so many bytes."""
    return drawn(COPY_OVERHEAD, *what) + size / COPY_SPEED
