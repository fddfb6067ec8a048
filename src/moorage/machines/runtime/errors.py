"""How an API server refuses, in types a controller acts on; the server's own words travel along.

A refusal is typed by its status code alone, as reasons differ between servers; where one code says two things
(409 is both "exists already" and "you are late"), the reason decides.
"""

# ruff: noqa: N818 - named for what the server said, as a controller asks for it
from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from moorage import errors


@dataclasses.dataclass(frozen=True)
class Cause:
    """One of the causes of a refusal; ``reason`` is a word such as DisruptionBudget or FieldValueInvalid."""

    reason: str
    field: str
    message: str


class ApiError(errors.MoorageError):
    """The API did not do what was asked. ``words`` is what it said; ``code`` is 0 if it said nothing at all."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        words: str = "",
        causes: tuple[Cause, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.words = words
        self.causes = causes
        self.retry_after = retry_after

    def because(self, reason: str) -> bool:
        """Whether one of the causes has this reason."""
        return any(cause.reason == reason for cause in self.causes)


class NotLeader(errors.MoorageError):
    """This process does not lead (any more): what it was about to do is another's to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message, remedy="start it again, if it shall stand by: whoever leads looks at all of it anew")


class NotFound(ApiError):
    """There is no such object, or no such kind (404)."""


class Conflict(ApiError):
    """The object has changed since it was read, or its state forbids it (409)."""


class AlreadyExists(Conflict):
    """An object of that name exists (409)."""


class Gone(ApiError):
    """The moment asked for is forgotten (410): list again."""


class Forbidden(ApiError):
    """This caller may not do that (403)."""


class Unauthorized(ApiError):
    """The credentials are refused (401)."""


class Invalid(ApiError):
    """The object or the request makes no sense (400, 413, 415, 422): the same again will fail the same way."""


class TooManyRequests(ApiError):
    """Not now (429): the server is busy, or a disruption budget has nothing left (`because("DisruptionBudget")`)."""


class Unavailable(ApiError):
    """The server is in trouble or out of reach (5xx, a broken connection): what was asked may have been done or not."""


_TYPES: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: TooManyRequests,
}


def refusal(what: str, code: int, body: bytes, retry_after: float | None = None) -> ApiError:
    """The error that an answer amounts to; ``what`` was asked."""
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    if not isinstance(status, dict):
        status = {"message": body[:500].decode(errors="replace").strip()}
    return from_status(what, {**status, "code": code}, retry_after)


def from_status(what: str, status: Mapping[str, Any], retry_after: float | None = None) -> ApiError:
    """The error that a Status object amounts to."""
    code = int(status.get("code") or 0)
    reason = str(status.get("reason") or "")
    words = str(status.get("message") or "")
    kind = _TYPES.get(code, Unavailable if code >= 500 else ApiError)
    if kind is Conflict and reason == "AlreadyExists":
        kind = AlreadyExists
    details = status.get("details") or {}
    causes = tuple(_cause(each) for each in details.get("causes") or ())
    if retry_after is None and details.get("retryAfterSeconds"):
        retry_after = float(details["retryAfterSeconds"])
    behind = f": {words}" if words else ""
    return kind(
        f"the API refuses to {what} ({code}{behind})",
        code=code,
        reason=reason,
        words=words,
        causes=causes,
        retry_after=retry_after,
    )


def _cause(cause: Mapping[str, Any]) -> Cause:
    return Cause(str(cause.get("reason", "")), str(cause.get("field", "")), str(cause.get("message", "")))
