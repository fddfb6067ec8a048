"""Objects to bytes: the same everywhere, and read by Go as what they are."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moorage.assets import objects
from moorage.config import emit

TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc"), whitelist_characters="\n\t"), max_size=40)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)


class PlainDumper(yaml.SafeDumper):
    """What `emit.Dumper` is on a machine without libyaml."""

    def ignore_aliases(self, data):
        return True


PlainDumper.add_representer(str, emit._write_text)


@given(manifest=st.dictionaries(TEXT, DATA, max_size=4))
def test_what_was_written_is_what_is_read(manifest):
    assert yaml.safe_load(objects.to_yaml(manifest)) == manifest


def test_keys_stay_in_their_order():
    assert objects.to_yaml({"b": 1, "a": 2}) == b"b: 1\na: 2\n"


def test_text_of_several_lines_is_readable():
    assert objects.to_yaml({"ca.crt": "one\ntwo\n"}) == b"ca.crt: |\n  one\n  two\n"


def test_long_lines_are_not_folded():
    line = "word " * 60 + "end"

    assert objects.to_yaml({"text": line}) == f"text: {line}\n".encode()


def test_an_object_that_occurs_twice_is_written_twice():
    shared = {"x": 1}

    assert objects.to_yaml({"a": shared, "b": shared}) == b"a:\n  x: 1\nb:\n  x: 1\n"


@pytest.mark.parametrize(
    "word", ["y", "N", "1e3", "12e10", "-1.5E+3", "0o17", "017", "0xff", "0b1", "yes", "null", "1", "2026-01-02"]
)
def test_words_that_go_would_take_for_something_else_are_quoted(word):
    assert objects.to_yaml({"name": word}) == f"name: '{word}'\n".encode()


@pytest.mark.parametrize("word", ["10.0.0.0/16", "berth-1e3", "yes-sir", "v4.20", "fd01::/48", "sha256", "e10"])
def test_other_words_are_plain(word):
    assert objects.to_yaml({"name": word}) == f"name: {word}\n".encode()


def test_libyaml_makes_no_difference(make, configure, harbour):
    config = configure(ssh_key="ssh-ed25519 AAAA one", fips=True)

    for content in make(config, on=harbour).values():
        manifest = yaml.safe_load(content)
        assert objects.to_yaml(manifest, PlainDumper) == content


def test_numbers_are_padded_so_that_files_sort_in_order():
    manifests = [{"n": n} for n in range(11)]

    files = objects.numbered("machines-{}.yaml", manifests)

    assert list(files) == sorted(files)
    assert [yaml.safe_load(content) for _, content in sorted(files.items())] == manifests
    assert next(iter(files)) == "machines-00.yaml"


def test_merged_files_are_sorted():
    assert list(objects.merge({"b": b""}, {"a": b""})) == ["a", "b"]


def test_two_claims_on_one_path_are_refused():
    with pytest.raises(ValueError, match="two assets write a"):
        objects.merge({"a": b"1"}, {"a": b"2"})
