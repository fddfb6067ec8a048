"""Fetching a large file so that a cut costs only what was under way, and unpacking it without ever holding it.

What has arrived stays in ``<name>.part``; the next try, in this process or another, asks for the rest of it. Sums are
checked while unpacking, and only a file that was whole and right ever gets its real name.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from moorage.assets import releases
from moorage.engine import clock as clocks
from moorage.engine import context, errors

_BLOCK: Final = 1024 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS
_SILENCE: Final = 60.0
#: Cloud seconds in which something of a file must come.
_FRUITLESS: Final = 600.0
_OTHER_IMAGE: Final = "name another image, or a downloaded one, in OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE"
_GONE: Final = (400, 401, 403, 404, 405, 410)


def fetch(url: str, part: Path, environ: Mapping[str, str], ctx: context.Context) -> None:
    """Bring all of ``url`` into ``part``, going on from what is there."""
    ctx.waiting(f"{url} to be downloaded")
    opener = urllib.request.build_opener(*_proxies(url, environ))
    best, since = _size(part), ctx.clock.now()

    def attempt() -> None:
        nonlocal best, since
        try:
            _rest(url, part, opener, ctx.clock)
        except errors.Transient as cut:
            now, there = ctx.clock.now(), _size(part)
            if there > best:
                best, since = there, now
            elif now - since >= _FRUITLESS:
                raise errors.Terminal(
                    f"nothing of {url} has come for {_FRUITLESS / 60:.0f} min", words=cut.words, remedy=_OTHER_IMAGE
                ) from cut
            raise

    ctx.retry(attempt)


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _proxies(url: str, environ: Mapping[str, str]) -> list[urllib.request.BaseHandler]:
    found = {
        name.lower().removesuffix("_proxy"): value
        for name, value in environ.items()
        if name.lower() in ("http_proxy", "https_proxy", "no_proxy") and value
    }
    host = urllib.parse.urlsplit(url).hostname or ""
    # The undocumented half of urllib: what a list of hosts in no_proxy means.
    bypass = urllib.request.proxy_bypass_environment(host, found)  # type: ignore[attr-defined]
    used = {} if bypass else {scheme: proxy for scheme, proxy in found.items() if scheme != "no"}
    return [urllib.request.ProxyHandler(used), urllib.request.HTTPSHandler(context=ssl.create_default_context())]


def _rest(url: str, part: Path, opener: urllib.request.OpenerDirector, clock: clocks.Clock) -> None:
    there = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={there}-"} if there else {})  # noqa: S310
    try:
        with (
            opener.open(request, timeout=clock.socket_timeout(_SILENCE)) as reply,
            # A server that knows no ranges sends it all again.
            part.open("ab" if reply.status == http.HTTPStatus.PARTIAL_CONTENT else "wb") as file,
        ):
            _pour(reply, file, clock)
    except urllib.error.HTTPError as refusal:
        if refusal.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and _whole(refusal, there):
            return
        if refusal.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()
        raise _refused(url, refusal) from refusal
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as cut:
        reason = cut.reason if isinstance(cut, urllib.error.URLError) else cut
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise errors.Terminal(f"{url} is not to be trusted", words=str(reason)) from cut
        what = f"the download of {url} was cut" if _size(part) > there else f"{url} cannot be reached"
        raise errors.Transient(what, words=str(reason)) from cut
    except OSError as problem:
        raise _unwritten(part, problem) from problem


def _pour(reply: http.client.HTTPResponse, file: BinaryIO, clock: clocks.Clock) -> None:
    left = reply.length
    while block := reply.read(_BLOCK):
        clock.check()
        file.write(block)
        left = None if left is None else left - len(block)
    if left:
        # Read in blocks, a reply that ends early looks like one that ended.
        raise http.client.IncompleteRead(b"", left)


def _whole(refusal: urllib.error.HTTPError, there: int) -> bool:
    """Whether "no such range" means that nothing is missing."""
    return str(refusal.headers.get("Content-Range", "")).rpartition("/")[2] == str(there)


def _refused(url: str, refusal: urllib.error.HTTPError) -> errors.PlatformFailure:
    words = f"{refusal.code} {refusal.reason}"
    if refusal.code in _GONE:
        return errors.Terminal(
            f"{url} cannot be downloaded",
            words=words,
            remedy=_OTHER_IMAGE,
        )
    return errors.Transient(f"{url} cannot be downloaded now", words=words)


def unpack(packed: Path, target: Path, image: releases.BootImage, clock: clocks.Clock) -> None:
    """Write what ``packed`` holds to ``target``, whole and checked, or not at all."""
    new = target.with_name(f"{target.name}.new")
    packed_sum, plain_sum = hashlib.sha256(), hashlib.sha256()
    try:
        with packed.open("rb") as source, new.open("wb") as file:
            size = 0
            for block in _plain(source, packed_sum, image.location.endswith(".gz"), clock):
                plain_sum.update(block)
                size += len(block)
                # Holes stay holes: an image of 16 GiB may be 2 GiB of data.
                if block.count(0) == len(block):
                    file.seek(size)
                else:
                    file.write(block)
            file.truncate(size)
            file.flush()
            os.fsync(file.fileno())
        _check(image, packed, packed_sum.hexdigest(), plain_sum.hexdigest())
        new.replace(target)
    except zlib.error as broken:
        _forget(packed)
        raise errors.Terminal(f"{image.location} is damaged: {broken}", remedy=_AGAIN) from broken
    except OSError as problem:
        raise _unwritten(target, problem) from problem
    finally:
        new.unlink(missing_ok=True)


_AGAIN: Final = "run the same command again: it is fetched anew"


def _plain(source: BinaryIO, packed: hashlib._Hash, gzipped: bool, clock: clocks.Clock) -> Iterator[bytes]:
    """The unpacked content in blocks of bounded size; a .gz file may consist of several streams."""
    stream, begun = zlib.decompressobj(_GZIP), False
    while block := source.read(_BLOCK):
        clock.check()
        packed.update(block)
        if not gzipped:
            yield block
            continue
        while block:
            begun = True
            yield stream.decompress(block, _BLOCK)
            block = stream.unconsumed_tail
            if stream.eof:
                # Padding by zeros may follow, as on tapes.
                block = stream.unused_data.lstrip(b"\0")
                stream, begun = zlib.decompressobj(_GZIP), False
    if begun:
        yield stream.flush()
        if not stream.eof:
            raise zlib.error("it ends in the middle")


def _check(image: releases.BootImage, packed: Path, packed_sum: str, plain_sum: str) -> None:
    for wanted, found in ((image.sha256, packed_sum), (image.uncompressed_sha256, plain_sum)):
        if wanted and wanted != found:
            _forget(packed)
            raise errors.Terminal(
                f"{image.location} is not what was published: its SHA-256 is {found}, not {wanted}", remedy=_AGAIN
            )


def _forget(packed: Path) -> None:
    """Remove what was fetched and is of no use; never a file of the user's."""
    if packed.suffix == ".part":
        packed.unlink()


def _unwritten(path: Path, problem: OSError) -> errors.Terminal:
    space = problem.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = f"free some space, or name a folder elsewhere in XDG_CACHE_HOME ({path.parent} is full)" if space else ""
    return errors.Terminal(f"{path} cannot be written: {problem.strerror or problem}", remedy=remedy)
