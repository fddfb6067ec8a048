"""Running one command to its end: what it raises becomes words and an exit code, here and nowhere else."""

from __future__ import annotations

import argparse
import os
import sys

from moorage import errors
from moorage.cli import talk


def of(arguments: argparse.Namespace) -> int:
    """The exit code of the command that was parsed."""
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


def _report(problem: errors.MoorageError, voice: talk.Voice) -> None:
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
