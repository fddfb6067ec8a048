"""What the engine's refusals amount to, in the types that the engine of flows acts on.

The engine answers "come again", "there is one already" and "never" with the same status 409 (and some with 400), so its
words decide before its status does. They are the sentences of its message catalogue, which has kept them for a decade;
requests ask for English. With 400 it refuses what is wrong in itself, but also says so that it accepted something and
then failed to do it: a host that did not answer for a moment is no reason to give anything up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import ovirtsdk4
import pycurl

from moorage.engine import errors, secret
from moorage.platforms.ovirt import wire

#: Locks end with the operation that holds them, and the engine notices the end of those at most this much later.
LOCKED_FOR: Final = 10.0

_NAME_TAKEN = re.compile(r"name .*already (in use|used|exists)|^template name .* already used", re.IGNORECASE)
_LOCKED = re.compile(
    r"\b(is|are) locked\b|\bin progress\b|please wait\b|try (again )?later|try again in (a few minutes|\d+ seconds)",
    re.IGNORECASE,
)
_NO_SPACE = re.compile(r"low disk space|not enough (disk )?space|no space left", re.IGNORECASE)
_NO_HOST = re.compile(r"no host that satisfies|no available running hosts|scheduling constraints", re.IGNORECASE)
_UNABLE = re.compile(r"(server_error|temporarily_unavailable)\b")
# A value that may not be so, as the checks before an operation say it; what fails later is told in other words.
_WRONG = re.compile(
    r"^can ?not \w|\b(must|has to|have to|should|cannot) be\b|\battribute:|\b(in)?valid\b|not supported|is required",
    re.IGNORECASE,
)
_FORBIDDEN = re.compile(r"not authorized|insufficient permissions", re.IGNORECASE)

# libcurl's numbers for a certificate that is not trusted, or not the host's.
_DISTRUSTED: Final = frozenset((pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CACERT_BADFILE))
_TIMED_OUT: Final = pycurl.E_OPERATION_TIMEDOUT
#: The reason of every fault that comes from an operation; the API's own, of a document it cannot read, has others.
_FAILED: Final = "Operation Failed"

_SPACE = "free space in the storage domain, enlarge it, or choose another one: platform.ovirt.ovirt_storage_domain_id"
_HOSTS = (
    "bring more hosts up in the cluster, free memory on them, or let the machines share hosts: "
    "enforcing: false in platform.ovirt.affinityGroups, or of a cluster that stands in the engine's affinity group"
)
_ROLE = "have an administrator give the user a role with this permission, or use another user"
_LOG = "see what the engine's events and its engine.log say of it"
_URL = "see that ovirt-engine runs there, and that ovirt_url ends in /ovirt-engine/api"
_CA = (
    "if the engine's CA has changed, put its new certificate into ovirt_ca_bundle of the credentials file; "
    "the URL must name the host as the certificate does"
)


def translate(
    error: ovirtsdk4.Error, what: str, *, safe: bool, spellings: Sequence[str] = ()
) -> errors.PlatformFailure:
    """The failure that an SDK error amounts to. ``what`` was tried; if it is not ``safe`` it may have happened."""
    words = secret.scrub(spoken(error), spellings)
    if isinstance(error, wire.Broken):
        return _broken(error, what, words, safe=safe)
    if isinstance(error, wire.Unreadable):
        return _unreadable(error, what, words, safe=safe)
    if _is_of_sign_in(error):
        return _refused_sign_in(what, words)
    return _fault(error, what, words)


def refuses_credentials(error: ovirtsdk4.Error) -> bool:
    """Whether signing in with the same user name and password would be refused again."""
    return _is_of_sign_in(error) and not _UNABLE.match(spoken(error))


def spoken(error: ovirtsdk4.Error) -> str:
    """What the engine said, without the brackets and prefixes that programs put around it."""
    fault = error.fault
    if fault is None:
        return str(error).removeprefix("Error during SSO authentication ")
    detail = (fault.detail or "").strip()
    if detail.startswith("[") and detail.endswith("]"):
        detail = detail[1:-1].strip()
    return detail or (fault.reason or "").strip() or f"HTTP {error.code}"


def locked(words: str) -> bool:
    """Whether the engine's words say that another operation holds the thing, so that it is free again later."""
    return bool(_LOCKED.search(words)) and not _NAME_TAKEN.search(words)


def _broken(error: wire.Broken, what: str, words: str, *, safe: bool) -> errors.PlatformFailure:
    if error.number in _DISTRUSTED:
        return errors.Unusable(f"{what}: the engine's certificate is not trusted", words=words, remedy=_CA)
    if error.number == pycurl.E_URL_MALFORMAT:
        return errors.Unusable(f"{what}: the engine's address is no URL", words=words, remedy=_URL)
    happened = "the engine did not answer in time" if error.number == _TIMED_OUT else "the connection to it broke"
    if error.sent and not safe:
        return errors.Ambiguous(f"{what}: {happened}", words=words)
    if not error.sent:
        happened = "the engine cannot be reached"
    return errors.Transient(f"{what}: {happened}", words=words, remedy=_URL)


def _unreadable(error: wire.Unreadable, what: str, words: str, *, safe: bool) -> errors.PlatformFailure:
    """A page of Apache's, or of a server that has not deployed the engine yet (then even as a 404)."""
    before_sending = isinstance(error, wire.SignInUnreadable)
    if error.code == 503 or before_sending or safe or error.code in (404, 429):
        return errors.Transient(f"{what}: the engine is not there at the moment", words=words, remedy=_URL)
    return errors.Ambiguous(f"{what}: somebody else than the engine answered", words=words, remedy=_URL)


def _is_of_sign_in(error: ovirtsdk4.Error) -> bool:
    return isinstance(error, ovirtsdk4.AuthError) and error.code is None


def _refused_sign_in(what: str, words: str) -> errors.PlatformFailure:
    if _UNABLE.match(words):
        return errors.Transient(f"{what}: the engine cannot sign anybody in at the moment", words=words)
    return errors.Unauthorized(
        f"{what}: the engine refuses user name or password",
        words=words,
        remedy="correct ovirt_username (with its profile, as in admin@internal) and ovirt_password in the "
        "credentials file",
    )


def _fault(error: ovirtsdk4.Error, what: str, words: str) -> errors.PlatformFailure:
    status: int | None = error.code
    by_words: tuple[tuple[re.Pattern[str], Callable[[], errors.PlatformFailure]], ...] = (
        (_NAME_TAKEN, lambda: errors.AlreadyExists(f"{what}: the name is taken", words=words)),
        (_NO_SPACE, lambda: errors.Exhausted(f"{what}: the storage is full", words=words, remedy=_SPACE)),
        (_NO_HOST, lambda: errors.Exhausted(f"{what}: no host may run it", words=words, remedy=_HOSTS)),
        (_FORBIDDEN, lambda: errors.Unauthorized(f"the user may not {what}", words=words, remedy=_ROLE)),
        (
            _LOCKED,
            lambda: errors.Transient(f"{what}: another operation is under way", words=words, retry_after=LOCKED_FOR),
        ),
    )
    if status in (400, 403, 409):
        for pattern, failure in by_words:
            if pattern.search(words):
                return failure()
    match status:
        case 401:
            return errors.Unauthorized(f"{what}: the engine has ended the session at once, twice", words=words)
        case 403:
            return errors.Unauthorized(f"the user may not {what}", words=words, remedy=_ROLE)
        case 404:
            return errors.NotFound(f"{what}: there is no such thing", words=words)
        case 409:
            return errors.Conflict(f"{what}: something is in the way", words=words)
        case 400 if error.fault is not None and error.fault.reason == _FAILED and not _WRONG.search(words):
            # What it began, it has undone: who looks again finds nothing, or what is to be completed.
            return errors.Conflict(f"{what}: the engine failed to do it", words=words, remedy=_LOG)
        case int() if 400 <= status < 500 and status not in (408, 429):
            return errors.Terminal(f"{what}: the engine refuses it", words=words)
        case _:
            return errors.Transient(f"{what}: the engine is in trouble", words=words)
