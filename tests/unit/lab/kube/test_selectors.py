"""Selectors: the words clients choose objects by."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.lab.kube import kinds, selectors
from tests.unit.lab.kube import api_world

PODS = kinds.Kind("", "v1", "Pod", "pods")
MAPS = kinds.Kind("", "v1", "ConfigMap", "configmaps")


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "x", "labels": labels}}


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("", "red blue plain"),
        ("colour=red", "red"),
        ("colour==red", "red"),
        ("colour!=red", "blue plain"),
        ("colour in (red, blue)", "red blue"),
        ("colour in (red,)", "red"),
        ("colour notin (red)", "blue plain"),
        ("colour", "red blue"),
        ("!colour", "plain"),
        ("colour,size>3", "blue"),
        ("size<3", "red"),
        (" colour = red , size ", "red"),
        ("example.com/x!=1,colour", "red blue"),
        ("colour=", ""),
    ],
)
def test_labels_are_chosen_by_text(selector: str, chosen: str) -> None:
    objects = {
        "red": labelled(colour="red", size="2"),
        "blue": labelled(colour="blue", size="4"),
        "plain": {"metadata": {"name": "x"}},
    }
    matches = selectors.by_labels(selector)

    assert [name for name, content in objects.items() if matches(content)] == chosen.split()


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "found '', expected: ',' or ')'"),
        ("-a", 'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of'),
        ("a=b,", "expected: identifier after ','"),
        ("=a", "expected: identifier"),
        ("a=b c", "found 'c'"),
        ("a>x", "the value must be an integer"),
        ("a=" + "x" * 64, "must be no more than 63 characters"),
    ],
)
def test_text_that_is_no_selector_is_refused(selector: str, words: str) -> None:
    with api_world.Refused(400, "BadRequest", words):
        selectors.by_labels(selector)


def test_a_label_selector_object_chooses_by_labels_and_expressions() -> None:
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]},
            {"key": "old", "operator": "DoesNotExist"},
            {"key": "zone", "operator": "NotIn", "values": ["z"]},
            {"key": "name", "operator": "Exists"},
        ],
    }
    matches = selectors.by_labels(selector)

    assert matches(labelled(app="web", tier="a", name=""))
    assert not matches(labelled(app="web", tier="c", name=""))
    assert not matches(labelled(app="web", tier="a", name="", old="1"))
    assert not matches(labelled(app="web", tier="a", name="", zone="z"))
    assert not matches(labelled(app="web", tier="a"))


_words = st.from_regex(r"[a-z]{1,2}", fullmatch=True)


@settings(deadline=None)
@given(st.dictionaries(_words, _words, max_size=3), st.dictionaries(_words, _words, max_size=3))
def test_equality_means_the_same_in_both_spellings(wanted: dict[str, str], labels: dict[str, str]) -> None:
    text = ",".join(f"{key}={value}" for key, value in wanted.items())
    content = labelled(**labels)

    assert selectors.by_labels(text)(content) == selectors.by_labels(wanted)(content)
    assert selectors.by_labels(text)(content) == (wanted.items() <= labels.items())


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("metadata.name=a", True),
        ("metadata.name!=a", False),
        ("metadata.name=a,metadata.namespace==n", True),
        ("spec.nodeName=n1", True),
        ("spec.nodeName!=n1,metadata.name=a", False),
        ("status.phase=", True),
        ("spec.hostNetwork=true", True),
    ],
)
def test_pods_are_chosen_by_fields(selector: str, chosen: bool) -> None:
    pod = {"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "n1", "hostNetwork": True}}

    assert selectors.matcher(PODS, fields=selector)(pod) is chosen


def test_a_node_is_schedulable_unless_it_says_otherwise() -> None:
    nodes = kinds.Kind("", "v1", "Node", "nodes", namespaced=False)
    matches = selectors.matcher(nodes, fields="spec.unschedulable=false")

    assert matches({"metadata": {"name": "a"}, "spec": {}})
    assert not matches({"metadata": {"name": "a"}, "spec": {"unschedulable": True}})


def test_fields_of_events_are_those_of_what_they_are_about() -> None:
    events = kinds.Kind("", "v1", "Event", "events")
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "me"}}

    assert selectors.matcher(events, fields="involvedObject.name=p,involvedObject.kind=Pod,source=me")(event)
    assert not selectors.matcher(events, fields="involvedObject.name=q")(event)


@pytest.mark.parametrize(
    ("kind", "selector", "words"),
    [
        (MAPS, "data=x", '"data" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        (PODS, "spec.foo=x", "field label not supported: spec.foo"),
        (dataclasses.replace(MAPS, custom=True), "spec.foo=x", "field label not supported: spec.foo"),
        (MAPS, "metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
    ],
)
def test_fields_that_cannot_be_chosen_by_are_refused(kind: kinds.Kind, selector: str, words: str) -> None:
    with api_world.Refused(400, "BadRequest", words):
        selectors.matcher(kind, fields=selector)


def test_both_selectors_have_to_choose() -> None:
    matches = selectors.matcher(PODS, "a=b", "metadata.name=x")

    assert matches(labelled(a="b"))
    assert not matches(labelled(a="c"))
    assert not matches({"metadata": {"name": "y", "labels": {"a": "b"}}})
    assert selectors.matcher(PODS, "", "") is selectors.everything
