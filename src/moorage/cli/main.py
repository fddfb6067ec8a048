"""`moorage`: finds the command, runs it, and turns what it raises into words and an exit code.

argparse instead of a richer library, because its import is the only one that leaves room for `--help` within three
times the start of a bare interpreter.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from moorage import errors
from moorage.cli import completion, create, explain, graph, talk, validate, version

_COMMANDS = (create, validate, explain, graph, version, completion)
_LEVELS = ("debug", "info", "warn", "error")


def parser() -> argparse.ArgumentParser:
    """The whole command tree. Global flags are taken before and after the verb alike."""
    shared = argparse.ArgumentParser(add_help=False)
    _global_flags(shared, argparse.SUPPRESS, argparse.SUPPRESS)
    root = argparse.ArgumentParser(
        prog="moorage",
        description="Installs and runs OpenShift/OKD clusters where mainstream installers no longer do.",
        epilog="Start with: moorage create install-config",
        allow_abbrev=False,
    )
    _global_flags(root, ".", "info")
    verbs = root.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for command in _COMMANDS:
        command.add(verbs, shared)
    return root


def _global_flags(to: argparse.ArgumentParser, directory: str, level: str) -> None:
    to.add_argument("--dir", default=directory, metavar="DIR", help="asset directory (default: .)")
    to.add_argument("--log-level", default=level, choices=_LEVELS, help="what is said on the terminal (default: info)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code tells scripts what kind of thing went wrong."""
    arguments = parser().parse_args(argv)
    voice = talk.Voice(arguments.log_level)
    try:
        return int(arguments.run(arguments, voice))
    except errors.MoorageError as problem:
        _report(problem, voice)
        return problem.exit_code
    except KeyboardInterrupt:
        voice.error("interrupted; the same command goes on from here")
        return errors.INTERRUPT
    except BrokenPipeError:
        # The reader of our output has gone (`moorage graph | head`): nobody is left to complain to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.OTHER
    except Exception as problem:  # noqa: BLE001 - the last line of defence: no traceback in a user's face
        _report_defect(problem, voice)
        return errors.OTHER
    finally:
        voice.close()


def _report(problem: errors.MoorageError, voice: Any) -> None:
    for finding in getattr(problem, "findings", ()):
        voice.finding(getattr(problem, "source", ""), finding)
    voice.error(problem.message, remedy=problem.remedy)


def _report_defect(problem: Exception, voice: talk.Voice) -> None:
    import traceback

    voice.debug("".join(traceback.format_exception(problem)))
    voice.error(
        f"internal error: {type(problem).__name__}: {problem}",
        remedy=f"please report it with {voice.log_path or 'the output of --log-level debug'}",
    )
