"""The bytes of disks: ranges and sparse files, by their laws."""

from __future__ import annotations

import hashlib
import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from moorage.lab.ovirt import images, timing

SPAN = 40_000


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 50)), max_size=30))
@example([(0, 5), (5, 5)])
@example([(5, 5), (0, 5)])
def test_ranges_hold_every_byte_once(pieces: list[tuple[int, int]]) -> None:
    ranges, model = images.Ranges(), set[int]()
    for start, length in pieces:
        ranges.add(start, start + length)
        model |= set(range(start, start + length))

    found = list(ranges)
    assert ranges.total == len(model)
    assert {byte for start, end in found for byte in range(start, end)} == model
    # They neither meet nor overlap, and are in order.
    assert all(before[1] < after[0] for before, after in itertools.pairwise(found))


@given(
    st.lists(
        st.tuples(st.integers(0, SPAN), st.integers(1, 9000), st.sampled_from(["data", "zeros", "hole"])), max_size=8
    )
)
def test_what_was_written_is_read_whatever_the_order(deeds: list[tuple[int, int, str]]) -> None:
    content, model, size = images.Content(), bytearray(2 * SPAN), 0
    for number, (at, length, kind) in enumerate(deeds, start=1):
        piece = bytes([number]) * length if kind == "data" else bytes(length)
        if kind == "hole":
            content.zero(at, length)
        else:
            content.write(at, piece)
        model[at : at + length] = piece
        size = max(size, at + length)

    assert content.size == size
    assert content.read(0, 2 * SPAN) == bytes(model)
    assert content.sha256() == hashlib.sha256(bytes(model[:size])).hexdigest()
    extents = content.extents(2 * SPAN)
    assert sum(each.length for each in extents) == 2 * SPAN
    for each in extents:
        if each.zero:
            assert not any(model[each.start : each.start + each.length])


def test_zeros_take_no_room() -> None:
    content = images.Content()
    for at in range(0, 256 * 1024**2, 1024**2):
        content.write(at, bytes(1024**2))
    content.zero(0, 8 * 1024**4)

    assert content.allocated == 0
    assert content.size == 8 * 1024**4


@given(st.text(), st.text())
def test_a_duration_is_within_its_range_and_always_the_same(what: str, name: str) -> None:
    found = timing.drawn((10.0, 20.0), what, name)
    assert 10.0 <= found < 20.0
    assert found == timing.drawn((10.0, 20.0), what, name)


def test_durations_differ_between_things() -> None:
    assert len({timing.drawn(timing.CREATE_THIN, "vm", f"master-{number}") for number in range(50)}) == 50
