"""The API's documents: entities are plain dicts with the API's own names, and XML only on the wire.

Writing, ``id`` and ``href`` become attributes, a dict an element, a list an element with one child for each item; keys
that begin with ``_`` are the engine's own and never leave it. Reading, what is a number or a truth value is told by
the element's name, since XML does not say; a plural with children of its singular is a list. A `Reply` is an answer
that has not been written yet: the application writes it, after following links and searching.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from xml.etree import ElementTree

from aiohttp import web

from moorage.lab.ovirt import faults, links

Doc = dict[str, Any]

MEDIA_TYPE = "application/xml"
_MOST_DEPTH = 30

_TRUTH_NAMES = """
    activate active allow_partial_import async autostart ballooning bootable broken check_connectivity clone
    clone_permissions collapse_snapshots copy_paste_enabled delete_protected detach_only discard_snapshots enabled
    enforcing exclusive file_transfer_enabled filter force linked maintenance_after_restart maintenance_enabled
    multi_queues_enabled next_run_configuration_exists on_boot pass_discard pause persist_memorystate plugged
    port_mirroring positive propagate_errors read_only required run_once seal shareable smartcard_enabled
    soundcard_enabled sparse start_paused stateless tpm_enabled tunnel_migration use_cloud_init use_ignition
    use_initialization use_latest_template_version use_sysprep uses_scsi_reservation virtio_scsi_multi_queues_enabled
    volatile wipe_after_delete
    """
_NUMBER_NAMES = """
    actual_size available code committed cores cpu_shares guaranteed inactivity_timeout index initial_size io_threads
    max max_user_vms memory migration_downtime monitors mtu number port prestarted_vms progress provisioned_size size
    sockets threads timeout total total_size transferred used version_number virtio_scsi_multi_queues
    """
_TRUTHS, _NUMBERS = frozenset(_TRUTH_NAMES.split()), frozenset(_NUMBER_NAMES.split())
_DECIMALS = frozenset({"priority"})


class Reply(web.Response):
    """An answer: an entity, a collection, an action or nothing, under the name of its element."""

    def __init__(self, tag: str, content: Doc | list[Doc] | None, status: int = 200) -> None:
        super().__init__(status=status)
        self.tag = tag
        self.content = content
        #: How each of many is shown, after they were searched.
        self.shown: Callable[[Doc], Doc] = dict

    def finish(self, content: Doc | list[Doc] | None) -> None:
        """Give it its body. What is to be written may say more than what the handler had."""
        if content is None:
            return
        if self.status in (201, 202) and isinstance(content, dict):
            href = links.href(self.tag, content)
            if href:
                self.headers["Location"] = href
        self.body = xml(self.tag, content)
        self.content_type = MEDIA_TYPE
        self.charset = "utf-8"


def entity(tag: str, doc: Doc, status: int = 200) -> Reply:
    """One thing."""
    return Reply(tag, doc, status)


def collection(tag: str, docs: Iterable[Doc], shown: Callable[[Doc], Doc] = dict) -> Reply:
    """Many things, under the name of the whole: `vms` for things that are each a `vm`.

    What they are searched by may be more than what is shown of them.
    """
    reply = Reply(tag, list(docs))
    reply.shown = shown
    return reply


def created(tag: str, doc: Doc, *, pending: bool = False) -> Reply:
    """A new thing; ``pending`` says that work on it goes on in the background."""
    if pending:
        doc = {**doc, "creation_status": "pending"}
    return Reply(tag, doc, 202 if pending else 201)


def action(doc: Mapping[str, Any] | None = None, *, pending: bool = False) -> Reply:
    """What an action came to."""
    status = "pending" if pending else "complete"
    return Reply("action", {**(doc or {}), "status": status}, 202 if pending else 200)


def gone() -> Reply:
    """It has been removed, or will be."""
    return action()


def fault(wrong: faults.Fault, *, within_action: bool = False) -> Reply:
    """A refusal: within an action where one was asked for."""
    if not (wrong.reason or wrong.detail):
        return Reply("fault", None, wrong.status)
    doc: Doc = {"reason": wrong.reason, **({"detail": wrong.detail} if wrong.detail else {})}
    if within_action:
        return Reply("action", {"fault": doc, "status": "failed"}, wrong.status)
    return Reply("fault", doc, wrong.status)


def moment(when: datetime.datetime) -> str:
    """A date as the engine writes it."""
    return when.isoformat(timespec="milliseconds")


def xml(tag: str, content: Doc | list[Doc]) -> bytes:
    """A document as it goes over the wire."""
    root = _element(tag, content)
    ElementTree.indent(root, "    ")
    written: bytes = ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return written


def _element(tag: str, value: Any) -> ElementTree.Element:
    element = ElementTree.Element(tag)
    if isinstance(value, dict):
        _fill(element, value)
    elif isinstance(value, list | tuple):
        single = links.singular(tag)
        element.extend(_element(single, each) for each in value)
    else:
        element.text = _text(value)
    return element


def _fill(element: ElementTree.Element, doc: Doc) -> None:
    href = links.href(element.tag, doc)
    if href:
        element.set("href", href)
    if "id" in doc:
        element.set("id", str(doc["id"]))
    for key, value in doc.items():
        if key in ("id", "href") or key.startswith("_") or value is None:
            continue
        element.append(_element(key, value))
    if href:
        for name, target in links.subcollections(element.tag, doc, href):
            ElementTree.SubElement(element, "link", {"href": target, "rel": name})


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        return moment(value)
    # What XML cannot say is left out.
    return "".join(each for each in str(value) if (each >= " " or each in "\t\n\r") and each not in "\ufffe\uffff")


async def body(request: web.Request, tag: str) -> Doc:
    """The entity in a request's body, which has to be a ``tag``."""
    content = await request.read()
    if not content:
        raise faults.malformed("The request has no body.")
    found, doc = parsed(content)
    if found != tag:
        raise faults.malformed(f"For correct usage, send a '{tag}', not a '{found}'.")
    return doc


def parsed(content: bytes) -> tuple[str, Doc]:
    """The name of a document's element, and what it says."""
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise faults.malformed("Document type declarations are not allowed.")
    try:
        root = ElementTree.fromstring(content)  # noqa: S314 - entities were refused above
    except (ElementTree.ParseError, ValueError, LookupError) as wrong:
        raise faults.malformed(f"The document is not well-formed: {wrong}") from wrong
    read = _read(root, 0)
    if isinstance(read, str):
        read = {}
    if isinstance(read, list):
        raise faults.malformed(f"A '{root.tag}' is many, and one was expected.")
    return root.tag, read


def _read(element: ElementTree.Element, depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise faults.malformed("The document is too deep.")
    children = list(element)
    if children and all(each.tag == links.singular(element.tag) != element.tag for each in children):
        return [_read(each, depth + 1) for each in children]
    if children or element.attrib:
        doc: Doc = {name: element.attrib[name] for name in ("id", "href") if name in element.attrib}
        return doc | {each.tag: _read(each, depth + 1) for each in children}
    return _value(element.tag, (element.text or ""))


def _value(tag: str, text: str) -> str | int | float | bool:
    bare = text.strip()
    if tag in _TRUTHS:
        if bare.lower() in ("true", "1"):
            return True
        if bare.lower() in ("false", "0"):
            return False
        raise faults.invalid(f"The value '{bare}' isn't a valid boolean, it must be 'true' or 'false'")
    kind: type[int] | type[float] | None = int if tag in _NUMBERS else float if tag in _DECIMALS else None
    if kind is None:
        return text
    try:
        return kind(bare)
    except ValueError:
        raise faults.invalid(f"The value '{bare}' isn't a valid {'integer' if kind is int else 'decimal'}") from None
