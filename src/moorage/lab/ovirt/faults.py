"""How the engine says no: a status, a reason and a detail, in the words that programs look for.

A detail stands in square brackets where the engine's commands refuse something (``[Cannot run VM. …]``), and is plain
where the API itself does. What is not there is answered with a 404 that has no body at all.
"""

from __future__ import annotations

FAILED = "Operation Failed"


class Fault(Exception):  # noqa: N818 - the API's own word
    """A refusal, ready to be answered."""

    def __init__(self, status: int, reason: str = FAILED, detail: str = "") -> None:
        super().__init__(f"{status} {reason}: {detail}")
        self.status = status
        self.reason = reason
        self.detail = detail


def missing() -> Fault:
    """There is no such thing: told without a word, as the engine does."""
    return Fault(404, "", "")


def refused(doing: str, why: str, status: int = 409) -> Fault:
    """A command was checked and may not run: ``doing`` is like `run VM`, ``why`` a sentence."""
    return Fault(status, FAILED, f"[Cannot {doing}. {why}]")


def plain(why: str, status: int = 409) -> Fault:
    """A command may not run, for reasons that speak for themselves."""
    return Fault(status, FAILED, f"[{why}]")


def name_in_use(doing: str, kind: str) -> Fault:
    """Two things of one kind would have one name."""
    return refused(doing, f"The {kind} name is already in use, please choose a unique name and try again.")


def broken(detail: str, *, writing: bool) -> Fault:
    """Something went wrong while it was done: of an operation the engine says so with the status of a bad request."""
    return Fault(400 if writing else 500, FAILED, detail)


def forbidden() -> Fault:
    """The user may look, but not do this."""
    return plain("User is not authorized to perform this action.", 403)


def incomplete(kind: str, method: str, *fields: str) -> Fault:
    """The document lacks what the method needs, as in `Vm [name] required for add`."""
    return Fault(400, "Incomplete parameters", f"{kind} [{', '.join(fields)}] required for {method}")


def invalid(detail: str) -> Fault:
    """A value is none that the field may have."""
    return Fault(400, "Invalid value", detail)


def malformed(detail: str) -> Fault:
    """The document cannot be read at all."""
    return Fault(400, "Request syntactically incorrect.", detail)
