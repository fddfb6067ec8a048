"""Collections as the engine serves them: the same five calls, to all of them and to one of them, wherever they are."""

from __future__ import annotations

from aiohttp import typedefs, web


def served(
    at: str,
    name: str,
    *,
    listed: typedefs.Handler,
    add: typedefs.Handler,
    one: typedefs.Handler,
    update: typedefs.Handler,
    remove: typedefs.Handler,
) -> list[web.AbstractRouteDef]:
    """The routes of a collection; handlers find which of it is meant in ``request.match_info[name]``."""
    each = f"{at}/{{{name}}}"
    return [
        web.get(at, listed),
        web.post(at, add),
        web.get(each, one),
        web.put(each, update),
        web.delete(each, remove),
    ]
