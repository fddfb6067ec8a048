"""Proxies and image sources."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.config import access_rules

from .conftest import Check

PASSWORD = "s3cr3t"


@pytest.mark.parametrize(
    ("proxy", "field", "words"),
    [
        ({"httpProxy": "http://proxy.example.com:3128"}, "", ""),
        ({"httpProxy": "http://me:pa%40ss@10.1.2.3:3128"}, "", ""),
        ({"httpsProxy": "https://[fd00::1]:3128"}, "", ""),
        ({"httpProxy": "http://proxy", "noProxy": "*"}, "", ""),
        (
            {"httpProxy": "http://proxy", "noProxy": ".example.com,example.org.,10.0.0.0/8,192.0.2.7,fd00::/8"},
            "",
            "",
        ),
        ({"noProxy": "example.com"}, "proxy", "names no proxy"),
        ({"httpProxy": "https://proxy:3128"}, "proxy.httpProxy", "must begin with http://"),
        ({"httpsProxy": "socks5://proxy:3128"}, "proxy.httpsProxy", "http:// or https://"),
        ({"httpProxy": "proxy:3128"}, "proxy.httpProxy", "has no scheme"),
        ({"httpProxy": f"http://me:{PASSWORD}@x@proxy:3128"}, "proxy.httpProxy", "not percent-encoded"),
        ({"httpProxy": f"http://me:{PASSWORD}#x@proxy:3128"}, "proxy.httpProxy", "not percent-encoded"),
        ({"httpProxy": f"http://me:{PASSWORD}%zz@proxy:3128"}, "proxy.httpProxy", "not percent-encoded"),
        ({"httpProxy": "http://proxy:port"}, "proxy.httpProxy", "no valid host and port"),
        ({"httpProxy": "http://proxy:99999"}, "proxy.httpProxy", "no valid host and port"),
        ({"httpProxy": "http://"}, "proxy.httpProxy", "does not name a host"),
        ({"httpProxy": "http://pro_xy:3128"}, "proxy.httpProxy", "does not name a host"),
        ({"httpProxy": "http://172.30.0.9:3128"}, "proxy.httpProxy", "inside networking.serviceNetwork"),
        ({"httpsProxy": "http://10.129.0.9:3128"}, "proxy.httpsProxy", "inside networking.clusterNetwork"),
        ({"httpProxy": "http://proxy", "noProxy": "a.com,,b.com"}, "proxy.noProxy", "entry 2, '', is empty"),
        ({"httpProxy": "http://proxy", "noProxy": "a.com, b.com"}, "proxy.noProxy", "has spaces"),
        ({"httpProxy": "http://proxy", "noProxy": "*.a.com"}, "proxy.noProxy", "wildcard"),
        ({"httpProxy": "http://proxy", "noProxy": "a.com,*"}, "proxy.noProxy", "must stand alone"),
        ({"httpProxy": "http://proxy", "noProxy": "http://a.com/x"}, "proxy.noProxy", "is a URL"),
        ({"httpProxy": "http://proxy", "noProxy": "10.0.0.300"}, "proxy.noProxy", "looks like an IP address"),
        ({"httpProxy": "http://proxy", "noProxy": "10.0.0.0/99"}, "proxy.noProxy", "is no domain"),
        ({"httpProxy": "http://proxy", "noProxy": "a_b!"}, "proxy.noProxy", "is no domain"),
    ],
)
def test_proxies(check: Check, proxy: dict[str, str], field: str, words: str) -> None:
    found = check({"proxy": proxy})

    assert [finding.field for finding in found] == ([field] if field else [])
    assert all(words in finding.message for finding in found)
    assert not any(PASSWORD in finding.message + finding.remedy for finding in found)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("quay.io/openshift-release-dev/ocp-release", ""),
        ("registry.example.com:5000", ""),
        ("localhost/images", ""),
        ("registry", ""),
        ("10.0.0.7:5000/a/b_c/d--e", ""),
        ("[fd00::7]:5000/a", ""),
        ("https://quay.io/a/", "begins with https://"),
        ("quay.io/a/b:latest", "no tag and no digest"),
        ("quay.io/a/b@sha256:00", "no tag and no digest"),
        ("library/ubuntu", "does not begin with a registry's host"),
        ("quay.io:port/a", "does not begin with a registry's host"),
        ("quay.io:70000/a", "does not begin with a registry's host"),
        ("", "does not begin with a registry's host"),
        ("*.example.com", "does not begin with a registry's host"),
        ("quay.io/Upper/Case", "other than lower-case"),
        ("quay.io/a//b", "other than lower-case"),
        ("quay.io/a/", "other than lower-case"),
        ("quay.io/" + "a" * 250, "longer than 255"),
    ],
)
def test_repositories(name: str, words: str) -> None:
    found = list(access_rules.repository("source", name))

    assert len(found) == bool(words)
    assert all(words in finding.message for finding in found)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("https://quay.io/a/", "quay.io/a"),
        ("quay.io:443/a/b:latest", "quay.io:443/a/b"),
        ("quay.io/a/b:1@sha256:00", "quay.io/a/b"),
        ("quay.io/Upper", "quay.io/upper"),
    ],
)
def test_what_was_probably_meant_is_itself_sound(name: str, meant: str) -> None:
    [finding] = access_rules.repository("source", name)

    assert finding.remedy == f"did you mean {meant}?"
    assert list(access_rules.repository("source", meant)) == []


@given(st.text(max_size=40))
def test_no_text_makes_the_checks_raise(text: str) -> None:
    list(access_rules.repository("f", text))
    list(access_rules.no_proxy("f", text))
    list(access_rules.proxy_url("f", text, ("http",)))
    list(access_rules.proxy_url("f", "http://" + text, ("http",)))


SOURCE = {"source": "quay.io/a/b", "mirrors": ["mirror.example.com:5000/a/b"]}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"imageDigestSources": [SOURCE]}, []),
        ({"imageDigestSources": [{**SOURCE, "sourcePolicy": "NeverContactSource"}]}, []),
        ({"imageDigestSources": [SOURCE, SOURCE]}, [("error", "imageDigestSources[1].source")]),
        (
            {"imageDigestSources": [{**SOURCE, "mirrors": ["good.io/a", "bad/a"]}]},
            [("error", "imageDigestSources[0].mirrors[1]")],
        ),
        ({"imageContentSources": [SOURCE]}, [("warning", "imageContentSources")]),
        (
            {"imageContentSources": [SOURCE], "imageDigestSources": [SOURCE]},
            [("error", "imageContentSources")],
        ),
    ],
)
def test_image_sources(check: Check, changes: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert [(finding.severity, finding.field) for finding in check(changes)] == found
