"""The errors a person may see.

Every error that reaches the top carries what failed, the exit code scripts can rely on, and the
next thing to type. Library code raises these; only ``cli/`` prints them, once.
"""

from __future__ import annotations

OTHER = 1
INSTALL_CONFIG = 3
INFRASTRUCTURE = 4
BOOTSTRAP = 5
INSTALL = 6
OPERATORS = 7
INTERRUPT = 8


class MoorageError(Exception):
    """Something failed in a way the user can act on; ``remedy`` says how."""

    exit_code = OTHER

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class ConfigError(MoorageError):
    """The install-config (or another input file) cannot be used."""

    exit_code = INSTALL_CONFIG


class StoreError(MoorageError):
    """The asset directory cannot be read or written."""
