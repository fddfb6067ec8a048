"""Corefiles: what CoreDNS takes and refuses, in its words."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.lab.nodes import corefile, corefile_blocks, corefile_forms

WHOLE = """\
# The names of a cluster.
.:53 {
    errors
    bufsize 1232
    health localhost:18080 {
        lameduck 5s
    }
    reload 5s
    loop
    template IN A harbour.example.com {
        match ^api(-int)?\\.harbour\\.example\\.com\\.$   # a comment
        answer "{{ .Name }} 60 IN A 127.20.0.100"
        fallthrough
    }
    hosts /etc/coredns/nodes.hosts {
        ttl 60
        fallthrough
    }
    forward . 127.20.0.1 127.20.0.2:5353 {
        policy sequential
        except corp.example.com
    }
    cache 30
}
"""


def parse(text: str) -> list[corefile.Server]:
    return corefile.parse(text, "/etc/coredns/Corefile", {"/etc/resolv.conf": "nameserver 10.0.0.1\n"}.get)


def inside(*lines: str) -> str:
    return "\n".join([". {", *lines, "}"])


def refused(text: str) -> str:
    with pytest.raises(corefile.Wrong) as wrong:
        parse(text)
    return str(wrong.value)


def test_a_whole_file_is_read() -> None:
    (server,) = parse(WHOLE)

    assert (server.zones, server.port, server.cache, server.loop) == ((".",), 53, 30, True)
    assert (server.health, server.health_local) == (18080, True)
    (template,) = server.templates
    assert (template.kind, template.zones, template.through) == (1, ("harbour.example.com.",), (".",))
    assert template.answers == ("{{ .Name }} 60 IN A 127.20.0.100",)
    assert template.patterns[0].search("api-int.harbour.example.com.")
    assert server.hosts == corefile.Hosts("/etc/coredns/nodes.hosts", (".",), "", 60, (".",))
    assert server.forwards == (
        corefile.Forward(".", (("127.20.0.1", 53), ("127.20.0.2", 5353)), ("corp.example.com.",)),
    )


def test_zones_come_with_ports_and_without() -> None:
    found = parse("Example.ORG, example.net:5300 {\n errors\n}\n")

    assert [(each.zones, each.port) for each in found] == [(("example.org.",), 53), (("example.net.",), 5300)]


def test_a_block_needs_no_braces_and_may_import_what_was_defined_before() -> None:
    (server,) = parse("(common) {\n errors\n cache 20\n}\n. {\n import common\n}\n")
    (bare,) = parse(".:53\nerrors\ncache 10\n")

    assert (server.cache, bare.cache) == (20, 10)


def test_words_may_be_quoted_over_lines() -> None:
    found = corefile_blocks.words('one "two \\"three\\"\nfour" five#six\nseven')

    assert [(word.text, word.line) for word in found] == [
        ("one", 1),
        ('two "three"\nfour', 1),
        ("five", 2),
        ("seven", 3),
    ]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("mdns example.com",), "/etc/coredns/Corefile:2 - Error during parsing: Unknown directive 'mdns'"),
        (("errors", "errors"), "plugin/errors: this plugin can only be used once per Server Block"),
        (("errors to.log",), "plugin/errors: {} - Error during parsing: invalid log file: to.log"),
        (
            ("errors {", "loud", "}"),
            "plugin/errors: {3} - Syntax error: Unexpected token 'loud', expecting 'Unknown field",
        ),
        (
            ("loop twice",),
            "plugin/loop: {} - Error during parsing: Wrong argument count or unexpected line ending after",
        ),
        (("health 18080",), "plugin/health: address 18080: missing port in address"),
        (("health {", "lazy", "}"), "plugin/health: {3} - Error during parsing: unknown property 'lazy'"),
        (("reload 1s",), "plugin/reload: interval value must be greater or equal to 2s"),
        (("reload soon",), 'plugin/reload: time: invalid duration "soon"'),
        (("cache 0",), "plugin/cache: cache TTL can not be zero or negative: 0"),
        (("bufsize 9000",), "plugin/bufsize: plugin/bufsize: {} - Error during parsing: Wrong argument count"),
        (
            ("template IN",),
            "plugin/template: {} - Error during parsing: Wrong argument count or unexpected line ending",
        ),
        (("template OUT A",), "plugin/template: {} - Error during parsing: invalid query class OUT"),
        (("template IN B",), "plugin/template: {} - Error during parsing: invalid RR class B"),
        (("template IN A {", "match (", "}"), "plugin/template: {3} - Error during parsing: could not parse regex: ("),
        (("template IN A {", "rcode OOPS", "}"), "plugin/template: {3} - Error during parsing: unknown rcode OOPS"),
        (("template IN A {", "guess", "}"), "plugin/template: {3} - Error during parsing: Wrong argument count"),
        (("template IN A {", 'answer "{{ .Name "', "}"), "could not compile template: {{ .Name "),
        (("template IN A {", 'answer "{{ .Remote }}"', "}"), "the lab does not know the template action"),
        (("hosts f {", "ttl 0", "}"), "plugin/hosts: {3} - Error during parsing: ttl provided is invalid"),
        (("hosts f {", "ttl x", "}"), "plugin/hosts: {3} - Error during parsing: ttl needs a number of second"),
        (
            ("hosts f {", "fallthrough", "what", "}"),
            "plugin/hosts: {4} - Error during parsing: unknown property 'what'",
        ),
        (
            ("forward .",),
            "plugin/forward: {} - Error during parsing: Wrong argument count or unexpected line ending after",
        ),
        (("forward . nowhere",), 'plugin/forward: not an IP address or file: "nowhere"'),
        (
            ("forward . 10.0.0.1 {", "policy best", "}"),
            "plugin/forward: {3} - Error during parsing: unknown policy 'best'",
        ),
        (("forward . 10.0.0.1 {", "hope", "}"), "plugin/forward: {3} - Error during parsing: unknown property 'hope'"),
        (
            ("kubernetes cluster.local",),
            "plugin/kubernetes: {} - Error during parsing: the lab does not play this plugin",
        ),
    ],
)
def test_what_is_wrong_is_told_as_coredns_tells_it(lines: tuple[str, ...], words: str) -> None:
    words = words.replace("{}", "/etc/coredns/Corefile:2")
    for number in (3, 4):
        words = words.replace(f"{{{number}}}", f"/etc/coredns/Corefile:{number}")

    assert words in refused(inside(*lines))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (". {\nerrors\n", "Syntax error: Unexpected token 'errors', expecting '}'"),
        (". {\nhosts f {\nttl 5\n", "Unexpected EOF"),
        (". {\nerrors }\n}\n", "Unexpected '}' because no matching opening brace"),
        (". {\nerrors\n}\n.:53 {\nerrors\n}\n", "cannot serve dns://.:53 - it is already defined"),
        (". {\nimport nothing\n}\n", "File to import not found: nothing"),
        ("(a) {\nimport a\n}\n. {\nimport a\n}\n", "maximum snippet import depth (10000) exceeded"),
        ("a, {\n}\n", "Expected another address but had '{' - check for extra comma"),
    ],
)
def test_blocks_must_fit_together(text: str, words: str) -> None:
    assert words in refused(text)


def test_upstreams_may_stand_in_a_file() -> None:
    (server,) = parse(inside("forward . /etc/resolv.conf"))

    assert server.forwards[0].to == (("10.0.0.1", 53),)


def test_addresses_may_stand_in_the_file_itself() -> None:
    (server,) = parse(inside("hosts {", "10.0.0.5 five", "fallthrough example.com", "}"))

    assert server.hosts is not None
    assert (server.hosts.inline, server.hosts.through) == ("10.0.0.5 five", ("example.com.",))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5.0), ("1m30s", 90.0), ("250ms", 0.25), ("0", 0.0), ("-1s", -1.0), ("5", None), ("s", None), ("1x", None)],
)
def test_durations_are_written_as_in_go(text: str, seconds: float | None) -> None:
    assert corefile_forms.duration(text) == seconds


@given(st.text(alphabet=' \n{}"#\\.,:;()a1', max_size=60))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    with contextlib.suppress(corefile.Wrong):
        parse(text)
