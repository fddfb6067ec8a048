"""registries.conf: the mirrors of the install-config as podman and CRI-O read them."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from moorage.assets import registries


def source(name, *mirrors, policy=None):
    return {"source": name, "mirrors": list(mirrors), "sourcePolicy": policy}


def read(config):
    return tomllib.loads(registries.registries_conf(config).decode())["registry"]


def test_mirrors_are_used_for_digests_only(config):
    made = config(image_digest_sources=[source("quay.io/a", "m.example/a", "n.example:5000/a")])

    assert read(made) == [
        {
            "location": "quay.io/a",
            "insecure": False,
            "mirror-by-digest-only": True,
            "blocked": False,
            "mirror": [
                {"location": "m.example/a", "insecure": False},
                {"location": "n.example:5000/a", "insecure": False},
            ],
        }
    ]


def test_a_source_that_is_named_twice_is_one_entry_with_all_mirrors(config):
    made = config(
        image_digest_sources=[
            source("quay.io/a", "m.example/a", "n.example/a"),
            source("quay.io/b", "m.example/b"),
            source("quay.io/a", "n.example/a", "o.example/a"),
        ]
    )

    found = {entry["location"]: [mirror["location"] for mirror in entry["mirror"]] for entry in read(made)}
    assert found == {"quay.io/a": ["m.example/a", "n.example/a", "o.example/a"], "quay.io/b": ["m.example/b"]}


def test_a_source_that_must_not_be_contacted_is_blocked(config):
    made = config(
        image_digest_sources=[
            source("quay.io/a", "m.example/a", policy="AllowContactingSource"),
            source("quay.io/a", "n.example/a", policy="NeverContactSource"),
            source("quay.io/b", "m.example/b", policy="AllowContactingSource"),
        ]
    )

    assert {entry["location"]: entry["blocked"] for entry in read(made)} == {"quay.io/a": True, "quay.io/b": False}


def test_the_old_field_says_the_same(config):
    sources = [source("quay.io/a", "m.example/a")]

    old = registries.registries_conf(config(image_content_sources=sources))

    assert old == registries.registries_conf(config(image_digest_sources=sources))


def test_without_mirrors_the_nodes_own_file_stands(config):
    assert registries.registries_conf(config()) is None
    assert registries.registries_conf(config(image_digest_sources=[source("quay.io/a")])) is None


names = st.text("abc./:-", min_size=1, max_size=6)
SOURCES = st.lists(st.tuples(names, st.lists(names, max_size=3)), max_size=6)


@given(sources=SOURCES)
def test_merging_loses_no_mirror_and_repeats_none(sources):
    class Given:
        image_content_sources = ()
        image_digest_sources = tuple(
            type("Source", (), {"source": name, "mirrors": tuple(mirrors), "source_policy": None})
            for name, mirrors in sources
        )

    merged = registries.merged(Given)

    pairs = [(entry.source, mirror) for entry in merged for mirror in entry.mirrors]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {(name, mirror) for name, mirrors in sources for mirror in mirrors}
    assert len({entry.source for entry in merged}) == len(merged)
