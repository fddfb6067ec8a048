"""Sentences of a length that a person reads: a table, and the law that a glance is short and hides nothing silently."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from moorage.installer import wording

PLUGIN = (
    "3 masters are not Ready: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
    "message:Network plugin returns error: No CNI configuration file in /etc/kubernetes/cni/net.d/. Has it started?"
)


@pytest.mark.parametrize(
    ("missing", "seen"),
    [
        ("", ""),
        ("2 of 3 masters are Nodes; etcd is progressing: soon", "2 of 3 masters are Nodes; etcd is progressing: soon"),
        (PLUGIN, PLUGIN),
        ("y" * 300, "y" * 219 + "…"),
        (f"{PLUGIN}; dns is degraded", f"{PLUGIN[:119].rstrip()}…; dns is degraded"),
        (f"{PLUGIN}; {'z' * 200}; a; b", f"{PLUGIN[:119].rstrip()}…; {'z' * 85}…; and 2 more"),
        ("; ".join(["word " * 20] * 9), "; ".join([("word " * 20).strip()] * 2) + "; and 7 more"),
    ],
    ids=["nothing", "short", "just short enough", "one long", "two", "three", "many"],
)
def test_a_glance(missing: str, seen: str) -> None:
    assert wording.glance(missing) == seen


@given(some.lists(some.text(some.sampled_from("ab c"), min_size=1, max_size=400), min_size=1, max_size=20))
def test_a_glance_is_short_and_says_how_much_it_leaves_out(parts: list[str]) -> None:
    missing = "; ".join(parts)

    seen = wording.glance(missing)

    assert len(seen) <= wording.LONGEST_GLANCE
    if seen == missing:
        return
    *shown, last = seen.split("; ")
    left_out = int(last.split()[1]) if last.startswith("and ") else 0
    assert left_out or last.endswith("…") or " ".join(missing.split()) != missing
    assert len(shown) + (0 if left_out else 1) + left_out == len(parts)


def test_those_whom_one_reason_concerns_are_kept_in_order() -> None:
    assert wording.together([("b", 1), ("a", 2), ("c", 1)]) == {1: ["b", "c"], 2: ["a"]}


@pytest.mark.parametrize(("count", "last"), [(6, "5"), (7, "and 1 more things")])
def test_long_lists_end(count: int, last: str) -> None:
    assert wording.cut([str(number) for number in range(count)], "things")[-1] == last
