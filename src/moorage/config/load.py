"""The install-config, read: text to a checked `InstallConfig`, or every error in it at once.

The order is source (YAML and lines), conversion (old spellings), defaults, shape (types), rules. Each step goes on with
what the one before could save, so that a person corrects a file in one round.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from moorage import errors
from moorage.config import conversion, defaults, findings, model, rules, shape, source, stanza

FILE_NAME: Final = "install-config.yaml"


def parse(
    text: str | bytes, stanzas: Mapping[str, stanza.Stanza], *, source: str = FILE_NAME
) -> tuple[model.InstallConfig, list[findings.Finding]]:
    """The config and its warnings; `findings.Invalid`, with every error and warning, if it has errors."""
    config, found = _examine(text, stanzas)
    if config is None or any(finding.severity == "error" for finding in found):
        raise findings.Invalid(source, found)
    return config, found


def check(text: str | bytes, stanzas: Mapping[str, stanza.Stanza]) -> list[findings.Finding]:
    """All that can be said about the text, in the order of its lines."""
    return _examine(text, stanzas)[1]


def read(
    path: pathlib.Path, stanzas: Mapping[str, stanza.Stanza]
) -> tuple[model.InstallConfig, list[findings.Finding]]:
    """`parse` for a file."""
    return parse(read_bytes(path), stanzas, source=str(path))


def read_bytes(path: pathlib.Path, *, if_missing: str = "run: moorage create install-config") -> bytes:
    """The file's content, if it is a file of a sane size; ``if_missing`` is the remedy for one that is not there."""
    try:
        if path.is_dir():
            raise errors.ConfigError(
                f"{path} is a directory", remedy=f"name the file, or its directory with --dir {path}"
            )
        # Bounded twice: pipes and devices have no size to look at beforehand.
        size = path.stat().st_size
        with path.open("rb") as file:
            content = file.read(source.MAX_BYTES + 1) if size <= source.MAX_BYTES else b""
        if max(size, len(content)) > source.MAX_BYTES:
            raise errors.ConfigError(
                f"{path} is longer than the {source.MAX_BYTES >> 20} MiB that a cluster can store of it",
                remedy="is it the right file? trust bundles and keys belong in it, logs and images do not",
            )
        return content
    except FileNotFoundError:
        raise errors.ConfigError(f"there is no {path}", remedy=if_missing) from None
    except OSError as error:
        raise errors.ConfigError(f"{path} cannot be read: {error.strerror}", remedy="check its permissions") from None


def _examine(
    text: str | bytes, stanzas: Mapping[str, stanza.Stanza]
) -> tuple[model.InstallConfig | None, list[findings.Finding]]:
    document = source.load(text)
    if document.data is None:
        return None, document.faults
    chosen = shape.choose(document.data, stanzas)
    found = [*document.faults, *conversion.convert(document, chosen)]
    filled = defaults.fill(
        document.data,
        machine_network=chosen.machine_network,
        credentials_mode=next(iter(chosen.credentials_modes), None),
    )
    shaped = shape.build(filled, document, stanzas)
    found += shaped.findings
    broken = [*shaped.broken, *_fields_with_errors(document.faults)]
    found += rules.check(shaped.config, shaped.stanza, broken)
    return shaped.config, _in_order(found, document)


def _fields_with_errors(found: Iterable[findings.Finding]) -> list[str]:
    # A field given twice has no value anybody meant.
    return [source.without_indices(finding.field) for finding in found if finding.field]


def _in_order(found: Sequence[findings.Finding], document: source.Document) -> list[findings.Finding]:
    placed = [document.place(finding) for finding in dict.fromkeys(found)]
    return sorted(placed, key=lambda finding: finding.line or 0)
