"""``follow=``: links of an answer are followed, and what they lead to stands in their place.

Names are separated by commas, and a full stop leads on from there: ``disk_attachments.disk,nics``. The engine fetches
every one as if the client had asked for it, so a link that leads nowhere spoils the whole answer with a 500.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from moorage.lab.ovirt import documents, faults, links

Tree = dict[str, "Tree"]

_MOST_LINKS = 50


def tree(follow: str) -> Tree:
    """The links to follow, each with those that lead on from it."""
    found: Tree = {}
    for path in follow.split(",")[:_MOST_LINKS]:
        branch = found
        for name in path.strip().split("."):
            if name:
                branch = branch.setdefault(name, {})
    return found


async def followed(request: web.Request, tag: str, content: Any) -> Any:
    """An entity or a list of them, with the links that the request asks for in place."""
    branches = tree(request.query.get("follow", ""))
    if isinstance(content, list):
        return [await _grown(request, tag, each, branches) for each in content]
    return await _grown(request, tag, content, branches)


async def _grown(request: web.Request, tag: str, doc: documents.Doc, branches: Tree) -> documents.Doc:
    grown = dict(doc)
    for name, further in branches.items():
        grown_name, inner_tag, target = _led(tag, doc, name)
        # A chain of links is as long as its author wrote it, and others want to be answered meanwhile.
        await asyncio.sleep(0)
        found = await _fetched(request, target)
        if isinstance(found, list):
            grown[grown_name] = [await _grown(request, inner_tag, each, further) for each in found]
        else:
            grown[grown_name] = await _grown(request, inner_tag, found, further)
    return grown


def _led(tag: str, doc: documents.Doc, name: str) -> tuple[str, str, str]:
    """What a link is called in the document, the name of what it leads to, and where."""
    squeezed = name.lower().replace("_", "")
    if squeezed in links.BELOW.get(tag, ()):
        spelled = links.SPELLED.get(squeezed, squeezed)
        return spelled, links.singular(spelled), f"{links.href(tag, doc)}/{squeezed}"
    member = doc.get(name)
    target = links.href(name, member) if isinstance(member, dict) else ""
    if not target:
        raise faults.Fault(500, faults.FAILED, f"Problem fetching '{name}' from {tag.title().replace('_', '')}")
    return name, name, target


async def _fetched(request: web.Request, target: str) -> Any:
    """What the API answers there, before it is written."""
    inner = request.clone(method="GET", rel_url=request.rel_url.with_path(target))
    match = await request.app.router.resolve(inner)
    # There is no public way to ask a router within a call; a handler finds its ids in the match.
    inner._match_info = match
    reply = await match.handler(inner)
    if not isinstance(reply, documents.Reply) or reply.content is None:
        raise faults.Fault(500, faults.FAILED, f"Problem following link: {target}")
    if isinstance(reply.content, list):
        return [reply.shown(each) for each in reply.content]
    return reply.content
