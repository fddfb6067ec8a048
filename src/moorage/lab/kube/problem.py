"""Refusals of the Kubernetes API: each is a Status object with the code, reason and words that clients look for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Cause:
    """One thing wrong with an object: ``reason`` as in FieldValueInvalid, ``field`` as in spec.replicas."""

    reason: str
    message: str
    field: str


class Problem(Exception):  # noqa: N818 - what the API calls a Status is no error of ours
    """What the API answers instead of what was asked."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after: int = 0,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        # Where a real server has details but nothing to say in them, an empty object is shown.
        self._detailed = details is not None
        self.details = dict(details or {})
        self.retry_after = retry_after
        # Of the Status itself: an expired list says here how it can be continued nevertheless.
        self.metadata = dict(metadata or {})

    def status(self) -> dict[str, Any]:
        """The Status object."""
        found: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            found["reason"] = self.reason
        details = {**self.details, **({"retryAfterSeconds": self.retry_after} if self.retry_after else {})}
        if details or self._detailed:
            found["details"] = details
        found["code"] = self.code
        return found


def qualified(plural: str, group: str) -> str:
    """A resource as messages name it: pods, machines.machine.openshift.io."""
    return f"{plural}.{group}" if group else plural


def _details(group: str, plural: str, name: str) -> dict[str, Any]:
    return {key: value for key, value in (("name", name), ("group", group), ("kind", plural)) if value}


def bad_request(message: str) -> Problem:
    return Problem(400, "BadRequest", message)


def unauthorized() -> Problem:
    return Problem(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, plural: str, name: str, why: str) -> Problem:
    message = (
        f'{qualified(plural, group)} "{name}" is forbidden: {why}'
        if name
        else (f"{qualified(plural, group)} is forbidden: {why}")
    )
    return Problem(403, "Forbidden", message, details=_details(group, plural, name))


def not_found(group: str, plural: str, name: str) -> Problem:
    message = f'{qualified(plural, group)} "{name}" not found'
    return Problem(404, "NotFound", message, details=_details(group, plural, name))


def no_such_path() -> Problem:
    return Problem(404, "NotFound", "the server could not find the requested resource")


def method_not_allowed(group: str = "", plural: str = "", verb: str = "") -> Problem:
    message = "the server does not allow this method on the requested resource"
    if verb:
        message = f'{verb} is not supported on resources of kind "{qualified(plural, group)}"'
    return Problem(405, "MethodNotAllowed", message, details=_details(group, plural, ""))


def not_acceptable(message: str) -> Problem:
    return Problem(406, "NotAcceptable", message)


def already_exists(group: str, plural: str, name: str) -> Problem:
    message = f'{qualified(plural, group)} "{name}" already exists'
    return Problem(409, "AlreadyExists", message, details=_details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str = "") -> Problem:
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return Problem(409, "Conflict", message, details=_details(group, plural, name))


def expired(message: str = "") -> Problem:
    return Problem(410, "Expired", message or "The resourceVersion for the provided watch is too old.")


def too_large(limit: int) -> Problem:
    return Problem(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def unsupported_media_type(message: str) -> Problem:
    return Problem(415, "UnsupportedMediaType", message)


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> Problem:
    """An object that breaks the rules; every cause is named."""
    # What is found wrong twice is told once.
    wrongs = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    told = wrongs[0] if len(wrongs) == 1 else f"[{', '.join(wrongs)}]"
    message = f'{qualified(kind, group)} "{name}" is invalid: {told}'
    details = {**_details(group, kind, name), "causes": [dataclasses.asdict(cause) for cause in causes]}
    return Problem(422, "Invalid", message, details=details)


def too_many_requests(message: str, retry_after: int, causes: Sequence[Cause] = ()) -> Problem:
    details = {"causes": [dataclasses.asdict(cause) for cause in causes]} if causes else {}
    return Problem(429, "TooManyRequests", message, details=details, retry_after=retry_after)


def internal(message: str) -> Problem:
    return Problem(500, "InternalError", f"Internal error occurred: {message}")


def broken(message: str) -> Problem:
    """A failure below the API (its store, or a number that cannot be read), told as it is."""
    return Problem(500, "", message)


def not_yet(wanted: int, current: int) -> Problem:
    """A revision that has not been written yet is asked for."""
    return Problem(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        details={"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
        retry_after=1,
    )


def unavailable(message: str) -> Problem:
    return Problem(503, "ServiceUnavailable", message)
