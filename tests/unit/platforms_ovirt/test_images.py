"""The boot image on its way to this machine: fetched once, resumed, checked, unpacked; or the user's own, in place."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from moorage.assets import releases, values
from moorage.engine import clock as clocks
from moorage.engine import errors
from moorage.lab import boot_image
from moorage.platforms.ovirt import download, images, qcow2
from tests.unit.platforms_ovirt import image_server

PLAIN = boot_image.content()
PACKED = gzip.compress(PLAIN, 1)


@pytest.fixture
def server() -> Iterator[image_server.ImageServer]:
    with image_server.serving(PACKED) as found:
        yield found


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def published(server: image_server.ImageServer) -> releases.BootImage:
    return releases.BootImage(server.url, hashlib.sha256(PACKED).hexdigest(), hashlib.sha256(PLAIN).hexdigest())


def kept(environ: dict[str, str]) -> list[str]:
    """What is in the cache, without locks."""
    folder = images.cache(environ)
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") if folder.exists() else []


# -- which image -------------------------------------------------------------------------------------------------------


def test_a_release_boots_its_openstack_image_unless_the_user_names_another() -> None:
    release = releases.choose("amd64", {})
    own = releases.choose("amd64", {"OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE": "/srv/my.qcow2"})

    assert "-openstack.x86_64.qcow2.gz" in images.wanted(release).location
    assert images.wanted(release).uncompressed_sha256
    assert images.wanted(own).location == "/srv/my.qcow2"
    assert isinstance(release, values.Release)


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_file_of_the_users_own_is_used_where_it_lies(form: str, tmp_path: Path, environ: dict[str, str]) -> None:
    path = tmp_path / "my image.qcow2"
    path.write_bytes(PLAIN)

    found = images.on_disk(
        releases.BootImage(form.format(path).replace(" ", "%20" if "file" in form else " ")),
        environ,
        image_server.ctx(),
    )

    assert (found.path, found.format, found.size) == (path, "cow", len(PLAIN))
    assert found.virtual_size == boot_image.VIRTUAL_SIZE
    assert kept(environ) == []


def test_a_packed_file_of_the_users_own_is_unpacked_beside_the_others_and_stays(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    path = tmp_path / "my.qcow2.gz"
    path.write_bytes(PACKED)

    first = images.on_disk(releases.BootImage(str(path)), environ, image_server.ctx())
    path.write_bytes(gzip.compress(PLAIN + bytes(512)))
    os.utime(path, ns=(1, 1))
    second = images.on_disk(releases.BootImage(str(path)), environ, image_server.ctx())

    assert first.path.read_bytes() == PLAIN
    assert second.path.read_bytes() == PLAIN + bytes(512), "another file of the same name is another image"
    assert path.exists()


# -- fetching ----------------------------------------------------------------------------------------------------------


def test_an_image_is_fetched_once(server: image_server.ImageServer, environ: dict[str, str]) -> None:
    first = images.on_disk(published(server), environ, image_server.ctx())
    second = images.on_disk(published(server), environ, image_server.ctx())

    assert first == second
    assert first.path.read_bytes() == PLAIN
    assert server.asked == [0]
    assert kept(environ) == [first.path.name]


def test_after_a_cut_only_the_rest_is_fetched(server: image_server.ImageServer, environ: dict[str, str]) -> None:
    server.cuts = [1000, 70000]

    found = images.on_disk(published(server), environ, image_server.ctx())

    assert server.asked == [0, 1000, 71000]
    assert found.path.read_bytes() == PLAIN


def test_another_process_goes_on_with_what_a_killed_one_left(
    server: image_server.ImageServer, environ: dict[str, str]
) -> None:
    server.cuts = [5000]
    with pytest.raises(errors.DeadlineExceeded):
        images.on_disk(published(server), environ, image_server.ctx(seconds=0.1))

    images.on_disk(published(server), environ, image_server.ctx())

    assert server.asked == [0, 5000]


def test_a_download_that_had_ended_is_not_begun_again(
    server: image_server.ImageServer, environ: dict[str, str]
) -> None:
    target = images.cache(environ) / images._file_name(published(server))
    target.parent.mkdir(parents=True)
    target.with_name(f"{target.name}.part").write_bytes(PACKED)

    found = images.on_disk(published(server), environ, image_server.ctx())

    assert server.asked == [len(PACKED)]
    assert found.path.read_bytes() == PLAIN


def test_a_server_that_knows_no_ranges_sends_all_of_it_again(
    server: image_server.ImageServer, environ: dict[str, str]
) -> None:
    server.cuts, server.knows_ranges = [1000], False

    found = images.on_disk(published(server), environ, image_server.ctx())

    assert found.path.read_bytes() == PLAIN


def test_a_server_in_trouble_is_asked_again_and_one_that_has_it_not_is_not(
    server: image_server.ImageServer, environ: dict[str, str]
) -> None:
    server.statuses = [503, 502]
    images.on_disk(published(server), environ, image_server.ctx())
    assert server.asked == [0, 0, 0]

    server.statuses = [404]
    with pytest.raises(errors.Terminal, match="cannot be downloaded") as refused:
        images.on_disk(releases.BootImage(server.url, "", "f" * 64), environ, image_server.ctx())
    assert "404" in refused.value.words
    assert "OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE" in refused.value.remedy


def test_a_download_of_which_nothing_comes_is_given_up_after_a_while(environ: dict[str, str]) -> None:
    clock, there = clocks.ManualClock(), "http://127.0.0.1:1/rhcos.qcow2"

    with pytest.raises(errors.Terminal, match=f"nothing of {there} has come for 10 min") as caught:
        images.on_disk(releases.BootImage(there, "", ""), environ, image_server.ctx(clock))

    assert "refused" in caught.value.words
    assert "urlopen" not in caught.value.words
    assert "OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE" in caught.value.remedy
    assert 600 <= clock.now() < 700


def test_a_download_that_comes_in_crumbs_is_not_given_up(
    server: image_server.ImageServer, environ: dict[str, str]
) -> None:
    clock = clocks.ManualClock()
    server.cuts = [500] * 40

    found = images.on_disk(published(server), environ, image_server.ctx(clock))

    assert found.path.read_bytes() == PLAIN
    assert clock.now() > 700, "it took longer than one may be without a byte"


def test_what_is_not_what_was_published_is_never_used(
    server: image_server.ImageServer, environ: dict[str, str]
) -> None:
    server.content = gzip.compress(PLAIN[:-1] + b"!")
    with pytest.raises(errors.Terminal, match="not what was published"):
        images.on_disk(published(server), environ, image_server.ctx())
    assert kept(environ) == []

    server.content = PACKED
    assert images.on_disk(published(server), environ, image_server.ctx()).path.read_bytes() == PLAIN


def test_a_damaged_archive_is_called_that_and_forgotten(
    server: image_server.ImageServer, environ: dict[str, str]
) -> None:
    for damaged in (PACKED[:-9], PACKED[:2000] + b"junk" + PACKED[2004:]):
        server.content = damaged
        with pytest.raises(errors.Terminal, match="damaged"):
            images.on_disk(releases.BootImage(server.url), environ, image_server.ctx())
        assert kept(environ) == []


def test_a_second_process_waits_for_the_first_ones_image(
    server: image_server.ImageServer, environ: dict[str, str]
) -> None:
    name = images._file_name(published(server))
    folder = images.cache(environ)
    folder.mkdir(parents=True)
    first = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(first, fcntl.LOCK_EX)
    clock = clocks.ManualClock(auto=False)
    found: list[qcow2.Image] = []
    second = threading.Thread(
        target=lambda: found.append(images.on_disk(published(server), environ, image_server.ctx(clock)))
    )
    second.start()
    assert clock.await_sleepers(1)

    (folder / name).write_bytes(PLAIN)
    os.close(first)
    clock.advance(5)
    second.join(10)

    assert [image.path.name for image in found] == [name]
    assert server.asked == [], "the second one has nothing to fetch"


@hypothesis.settings(deadline=None, max_examples=25)
@hypothesis.given(
    parts=st.lists(
        st.tuples(st.sampled_from([b"\0", b"a", b"\xff"]), st.integers(0, 3 * 1024**2)), min_size=1, max_size=4
    ),
    joined=st.integers(1, 3),
)
def test_unpacking_gives_back_what_was_packed(
    parts: list[tuple[bytes, int]], joined: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plain = b"".join(byte * count for byte, count in parts)
    cut = max(1, len(plain) // joined)
    streams = [gzip.compress(plain[at : at + cut], 1) for at in range(0, len(plain), cut)] or [gzip.compress(b"")]
    folder = tmp_path_factory.mktemp("unpack")
    packed = folder / "x.gz"
    packed.write_bytes(b"".join(streams))

    download.unpack(packed, folder / "x", releases.BootImage(str(packed)), clocks.ManualClock())

    assert (folder / "x").read_bytes() == plain


def test_zeros_take_no_room(tmp_path: Path) -> None:
    packed = tmp_path / "x.gz"
    packed.write_bytes(gzip.compress(bytes(64 * 1024**2) + b"end", 1))

    download.unpack(packed, tmp_path / "x", releases.BootImage(str(packed)), clocks.ManualClock())

    assert (tmp_path / "x").stat().st_blocks * 512 < 4 * 1024**2


# -- headers -----------------------------------------------------------------------------------------------------------


def header(version: int = 3, backing: int = 0, size: int = 1 << 30, encryption: int = 0, features: int = 0) -> bytes:
    fixed = struct.pack(">4sIQIIQI", b"QFI\xfb", version, backing, 0, 16, size, encryption)
    return fixed + bytes(36) + struct.pack(">Q", features) + bytes(24)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (header(version=1), "version 1"),
        (header(backing=512), "builds upon another"),
        (header(encryption=1), "encrypted"),
        (header(features=4), "in another file"),
        (header(size=0), "no size"),
        (header()[:40], "cut off"),
        (PACKED, "gzip"),
        (b"<!DOCTYPE html>" + bytes(1000), "web page"),
        (b"KDMV" + bytes(1000), "VMDK"),
        (b"tiny", "4 bytes long"),
    ],
)
def test_what_the_engine_would_refuse_is_refused_before_the_upload(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(content)

    with pytest.raises(errors.Terminal, match=why):
        qcow2.inspect(path)


def test_a_sound_header_tells_the_size_of_the_disk(tmp_path: Path) -> None:
    for content, expected in (
        (header(version=2, size=7 << 30), ("cow", 7 << 30)),
        (header(size=3 << 30), ("cow", 3 << 30)),
        (bytes(1000), ("raw", 1024)),
    ):
        (tmp_path / "image").write_bytes(content)
        found = qcow2.inspect(tmp_path / "image")
        assert (found.format, found.virtual_size, found.size) == (*expected, len(content))


def test_a_missing_file_is_called_that(environ: dict[str, str]) -> None:
    with pytest.raises(errors.Terminal, match="cannot be read: No such file"):
        images.on_disk(releases.BootImage("/nowhere/image.qcow2"), environ, image_server.ctx())
