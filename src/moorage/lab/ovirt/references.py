"""What a document refers to: entities named by id, or by name, which have to be there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moorage.lab.ovirt import faults

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

Doc = dict[str, Any]


def not_found(what: str) -> faults.Fault:
    """A document refers to something that is not there: unlike a wrong URL, told in words."""
    return faults.Fault(404, faults.FAILED, f"Entity not found: {what}")


def given(doc: Doc, field: str) -> Doc:
    """The reference in a field; empty if there is none."""
    found = doc.get(field)
    return found if isinstance(found, dict) else {}


def items(doc: Doc, field: str) -> list[Doc]:
    """The parts in a field; none if it is empty or missing."""
    found = doc.get(field)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def resolved(engine: engines.Engine, kind: str, reference: Doc, label: str) -> Doc:
    """The entity that is meant."""
    identity, name = reference.get("id"), reference.get("name")
    if identity:
        if engine.inventory.has(kind, str(identity)):
            return engine.inventory.get(kind, str(identity))
        raise not_found(f"{label}: id={identity}")
    found = engine.inventory.named(kind, str(name))
    if found is None:
        raise not_found(f"{label}: name={name}")
    return found


def named(reference: Doc) -> bool:
    """Whether a reference says anything."""
    return bool(reference.get("id") or reference.get("name"))
