"""Whose file wins, case by case, and the laws that hold over all cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.assets import overlay

A, B, C = b"as generated before", b"as generated now", b"as the user wrote it"


def d(content: bytes) -> str:
    return overlay.digest(content)


CASES = {
    # name: (generated, on disk, base) -> (effective, written, removed, verdicts)
    "fresh": ({"f": B}, {}, {}, {"f": B}, {"f"}, (), ()),
    "unchanged": ({"f": A}, {"f": A}, {"f": A}, {"f": A}, set(), (), ()),
    "generator changed, user did not": ({"f": B}, {"f": A}, {"f": A}, {"f": B}, {"f"}, (), ()),
    "user edited, generator says nothing new": ({"f": A}, {"f": C}, {"f": A}, {"f": C}, set(), (), ("edited",)),
    "both changed": ({"f": B}, {"f": C}, {"f": A}, {"f": B}, {"f"}, (), ("replaced",)),
    "both changed, to the same": ({"f": B}, {"f": B}, {"f": A}, {"f": B}, set(), (), ()),
    "user was there first": ({"f": B}, {"f": C}, {}, {"f": C}, set(), (), ("yours",)),
    "user added a file": ({"f": A}, {"f": A, "g": C}, {"f": A}, {"f": A, "g": C}, set(), (), ()),
    "user deleted one of several": (
        {"f": A, "g": A},
        {"f": A},
        {"f": A, "g": A},
        {"f": A},
        set(),
        (),
        ("deleted",),
    ),
    "deleted stays deleted when the generator changes": (
        {"f": A, "g": B},
        {"f": A},
        {"f": A, "g": A},
        {"f": A},
        set(),
        (),
        ("deleted",),
    ),
    "the only file is gone": ({"f": A}, {}, {"f": A}, {"f": A}, {"f"}, (), ("restored",)),
    "no longer generated": ({"f": A}, {"f": A, "g": A}, {"f": A, "g": A}, {"f": A}, set(), ("g",), ("obsolete",)),
    "no longer generated, but edited": (
        {"f": A},
        {"f": A, "g": C},
        {"f": A, "g": A},
        {"f": A, "g": C},
        set(),
        (),
        (),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_verdicts(case: str) -> None:
    generated, disk, base, effective, written, removed, verdicts = CASES[case]

    laid = overlay.lay(generated, disk, {path: d(content) for path, content in base.items()})

    assert laid.effective == effective
    assert set(laid.write) == written
    assert laid.remove == removed
    assert tuple(note.verdict for note in laid.notes) == verdicts


contents = st.sampled_from([A, B, C])
files = st.dictionaries(st.sampled_from("fgh"), contents)


def settle(disk: dict[str, bytes], laid: overlay.Overlay) -> dict[str, bytes]:
    after = {**disk, **laid.write}
    return {path: content for path, content in after.items() if path not in laid.remove}


@given(files, files, files)
def test_disk_shows_what_is_in_force(
    generated: dict[str, bytes], disk: dict[str, bytes], base: dict[str, bytes]
) -> None:
    laid = overlay.lay(generated, disk, {path: d(content) for path, content in base.items()})

    assert settle(disk, laid) == laid.effective


@given(files, files, files)
def test_a_second_run_changes_nothing(
    generated: dict[str, bytes], disk: dict[str, bytes], base: dict[str, bytes]
) -> None:
    first = overlay.lay(generated, disk, {path: d(content) for path, content in base.items()})

    second = overlay.lay(generated, settle(disk, first), first.base)

    assert second.effective == first.effective
    assert not second.write
    assert not second.remove


@given(files, files, files)
def test_nothing_of_the_users_is_lost_without_a_word(
    generated: dict[str, bytes], disk: dict[str, bytes], base: dict[str, bytes]
) -> None:
    digests = {path: d(content) for path, content in base.items()}

    laid = overlay.lay(generated, disk, digests)

    noted = {note.path for note in laid.notes if note.verdict in ("replaced", "obsolete")}
    for path, content in disk.items():
        theirs = digests.get(path) != d(content)
        if theirs and laid.effective.get(path) != content:
            assert path in noted
