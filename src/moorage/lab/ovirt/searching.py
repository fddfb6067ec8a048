"""``search=``, ``max=`` and pages: what the lists of the API's first level can be asked for.

A search is ``field=value`` joined by `and` and `or`, then ``sortby`` and ``page N``. A field may lie across a reference
(``cluster.name``); a value may have ``*`` and stand in quotes; a bare word is looked for in every text. Nothing is told
apart by case, unless the caller asks for it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from moorage.lab.ovirt import documents, faults, links, tags

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

PAGE = 100

_TOKEN = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|!=|<=|>=|=|<|>|[^\s=<>!"']+)""")
_OPERATORS = ("=", "!=", "<", ">", "<=", ">=")
# Words that a search uses for other elements, and the references in documents that they mean.
_CROSS = {
    "cluster": "cluster",
    "clusters": "cluster",
    "datacenter": "data_center",
    "datacenters": "data_center",
    "host": "host",
    "hosts": "host",
    "network": "network",
    "networks": "network",
    "template": "template",
    "templates": "template",
    "vm": "vm",
    "vms": "vm",
    "storage": "storage_domain",
    "storagedomain": "storage_domain",
    "storagedomains": "storage_domain",
    "user": "user",
    "users": "user",
    "event": "event",
    "events": "event",
}
_FIELDS = {"message": "description", "alias": "name", "usrname": "user_name", "mem": "memory"}


@dataclasses.dataclass(frozen=True)
class Term:
    """One condition; without a field, any text will do."""

    field: str
    operator: str
    value: str


@dataclasses.dataclass(frozen=True)
class Query:
    """A search: of ``any_of`` the groups of conditions one must hold as a whole."""

    any_of: tuple[tuple[Term, ...], ...] = ()
    sort: str = ""
    descending: bool = False
    page: int = 0


def parsed(text: str) -> Query:
    """Read a search; a 400 tells what cannot be read."""
    tokens = _TOKEN.findall(text)
    if _TOKEN.sub("", text).strip():
        raise _unreadable(text)
    groups: list[list[Term]] = [[]]
    sort, descending, page, at = "", False, 0, 0
    while at < len(tokens):
        word = tokens[at].lower()
        if word == "page" and at + 1 < len(tokens) and tokens[at + 1].isdigit():
            page, at = int(tokens[at + 1]), at + 2
        elif word == "sortby" and at + 1 < len(tokens):
            sort, at = tokens[at + 1].lower(), at + 2
            if at < len(tokens) and tokens[at].lower() in ("asc", "desc"):
                descending, at = tokens[at].lower() == "desc", at + 1
        elif word == "and":
            at += 1
        elif word == "or":
            groups.append([])
            at += 1
        else:
            term, at = _term(text, tokens, at)
            groups[-1].append(term)
    return Query(tuple(tuple(group) for group in groups if group), sort, descending, page)


def _term(text: str, tokens: list[str], at: int) -> tuple[Term, int]:
    if tokens[at] in _OPERATORS:
        raise _unreadable(text)
    if at + 1 < len(tokens) and tokens[at + 1] in _OPERATORS:
        if at + 2 >= len(tokens) or tokens[at + 2] in _OPERATORS:
            raise _unreadable(text)
        return Term(tokens[at].lower(), tokens[at + 1], _unquoted(tokens[at + 2])), at + 3
    return Term("", "=", _unquoted(tokens[at])), at + 1


def _unquoted(token: str) -> str:
    if len(token) > 1 and token[0] == token[-1] and token[0] in "\"'":
        return token[1:-1].replace('\\"', '"')
    return token


def _unreadable(text: str) -> faults.Fault:
    return faults.plain(f"The search expression '{text}' cannot be understood.", 400)


def searched(engine: engines.Engine, request: web.Request, found: list[documents.Doc]) -> list[documents.Doc]:
    """What a list's caller wants of it. Below the first level there is no search, but there is a most."""
    most = _most(request)
    below = request.path.removeprefix(links.API).strip("/")
    if "/" not in below:
        query = parsed(request.query.get("search", ""))
        found = _selected(engine, query, found, exact=request.query.get("case_sensitive") == "true")
        found = _sorted(query, found)
        if query.page:
            size = most or PAGE
            return found[(query.page - 1) * size : query.page * size]
    return found if most is None else found[:most]


def _most(request: web.Request) -> int | None:
    text = request.query.get("max", "")
    if not text:
        return None
    if not re.fullmatch(r"-?\d+", text):
        raise faults.invalid(f"The value '{text}' isn't a valid integer")
    return int(text) if int(text) >= 0 else None


def _selected(engine: engines.Engine, query: Query, found: list[documents.Doc], *, exact: bool) -> list[documents.Doc]:
    if not query.any_of:
        return found
    groups = [[_condition(engine, term, exact=exact) for term in group] for group in query.any_of]
    return [each for each in found if any(all(holds(each) for holds in group) for group in groups)]


def _sorted(query: Query, found: list[documents.Doc]) -> list[documents.Doc]:
    """By what was asked, or else by name, as the engine lists what has one; what has none keeps its order."""
    if query.sort:
        field = _FIELDS.get(query.sort, query.sort)
        return sorted(found, key=lambda doc: str(doc.get(field, "")).casefold(), reverse=query.descending)
    if all("name" in doc for doc in found):
        return sorted(found, key=lambda doc: str(doc["name"]).casefold())
    return found


_Condition = Callable[[documents.Doc], bool]


def _condition(engine: engines.Engine, term: Term, *, exact: bool) -> _Condition:
    if term.field == "tag":
        matches = _matcher(term.value, exact=exact)
        named = {each["id"] for each in engine.inventory.all("tags") if matches(each["name"])}
        wanted = tags.with_descendants(engine, named)
        return lambda doc: bool(wanted & set(doc.get("_tags", ()))) == (term.operator == "=")
    if not term.field:
        anywhere = _matcher(f"*{term.value}*", exact=exact)
        return lambda doc: any(anywhere(value) for value in doc.values() if isinstance(value, str))
    return lambda doc: any(_compared(value, term, exact=exact) for value in _values(engine, doc, term.field))


def _values(engine: engines.Engine, doc: documents.Doc, field: str) -> list[Any]:
    """What a field says of an entity: several things, where it refers to several."""
    first, _, rest = field.partition(".")
    if rest or (first in _CROSS and first not in doc):
        return [_of(each, rest or "name") for each in _referred(engine, doc, _CROSS.get(first, first))]
    if first in _CROSS and isinstance(doc.get(_CROSS[first]), dict):
        return [_of(each, "name") for each in _referred(engine, doc, _CROSS[first])]
    return [_of(doc, first)]


def _of(doc: documents.Doc, field: str) -> Any:
    field = _FIELDS.get(field, field)
    return doc.get(field, doc.get(f"_{field}", ""))


def _referred(engine: engines.Engine, doc: documents.Doc, name: str) -> list[documents.Doc]:
    """The entities that one is related to: those it names, those that name it, or those by way of its data center."""
    inventory = engine.inventory
    named = [doc[name]["id"]] if isinstance(doc.get(name), dict) else []
    named += [each["id"] for each in doc.get(f"{name}s", ()) if isinstance(each, dict)]
    if named:
        return [inventory.get(f"{name}s", each) for each in named if inventory.has(f"{name}s", each)]
    if naming := [each for each in inventory.all(f"{name}s") if _names(each, doc["id"])]:
        return naming
    if name == "data_center":
        return [found for each in _named_clusters(engine, doc) for found in _referred(engine, each, name)]
    if name == "cluster":
        # Storage is of a cluster by way of its data center.
        centers = {each["id"] for each in doc.get("data_centers", ())}
        return [each for each in inventory.all("clusters") if each["data_center"]["id"] in centers]
    return []


def _names(doc: documents.Doc, identity: str) -> bool:
    single = [value for key in _CROSS.values() if isinstance(value := doc.get(key), dict)]
    many = [each for key in _CROSS.values() for each in doc.get(f"{key}s", ()) if isinstance(each, dict)]
    return any(each.get("id") == identity for each in (*single, *many))


def _named_clusters(engine: engines.Engine, doc: documents.Doc) -> list[documents.Doc]:
    return _referred(engine, doc, "cluster") if isinstance(doc.get("cluster"), dict) else []


def _compared(found: Any, term: Term, *, exact: bool) -> bool:
    if term.operator in ("=", "!="):
        return _matcher(term.value, exact=exact)(_written(found)) == (term.operator == "=")
    try:
        left, right = float(found), float(term.value)
    except (TypeError, ValueError):
        left, right = _written(found), term.value  # type: ignore[assignment]
    return {"<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right}[term.operator]


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _matcher(pattern: str, *, exact: bool) -> Callable[[str], bool]:
    pieces = ".*".join(re.escape(piece) for piece in pattern.split("*"))
    compiled = re.compile(pieces, re.DOTALL | (0 if exact else re.IGNORECASE))
    return lambda text: compiled.fullmatch(text) is not None
