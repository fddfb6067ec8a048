"""Where the boot image is: the user's own file, or the release's, fetched once and kept for every later cluster.

Images are gigabytes. They are fetched into ``~/.cache/moorage/images`` (``XDG_CACHE_HOME``), unpacked as they are read,
checked, and put in place whole; a second process waits for the first one's work. Nothing is ever held in memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from moorage.assets import releases, values
from moorage.engine import context, errors
from moorage.platforms.ovirt import download, qcow2


def wanted(release: values.Release) -> releases.BootImage:
    """The image that machines of the release boot from: the user's own, or the published one.

    oVirt hands user data over on a config drive, which is what the ``openstack`` image looks for.
    """
    return releases.os_image(release, "openstack")


def on_disk(image: releases.BootImage, environ: Mapping[str, str], ctx: context.Context) -> qcow2.Image:
    """The image as a file on this machine, fetched and unpacked if need be."""
    local = path_of(image.location)
    if local is not None and local.suffix != ".gz":
        return qcow2.inspect(local)
    folder = cache(environ)
    target = folder / _file_name(image)
    if not target.exists():
        with _alone(folder, target.name, ctx):
            if not target.exists():
                _bring(image, local, target, environ, ctx)
    return qcow2.inspect(target)


def path_of(location: str) -> Path | None:
    """The path that a location is; None for what has to be fetched."""
    parts = urllib.parse.urlsplit(location)
    if parts.scheme == "file":
        return Path(urllib.request.url2pathname(parts.path))
    return None if parts.scheme in ("http", "https") else Path(location).expanduser()


def cache(environ: Mapping[str, str]) -> Path:
    """The folder that fetched images are kept in."""
    home = environ.get("HOME") or str(Path.home())
    base = environ.get("XDG_CACHE_HOME") or str(Path(home) / ".cache")
    return Path(base) / "moorage" / "images"


def _file_name(image: releases.BootImage) -> str:
    """The same name never stands for two contents: it holds the sum, or where there is none, what is known."""
    local = path_of(image.location)
    base = Path(urllib.parse.urlsplit(image.location).path).name.removesuffix(".gz")
    known = image.uncompressed_sha256 or image.sha256
    if not known:
        # A file of the user's own may be replaced by another of the same name.
        age = f"{local.stat().st_mtime_ns}:{local.stat().st_size}" if local is not None and local.exists() else ""
        known = hashlib.sha256(f"{image.location}:{age}".encode()).hexdigest()
    return f"{known[:16]}-{base}"


def _bring(
    image: releases.BootImage, local: Path | None, target: Path, environ: Mapping[str, str], ctx: context.Context
) -> None:
    packed = local
    if packed is None:
        packed = target.with_name(f"{target.name}.part")
        download.fetch(image.location, packed, environ, ctx)
    ctx.waiting(f"{target.name} to be unpacked and checked")
    download.unpack(packed, target, image, ctx.clock)
    if local is None:
        packed.unlink()


@contextlib.contextmanager
def _alone(folder: Path, name: str, ctx: context.Context) -> Iterator[None]:
    """Hold the image's lock; the kernel lets it go should this process die."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as problem:
        raise errors.Terminal(
            f"boot images cannot be kept in {folder}: {problem.strerror}",
            remedy="name a folder of yours in XDG_CACHE_HOME",
        ) from problem

    def mine() -> bool | None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        return True

    try:
        if not mine():
            ctx.poll(mine, what=f"another process to fetch {name}", every=5.0)
        yield
    finally:
        os.close(lock)
