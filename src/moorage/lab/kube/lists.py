"""Lists: all objects at one revision, in one answer or page by page.

A page says in its continue token at which revision the list began and after which name it stopped, so that all pages
together show one moment. When the history of that moment is lost, the client is told so and may go on with the present.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import itertools
import json

from moorage.lab.kube import api as apis
from moorage.lab.kube import kinds, problem, selectors, store

EXACT = "Exact"
NOT_OLDER = "NotOlderThan"

_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105 - no secret
_LOST_LIST = "The resourceVersion for the provided list is too old."
_LOST_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without"  # noqa: S105
    " the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
    " Continuing with the provided token results in an inconsistent list - objects that were created, modified, or"
    " deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclasses.dataclass(frozen=True)
class Query:
    """What is to be listed, in the words of the request."""

    labels: str = ""
    fields: str = ""
    limit: int = 0
    token: str = ""
    resource_version: str = ""
    match: str = ""


@dataclasses.dataclass(frozen=True)
class Page:
    """A list, or a part of one: ``token`` continues it, ``remaining`` is how many objects are left if that is known."""

    entries: list[store.Entry]
    revision: int
    token: str = ""
    remaining: int = 0

    def metadata(self) -> dict[str, object]:
        """The metadata of the list."""
        found: dict[str, object] = {"resourceVersion": str(self.revision)}
        if self.token:
            found["continue"] = self.token
            if self.remaining:
                found["remainingItemCount"] = self.remaining
        return found


def page(api: apis.Api, kind: kinds.Kind, namespace: str, query: Query, *, stale: bool = False) -> Page:
    """The list that is asked for, or the next page of it; ``stale``: by a server that has missed the last write."""
    revision, start = _where(api, query)
    if stale and revision == api.store.revision:
        revision = api.store.earlier(kind.key)
    limit = 0 if query.resource_version == "0" and not query.token else query.limit
    matches = selectors.matcher(kind, query.labels, query.fields)
    try:
        entries = api.store.entries(kind.key, namespace, revision)
    except store.Compacted:
        raise _lost(api, query, start) from None
    if start:
        first = _first_after(entries, start, namespace)
        entries = entries[first:]
    if matches is not selectors.everything:
        chosen = (entry for entry in entries if matches(entry.object))
        entries = list(itertools.islice(chosen, limit + 1)) if limit else list(chosen)
    if not limit or len(entries) <= limit:
        return Page(entries, revision)
    left = len(entries) - limit if matches is selectors.everything else 0
    return Page(entries[:limit], revision, _token(revision, entries[limit - 1], namespace), left)


def revision_of(text: str, *, watching: bool = False) -> int:
    """A resourceVersion from a request as a number, 0 if it is not given."""
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal()):
        wrong = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise problem.broken(wrong) if watching else problem.bad_request(f"invalid resource version: {wrong}")
    return int(text)


def options_invalid(causes: list[tuple[str, str, str]], options: str = "ListOptions") -> problem.Problem:
    """The refusal of options, each by reason, message and field."""
    return problem.invalid("meta.k8s.io", options, "", [problem.Cause(*cause) for cause in causes])


def _where(api: apis.Api, query: Query) -> tuple[int, str]:
    """At which revision to list, and after which name to begin."""
    _check_match(query)
    if query.token:
        if query.resource_version not in ("", "0"):
            raise problem.bad_request("specifying resource version is not allowed when using continue")
        revision, start = _read_token(query.token)
        return (revision if revision > 0 else api.store.revision), start
    wanted = revision_of(query.resource_version)
    if wanted > api.store.revision:
        raise problem.not_yet(wanted, api.store.revision)
    exact = query.match == EXACT or (query.limit and wanted and not query.match)
    return (wanted if exact else api.store.revision), ""


def _check_match(query: Query) -> None:
    forbidden = "FieldValueForbidden"
    causes: list[tuple[str, str, str]] = []
    if query.match and query.match not in (EXACT, NOT_OLDER):
        words = f'Unsupported value: "{query.match}": supported values: "Exact", "NotOlderThan", ""'
        causes.append(("FieldValueNotSupported", words, "resourceVersionMatch"))
    elif query.match and query.token:
        words = "Forbidden: resourceVersionMatch is forbidden when continue is provided"
        causes.append((forbidden, words, "resourceVersionMatch"))
    elif query.match and not query.resource_version:
        words = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        causes.append((forbidden, words, "resourceVersionMatch"))
    elif query.match == EXACT and query.resource_version == "0":
        words = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        causes.append((forbidden, words, "resourceVersionMatch"))
    if causes:
        raise options_invalid(causes)


def _lost(api: apis.Api, query: Query, start: str) -> problem.Problem:
    if not query.token:
        return problem.expired(_LOST_LIST)
    refusal = problem.expired(_LOST_TOKEN)
    refusal.metadata["continue"] = _encoded(-1, start)
    return refusal


def _key(entry: store.Entry, namespace: str) -> str:
    meta = entry.object["metadata"]
    name: str = meta["name"]
    return name if namespace or not meta.get("namespace") else f"{meta['namespace']}/{name}"


def _first_after(entries: list[store.Entry], start: str, namespace: str) -> int:
    """The place of the first object behind ``start``; bisected by hand, as keys are made when they are looked at."""
    low, high = 0, len(entries)
    wanted = tuple(start.split("/"))
    while low < high:
        middle = (low + high) // 2
        if tuple(_key(entries[middle], namespace).split("/")) < wanted:
            low = middle + 1
        else:
            high = middle
    return low


def _token(revision: int, last: store.Entry, namespace: str) -> str:
    return _encoded(revision, _key(last, namespace) + "\0")


def _encoded(revision: int, start: str) -> str:
    document = json.dumps({"v": _TOKEN_VERSION, "rv": revision, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(document.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        document = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
        if document["v"] != _TOKEN_VERSION:
            raise ValueError(f"server does not recognize this encoded version {document['v']!r}")
        return int(document["rv"]), str(document["start"])
    except (binascii.Error, ValueError, KeyError, TypeError) as wrong:
        raise problem.bad_request(f"invalid continue token: continue key is not valid: {wrong}") from None
