"""What the agent does beside rendering, each at its own pace: small things that must not wait for a slow API.

`Redirect` leads the API's port through HAProxy (masters), `HandOver` takes keepalived away when the bootstrap's API is
gone, `Sweep` removes virtual addresses that a keepalived which was killed has left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moorage.network import checks, host, programs, settings, steady

Say = Callable[[str], None]


class Duty(Protocol):
    """Something that is done again and again, every ``seconds``."""

    seconds: float

    def step(self) -> None: ...

    def end(self) -> None:
        """Leave things so that nobody is needed any more."""


class Redirect:
    """The rule is there while HAProxy answers. It goes a little later than keepalived's check fails (3 times 2
    seconds): the address is to move to a master where all is well first, if there is one."""

    seconds = 2.0
    RISE, FALL = 3, 5

    def __init__(self, wanted: settings.Settings, node: host.Host, say: Say) -> None:
        self._wanted = wanted
        self._node = node
        self._say = say
        # A rule that was there before this process stays until checks say otherwise.
        self._switch = steady.Switch(node.redirected, rise=self.RISE, fall=self.FALL)
        # Its mark may be all that an agent which was killed has set.
        self._doubtful = node.redirected

    def step(self) -> None:
        works = self._node.api_answers(checks.BALANCED_PORT)
        if self._doubtful and works:
            self._node.put_redirect(self._wanted, on=True)
            self._doubtful = False
        if self._switch.checked(works):
            try:
                self._node.put_redirect(self._wanted, on=works)
            except OSError:
                # It is not as we thought: the next checks decide anew.
                self._switch.on = not works
                raise
            to = f"{checks.API_PORT} of {', '.join(self._wanted.api_vips)} to HAProxy on {checks.BALANCED_PORT}"
            self._say(f"haproxy: {'lead' if works else 'no longer lead'} {to}")

    def end(self) -> None:
        if self._node.redirected:
            self._node.put_redirect(self._wanted, on=False)


class HandOver:
    """On the bootstrap machine: keepalived goes when the API, once there, has failed more than 4 checks in a row."""

    seconds = 5.0
    FAILURES = 4

    def __init__(self, node: host.Host, say: Say) -> None:
        self._node = node
        self._say = say
        self._switch = steady.Switch(rise=1, fall=self.FAILURES + 1)

    def step(self) -> None:
        if not self._switch.checked(self._node.api_answers(checks.API_PORT)):
            return
        if not self._switch.on:
            why = f"the API of this machine failed {self.FAILURES + 1} checks in a row"
            self._node.halt(why)
            self._say(f"keepalived: stopped, {why}: the masters take over")
        elif self._node.halted:
            self._node.resume()
            self._say("keepalived: started, the API of this machine is back")
        else:
            self._say("the API of this machine is there")

    def end(self) -> None:
        """Keepalived is ended by its own container."""


class Sweep:
    """keepalived removes its addresses when it ends, unless it is killed: then two nodes would answer for them."""

    seconds = 2.0
    LOOKS = 2

    def __init__(self, wanted: settings.Settings, node: host.Host, say: Say) -> None:
        self._wanted = wanted
        self._node = node
        self._say = say
        self._gone = steady.Switch(rise=self.LOOKS, fall=1)

    def step(self) -> None:
        self._gone.checked(not self._node.runs(programs.KEEPALIVED))
        if self._gone.on:
            for interface, address, prefix in self._node.carried(self._wanted):
                self._node.drop(interface, address, prefix)
                self._say(f"removed {address} from {interface}: keepalived does not run here")

    def end(self) -> None:
        """Nothing is held."""
