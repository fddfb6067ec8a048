"""What validation has to say: one `Finding` per problem, all of them at once."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from typing import Literal

from moorage import errors

Severity = Literal["error", "warning"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One problem. ``line`` is 1-based in the YAML the user wrote, or None where no line exists."""

    field: str
    message: str
    severity: Severity = "error"
    remedy: str = ""
    line: int | None = None


def count(source: str, findings: Sequence[Finding]) -> str:
    """How many errors something has, in words."""
    found = sum(1 for finding in findings if finding.severity == "error")
    return f"{found} error{'' if found == 1 else 's'} in {source}"


class Invalid(errors.ConfigError):
    """An install-config has errors; ``findings`` holds every one of them, warnings included."""

    def __init__(self, source: str, findings: Sequence[Finding], *, again: str = "") -> None:
        """``again`` is the command that looks at it again, when the errors are corrected."""
        super().__init__(
            count(source, findings),
            remedy=f"correct the fields above, then run: {again or f'moorage validate {shlex.quote(source)}'}",
        )
        self.source = source
        self.findings = tuple(findings)


class WrongAnswers(Invalid):
    """The survey's answers have errors, so there is no install-config yet."""

    def __init__(self, findings: Sequence[Finding], source: str = "the answers") -> None:
        super().__init__(source, findings, again="moorage create install-config")
