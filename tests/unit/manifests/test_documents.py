"""Manifests as users leave them."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moorage import errors
from moorage.assets import documents

POD = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n"
ROLE = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: b\n  namespace: ns\n"


def read(text: str, path: str = "manifests/x.yaml"):
    return documents.read(path, text.encode())


def test_several_documents_are_found_with_their_lines():
    found = read(f"# a comment\n{POD}---\n---\n{ROLE}---\n# nothing\n")

    assert [(document.line, document.identity) for document in found] == [
        (2, documents.Identity("", "Pod", "", "a")),
        (8, documents.Identity("rbac.authorization.k8s.io", "Role", "ns", "b")),
    ]


@pytest.mark.parametrize("empty", ["", "\n", "---\n", "# just a word\n", "---\n---\n", "null\n"])
@pytest.mark.parametrize("path", ["x.yaml", "x.yml"])
def test_nothing_is_nothing(path, empty):
    assert read(empty, path) == []


def test_json_is_read_even_with_tabs():
    text = json.dumps(yaml.safe_load(POD), indent="\t")

    (document,) = read(text, "openshift/x.json")

    assert document.identity == documents.Identity("", "Pod", "", "a")


def test_the_items_of_a_list_are_objects_of_their_own():
    items = [yaml.safe_load(POD), yaml.safe_load(ROLE)]

    found = read(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))

    assert [document.manifest for document in found] == items


def test_the_items_of_a_typed_list_need_not_repeat_their_kind():
    (document,) = read("apiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {name: chart}\n")

    assert document.manifest == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "chart"}}


def test_a_kind_that_merely_ends_in_list_is_no_list():
    (document,) = read("apiVersion: example.org/v1\nkind: WaitingList\nmetadata: {name: a}\nspec: {}\n")

    assert document.identity.kind == "WaitingList"


def test_dates_and_equals_signs_stay_text():
    (document,) = read(POD + "spec: {since: 2026-01-02, op: =}\n")

    assert document.manifest["spec"] == {"since": "2026-01-02", "op": "="}


def test_a_word_that_only_looks_like_a_number_is_a_word():
    (document,) = read(POD + "spec: {mask: 0x_}\n")

    assert document.manifest["spec"] == {"mask": "0x_"}


def test_a_byte_order_mark_and_windows_line_ends_are_accepted():
    content = b"\xef\xbb\xbf" + POD.replace("\n", "\r\n").encode()

    (document,) = documents.read("x.yaml", content)

    assert document.identity.name == "a"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"kind: Pod\n  bad: [\n", "x.yaml, line 2: not YAML"),
        (b"a: 1\n\tb: 2\n", "x.yaml, line 2: not YAML"),
        (POD.encode() + b"---\nkind: [unclosed\n", "x.yaml, line 7: not YAML"),
        (b"ok: 1\nbad: \xff\n", "x.yaml, line 2: not UTF-8 text"),
        (b"a: \x00\n", "x.yaml: not YAML"),
        (b"- 1\n- 2\n", "x.yaml, line 1: expected a Kubernetes object"),
        (b"\n\nhello\n", "x.yaml, line 3: expected a Kubernetes object"),
        (b"kind: Pod\nmetadata: {name: a}\n", "apiVersion is missing"),
        (b"apiVersion: v1\nmetadata: {name: a}\n", "kind is missing"),
        (b"apiVersion: v1\nkind: Pod\n", "metadata.name is missing"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: {name: ''}\n", "metadata.name is missing"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: {name: 7}\n", "metadata.name is 7, which is not a text"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: 1}\n", "metadata.namespace is 1"),
        (b"apiVersion: v1\nkind: List\nitems:\n- 1\n", "x.yaml, line 4: expected a Kubernetes object"),
        (b"a: !!python/object:os.system {}\n", "x.yaml, line 1: not YAML"),
        (b"[" * 100_000, "x.yaml, line 1: nested too deeply"),
    ],
)
def test_trouble_is_named_with_file_and_line(content, words):
    with pytest.raises(errors.ConfigError) as refused:
        documents.read("x.yaml", content)

    assert words in refused.value.message
    assert refused.value.remedy == "correct x.yaml"


def test_broken_json_is_named_with_its_line():
    with pytest.raises(errors.ConfigError, match=r"x\.json, line 3: not JSON"):
        documents.read("x.json", b'{\n "a": 1,\n}')


def test_a_number_beyond_all_measure_is_refused():
    with pytest.raises(errors.ConfigError, match=r"x\.json: holds a value that cannot be read"):
        documents.read("x.json", b'{"a": ' + b"9" * 5000 + b"}")


@given(content=st.binary(max_size=60) | st.text("ab:-[]{}&*!|>%@`\"'#, \n\t?.0_", max_size=60).map(str.encode))
@pytest.mark.parametrize("path", ["x.yaml", "x.json"])
def test_whatever_the_content_it_is_read_or_refused(path, content):
    try:
        outcome = [document.path for document in documents.read(path, content)]
    except errors.ConfigError as refused:
        outcome = [refused.message[: len(path)]]

    assert set(outcome) <= {path}


def test_a_file_of_one_object_is_left_alone():
    files = {
        "manifests/a.yaml": b"# mine\n" + POD.encode(),
        "openshift/b.json": json.dumps(yaml.safe_load(ROLE)).encode(),
    }

    assert documents.single_objects(files) == files


def test_files_of_several_objects_are_split_and_empty_ones_dropped():
    files = {"manifests/two.yml": f"{POD}---\n{ROLE}".encode(), "manifests/none.yaml": b"---\n"}

    split = documents.single_objects(files)

    assert {path: yaml.safe_load(content) for path, content in split.items()} == {
        "manifests/two-000.yaml": yaml.safe_load(POD),
        "manifests/two-001.yaml": yaml.safe_load(ROLE),
    }


def test_what_is_split_keeps_the_users_spelling():
    spec = "spec:\n  mode: 0o644\n  big: 1e3\n  at: 12:30\n  day: 2026-01-02\n  word: 'yes'\n"

    split = documents.single_objects({"manifests/two.yaml": f"{POD}{spec}---\n{ROLE}".encode()})

    assert split["manifests/two-000.yaml"].decode() == POD + spec


def test_an_object_behind_an_empty_document_is_not_lost():
    split = documents.single_objects({"manifests/late.yaml": f"---\n---\n{POD}".encode()})

    assert [list(yaml.safe_load_all(content)) for content in split.values()] == [[yaml.safe_load(POD)]]


def test_a_list_is_split_even_with_a_single_item():
    whole = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(POD)]})

    assert documents.single_objects({"manifests/l.yaml": whole.encode()}) == {"manifests/l-000.yaml": POD.encode()}


def test_what_a_typed_list_leaves_unsaid_is_said_when_split():
    whole = b"apiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {name: chart}\n  data: {at: 12:30}\n"

    (content,) = documents.single_objects({"manifests/l.yaml": whole}).values()

    assert content.decode() == "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: chart\ndata:\n  at: 12:30\n"


def test_a_json_list_is_split_as_well():
    whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(POD), yaml.safe_load(ROLE)]})

    split = documents.single_objects({"openshift/l.json": whole.encode()})

    assert [yaml.safe_load(content)["kind"] for content in split.values()] == ["Pod", "Role"]


def test_a_broken_object_is_not_passed_on():
    with pytest.raises(errors.ConfigError, match="kind is missing"):
        documents.single_objects({"manifests/x.yaml": b"apiVersion: v1\n"})


def test_a_split_file_never_takes_anothers_name():
    files = {"manifests/two.yaml": f"{POD}---\n{ROLE}".encode(), "manifests/two-000.yaml": b"# kept\n" + POD.encode()}

    split = documents.single_objects(files)

    assert len(split) == 3
    assert split["manifests/two-000.yaml"] == files["manifests/two-000.yaml"]


def test_aliases_in_a_split_file_are_not_written_out():
    bomb = "x:\n" + "\n".join(f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'z'] * 9)}]" for n in range(12))

    split = documents.single_objects({"manifests/two.yaml": f"{POD}{bomb}\n---\n{ROLE}".encode()})

    assert len(split["manifests/two-000.yaml"]) < 5_000
