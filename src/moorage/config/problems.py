"""pydantic's errors in words a person can act on: what the field is, what it should be, what was probably meant.

Values are echoed only where they cannot be secret: choices out of a list, and the spelling of field names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pydantic

from moorage.config import findings, model, schema, source, text

Error = Mapping[str, Any]

_SHORT = 60
_KINDS = {
    "bool_type": "true or false",
    "dict_type": "a mapping of fields",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a mapping of fields",
    "string_type": "text",
    "tuple_type": "a list",
}
_REFUSED = {
    ("publish", "Mixed"): "publishing API and ingress differently is for azure, which openshift-install serves",
    ("architecture", "s390x"): "machines of this architecture are not installed by moorage",
    ("architecture", "x86_64"): "is the kernel's name for amd64",
    ("architecture", "aarch64"): "is the kernel's name for arm64",
    ("baselineCapabilitySet", "v4.19"): "4.19 added no set of its own",
    ("baselineCapabilitySet", "v4.20"): "4.20 added no set of its own",
}
_MEANT = {"Mixed": "", "s390x": "", "x86_64": "amd64", "aarch64": "arm64", "v4.19": "vCurrent", "v4.20": "vCurrent"}


def errors_of(error: pydantic.ValidationError) -> list[Error]:
    """The single errors, without their input, which may be a secret."""
    return cast(list[Error], error.errors(include_url=False, include_input=False))


def describe(
    errors: Sequence[Error], root: type[model.Section], prefix: source.Location, document: source.Document
) -> Iterator[findings.Finding]:
    """One finding per error. A required field whose misspelling is reported is not reported as missing too."""
    misspelt = set()
    for error in errors:
        if error["type"] == "extra_forbidden":
            location = tuple(error["loc"])
            match = text.nearest(str(location[-1]), _siblings(root, location))
            misspelt.add((*location[:-1], match))
    for error in errors:
        location = tuple(error["loc"])
        if error["type"] == "missing" and location in misspelt:
            continue
        yield _finding(error, root, prefix, document)


def _finding(
    error: Error, root: type[model.Section], prefix: source.Location, document: source.Document
) -> findings.Finding:
    location: source.Location = tuple(error["loc"])
    kind = error["type"]
    whole = _present((*prefix, *location), document.data, keep_last=kind == "missing")
    field = source.path(whole)
    if kind == "extra_forbidden":
        names = _siblings(root, location)
        remedy = text.suggestion(str(location[-1]), names) or _known(names)
        return findings.Finding(field, f"there is no field `{str(location[-1])[:_SHORT]}` here", remedy=remedy)
    if kind == "missing":
        return findings.Finding(field, "is required", remedy=_purpose(root, location))
    value = _value(document.data, whole)
    if kind == "literal_error":
        return _choice(field, str(whole[-1]), value, root, location, error)
    if kind in _KINDS:
        return _wrong_kind(field, kind, value, document.written.get(whole, ""))
    if kind == "value_error":
        return findings.Finding(field, str(error["ctx"]["error"]))
    message = str(error["msg"])
    return findings.Finding(field, message.replace("Input should", "should", 1).replace("Value error, ", "", 1))


def _choice(
    field: str, name: str, value: Any, root: type[model.Section], location: source.Location, error: Error
) -> findings.Finding:
    found = schema.section_at(root, location[:-1])
    info = schema.field_named(found, str(location[-1])) if found is not None else None
    allowed = [choice for choice in (schema.choices(info.annotation) if info is not None else ()) if choice]
    listed = text.one_of(allowed) if allowed else str(error["ctx"]["expected"])
    written = str(value)[:_SHORT] if isinstance(value, str | int) else "the value"
    reason = _REFUSED.get((name, written), f"must be {listed}")
    meant = _MEANT.get(written) if (name, written) in _REFUSED else text.nearest(written, allowed)
    return findings.Finding(
        field, f"{written!r} cannot be used: {reason}", remedy=f"did you mean {meant}?" if meant else f"use {listed}"
    )


def _wrong_kind(field: str, kind: str, value: Any, written: str) -> findings.Finding:
    wanted = _KINDS[kind]
    got = _kind_of(value)
    remedy = ""
    if kind == "string_type" and field == "pullSecret" and isinstance(value, dict):
        remedy = "the JSON is text here: put it in single quotes"
    elif kind == "string_type" and not isinstance(value, dict | list):
        shown = f": '{written}'" if 0 < len(written) <= _SHORT else ""
        remedy = f"quote it{shown}"
    elif isinstance(value, str) and kind in ("int_type", "bool_type"):
        remedy = "remove the quotes" if value.isdigit() or value in ("true", "false") else f"write {wanted}"
    elif wanted == "a list":
        remedy = "start each entry on a line of its own with '- '"
    return findings.Finding(field, f"must be {wanted}, but YAML reads {got}", remedy=remedy)


def _kind_of(value: Any) -> str:
    if isinstance(value, source.Unusual):
        return f"a {value.kind}"
    for kind, words in ((bool, "true or false"), (int | float, "a number"), (str, "text"), (dict, "a mapping")):
        if isinstance(value, kind):
            return words
    return "a list" if isinstance(value, list) else "nothing"


def _siblings(root: type[model.Section], location: source.Location) -> list[str]:
    section = schema.section_at(root, location[:-1])
    return schema.yaml_names(section) if section is not None else []


def _known(names: Sequence[str]) -> str:
    if not names:
        return "remove it: there are no settings here"
    return f"known here: {', '.join(names)}" if len(names) <= 8 else "see: moorage explain installconfig"


def _purpose(root: type[model.Section], location: source.Location) -> str:
    section = schema.section_at(root, location[:-1])
    info = schema.field_named(section, str(location[-1])) if section is not None else None
    if info is None or not info.description:
        return "add it"
    return f"add it: {info.description}"


def _present(location: source.Location, data: Any, *, keep_last: bool) -> source.Location:
    """The location without the names pydantic adds for the branches of a union."""
    kept: list[str | int] = []
    for index, part in enumerate(location):
        if source.holds(data, part):
            data = data[part]
        elif not (keep_last and index == len(location) - 1):
            continue
        kept.append(part)
    return tuple(kept)


def _value(data: Any, location: source.Location) -> Any:
    for part in location:
        data = data[part]
    return data
