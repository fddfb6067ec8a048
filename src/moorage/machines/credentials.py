"""The platform as the controllers see it: an actuator that goes on working when its credentials are changed.

Credentials are in a Secret. Controllers ask for the actuator at every step; now and then that question looks at the
Secret too, and if it has changed a new actuator takes the place of the old one. A refusal by the platform makes the
next look come at once. While the Secret cannot be read, what was known before stays in use.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.engine import errors as platform_errors
from moorage.engine import secret
from moorage.machines.runtime import errors
from moorage.platforms import contract, registry

#: Where the Secret is looked for, in this order: a cluster may give its machine controllers credentials of their own.
NAMESPACES: Final = ("openshift-machine-api", "kube-system")
#: Cloud seconds between two looks at the Secret, and the real seconds below which looking more often tells nothing.
EVERY: Final = 60.0
_SHORTEST: Final = 1.0

#: How the keys end of what is no secret; whatever else a Secret holds is shown to nobody.
_PLAIN: Final = ("url", "username", "insecure", "ca_bundle", "cafile")

T = TypeVar("T")

_log = logging.getLogger(__name__)


def decoded(data: Mapping[str, Any] | None) -> dict[str, str]:
    """The plain values of a Secret's ``data``; what is no text is left out."""
    found: dict[str, str] = {}
    for key, content in (data or {}).items():
        with contextlib.suppress(binascii.Error, UnicodeDecodeError):
            found[key] = base64.b64decode(str(content), validate=True).decode()
    return found


class Keyring:
    """The actuator for the credentials of this moment. ``read(namespace, name)`` gets a Secret."""

    def __init__(
        self,
        platform: str,
        read: Callable[[str, str], Mapping[str, Any]],
        clock: clocks.Clock,
        *,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._read = read
        self._clock = clock
        self._environ = environ
        self._machines = registry.machines(platform)
        self._kept = registry.cluster_credentials(platform)
        self._folder = Path(tempfile.mkdtemp(prefix="moorage-"))
        # Whoever forgets to close it leaves no password behind.
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._turn = threading.Lock()
        self._values: dict[str, str] | None = None
        self._actuator: contract.Actuator | None = None
        self._files: Path | None = None
        self._due = 0.0
        self._told = ""
        #: Whether the last look found no Secret at all.
        self._lacking = False
        #: What must not be shown, as it may be spelled; what was in use before included.
        self._spellings: tuple[str, ...] = ()

    def current(self) -> contract.Actuator:
        """The actuator to use now."""
        actuator = self._actuator
        if actuator is None:
            with self._turn:
                return self._actuator or self._renewed(None)
        # One looks; the others need not wait for that, as there is something to work with.
        if self._kept is None or self._clock.now() < self._due or not self._turn.acquire(blocking=False):
            return actuator
        try:
            return self._renewed(actuator)
        finally:
            self._turn.release()

    def refused(self) -> None:
        """The platform does not take the credentials: there may be others already."""
        self._due = min(self._due, self._clock.now() + _SHORTEST * self._clock.speed)

    def unusable(self, why: top.MoorageError) -> platform_errors.Unauthorized:
        """What is wrong with the credentials, told where people look for it: by the Secret that they belong into."""
        told, remedy = why.message, why.remedy
        if self._kept is not None and self._lacking:
            told = f"there is no Secret {self._kept.SECRET} in {' or '.join(NAMESPACES)}, and {told}"
            remedy = f"make that Secret in {NAMESPACES[0]}: moorage create cluster does so when it is run again"
        return platform_errors.Unauthorized(f"the platform's credentials cannot be used: {told}", remedy=remedy)

    def blot(self, failure: platform_errors.PlatformFailure) -> None:
        """Take the credentials out of what a platform says: it ends up in events and in the Machine's status."""
        failure.message, failure.words = (
            secret.scrub(each, self._spellings) for each in (failure.message, failure.words)
        )
        failure.args = (failure.message,)

    def close(self) -> None:
        """Remove what was written; the last actuator cannot sign in anew any more."""
        self._remove()

    def _renewed(self, known: contract.Actuator | None) -> contract.Actuator:
        self._due = self._clock.now() + max(EVERY, _SHORTEST * self._clock.speed)
        try:
            values = self._secret()
            found = known if known is not None and values == self._values else self._made(values)
            self._told = ""
        except top.MoorageError as problem:
            if known is None:
                raise
            found = known
            if problem.message != self._told:
                self._told = problem.message
                _log.warning("the platform's credentials stay as they were: %s", problem.message)
        self._actuator = found
        return found

    def _secret(self) -> dict[str, str] | None:
        """What the Secret says; None if there is none, or none is needed."""
        if self._kept is None:
            return None
        for namespace in NAMESPACES:
            with contextlib.suppress(errors.NotFound):
                found = decoded(self._read(namespace, self._kept.SECRET).get("data"))
                self._lacking = False
                return found
        self._lacking = True
        if self._values is not None:
            raise top.MoorageError(f"there is no Secret {self._kept.SECRET} any more")
        return None

    def _made(self, values: dict[str, str] | None) -> contract.Actuator:
        """An actuator for these values; without any, for the environment of the process."""
        files = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            actuator = self._machines.actuator(self._surroundings(values, files))
        except BaseException:
            shutil.rmtree(files, ignore_errors=True)
            raise
        if self._values is not None:
            _log.info("the platform's credentials have changed: the new ones are used")
        former, self._files, self._values = self._files, files, values
        if former is not None:
            shutil.rmtree(former, ignore_errors=True)
        return actuator

    def _surroundings(self, values: dict[str, str] | None, files: Path) -> contract.Surroundings:
        added: Mapping[str, str] = {}
        if self._kept is not None and values is not None:
            added = self._kept.environ(values, files)
        elif self._kept is not None:
            _log.warning("there is no Secret %s: the credentials of this environment are used", self._kept.SECRET)
        hidden = [secret.Secret(value) for key, value in (values or {}).items() if not key.lower().endswith(_PLAIN)]
        spellings = self._spellings = tuple(dict.fromkeys((*secret.forms(hidden), *self._spellings)))
        return contract.Surroundings(
            environ={**self._environ, **added},
            clock=self._clock,
            trace=lambda line: _log.debug("%s", secret.scrub(line, spellings)),
            caller="machine-api",
        )


class Rotating:
    """An actuator that is always the current one."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def exists(self, machine: contract.Machine) -> contract.Instance | None:
        return self._use(lambda actuator: actuator.exists(machine))

    def create(self, machine: contract.Machine) -> contract.Instance:
        return self._use(lambda actuator: actuator.create(machine))

    def update(self, machine: contract.Machine) -> contract.Instance:
        return self._use(lambda actuator: actuator.update(machine))

    def delete(self, machine: contract.Machine) -> bool:
        return self._use(lambda actuator: actuator.delete(machine))

    def place(self, machine: contract.Machine) -> contract.Place:
        return self._use(
            lambda actuator: actuator.place(machine) if isinstance(actuator, contract.Locating) else contract.Place()
        )

    def _use(self, call: Callable[[contract.Actuator], T]) -> T:
        try:
            return self._called(call)
        except platform_errors.PlatformFailure as failure:
            self._keyring.blot(failure)
            if isinstance(failure, platform_errors.Unauthorized):
                self._keyring.refused()
            raise

    def _called(self, call: Callable[[contract.Actuator], T]) -> T:
        """The call; without credentials each machine is to say so, and not the log alone.

        Some platforms read them when the actuator is made, others at the first call.
        """
        try:
            return call(self._keyring.current())
        except (top.ConfigError, errors.Forbidden) as unusable:
            raise self._keyring.unusable(unusable) from unusable
