"""`explain installconfig.<path>`: what a field is for, from the models themselves.

There is no second text to keep in step: descriptions, rules, types and defaults all come from the field tables that
validation uses.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pydantic
from pydantic import fields as pydantic_fields

from moorage import errors
from moorage.config import model, schema, source, stanza, text

ROOT: Final = "installconfig"
_WIDTH: Final = 100


@dataclasses.dataclass(frozen=True)
class FieldLine:
    """A field of a section, in one line."""

    name: str
    type: str
    summary: str
    required: bool


@dataclasses.dataclass(frozen=True)
class Description:
    """All there is to say about one path."""

    path: str
    type: str
    description: str
    default: str = ""
    required: bool = False
    rule: str = ""
    fields: tuple[FieldLine, ...] = ()


def describe(path: str, stanzas: Mapping[str, stanza.Stanza]) -> Description:
    """The description of ``installconfig`` or of a path below it; indices are ignored."""
    names = [part for part in source.location(path) if isinstance(part, str)]
    if not names or names[0].lower() != ROOT:
        raise _unknown(path, names[0] if names else "", [ROOT])
    here = _section(ROOT, model.InstallConfig)
    holder: type[model.Section] | None = model.InstallConfig
    pools: str | None = None
    for index, name in enumerate(names[1:], start=1):
        trail = ".".join([ROOT, *names[1:index], name])
        if pools is not None:
            if name not in stanzas:
                raise _unknown(trail, name, sorted(stanzas))
            chosen = stanzas[name]
            holder = chosen.platform if pools == ROOT else chosen.machine_pool
            here = dataclasses.replace(
                _section(trail, holder), description=f"{chosen.title}. {_first_paragraph(holder)}"
            )
            pools = None
            continue
        if holder is None:
            raise errors.MoorageError(
                f"{trail} does not exist: {here.path} has no fields", remedy=f"run: moorage explain {here.path}"
            )
        info = schema.field_named(holder, name)
        if info is None:
            raise _unknown(trail, name, schema.yaml_names(holder))
        pools = _platform_of(holder, name)
        here = _field(trail, info, stanzas, platforms=pools is not None)
        holder = None if pools is not None else schema.section_of(info.annotation)
    return here


def render(description: Description) -> str:
    """Plain text, as the command prints it."""
    lines = [f"{description.path}: {description.type}"]
    lines += _wrapped(description.description, "  ")
    facts = [("required", "yes" if description.required else "")]
    facts += [("default", description.default), ("rule", description.rule)]
    for label, value in facts:
        if value:
            lines += _wrapped(f"{label}: {value}", "  ", "    ")
    if description.fields:
        lines += ["", "Fields:"]
        for field in description.fields:
            required = ", required" if field.required else ""
            lines.append(f"  {field.name} ({field.type}{required})")
            lines += _wrapped(field.summary, "      ")
    return "\n".join(lines) + "\n"


def _platform_of(holder: type[model.Section], name: str) -> str | None:
    """Whether the keys below are platforms: of the cluster (``ROOT``), or of a pool's machines."""
    if name != "platform":
        return None
    if holder is model.InstallConfig:
        return ROOT
    return "pool" if issubclass(holder, model.MachinePool) else None


def _field(
    path: str, info: pydantic_fields.FieldInfo, stanzas: Mapping[str, stanza.Stanza], *, platforms: bool
) -> Description:
    section = schema.section_of(info.annotation)
    lines: Sequence[FieldLine] = ()
    if platforms:
        lines = [FieldLine(name, "mapping", chosen.title, False) for name, chosen in sorted(stanzas.items())]
    elif section is not None:
        lines = _lines(section)
    extra = info.json_schema_extra
    return Description(
        path=path,
        type="mapping" if platforms else schema.type_name(info.annotation),
        description=info.description or (_first_paragraph(section) if section is not None else ""),
        default="" if lines else _default(info),
        required=info.is_required(),
        rule=str(extra.get("rule", "")) if isinstance(extra, dict) else "",
        fields=tuple(lines),
    )


def _section(path: str, section: type[model.Section]) -> Description:
    return Description(path, "mapping", _first_paragraph(section), fields=tuple(_lines(section)))


def _lines(section: type[model.Section]) -> list[FieldLine]:
    return [
        FieldLine(
            field.alias or name,
            schema.type_name(field.annotation) if name != "platform" else "mapping",
            (field.description or "").split("\n")[0],
            field.is_required(),
        )
        for name, field in section.model_fields.items()
    ]


def _default(info: pydantic_fields.FieldInfo) -> str:
    if info.is_required():
        return ""
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is None or value == "" or value == ():
        return ""
    return value if isinstance(value, str) else json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, model.Section):
        return value.plain(secrets=False)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return "" if isinstance(value, pydantic.SecretStr) else value


def _first_paragraph(section: type[model.Section]) -> str:
    return " ".join((section.__doc__ or "").split("\n\n")[0].split())


def _unknown(path: str, name: str, known: Sequence[str]) -> errors.MoorageError:
    listed = f"fields there: {', '.join(known)}" if known else "there are no fields to set"
    return errors.MoorageError(f"there is no field {path}", remedy=text.suggestion(name, known) or listed)


def _wrapped(words: str, indent: str, later: str | None = None) -> list[str]:
    return textwrap.wrap(words, _WIDTH, initial_indent=indent, subsequent_indent=indent if later is None else later)
