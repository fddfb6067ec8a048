"""All files of a node, the batch that tells them, and the lab's reading of them."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moorage.lab.nodes import haproxy_cfg, keepalived_conf
from moorage.network import checks, corefile, haproxy, keepalived, pods, rendering, settings, view
from tests.unit.network import conftest

REQUEST = {
    "settings": json.loads(conftest.SETTINGS.to_json()),
    "role": "master",
    "self": {"name": "master-0", "address": "10.0.0.10", "interface": "ens3", "prefix": 24},
    "nodes": [
        {"name": "master-1", "address": "10.0.0.11", "role": "master"},
        {"name": "master-0", "address": "10.0.0.10", "role": "master"},
    ],
    "resolvers": ["192.0.2.53"],
}


def test_a_role_has_its_files(wanted: settings.Settings, seen: view.View) -> None:
    found = {role: set(rendering.files(wanted, role, seen)) for role in view.ROLES}
    everywhere = {keepalived.PATH, corefile.PATH, corefile.HOSTS_PATH}
    ingress = {checks.path(checks.ROUTER), checks.path(checks.ROUTER_READY)}
    api = {checks.path(each) for each in (checks.API, checks.BALANCED, checks.CONFIG)}

    assert found["bootstrap"] == everywhere
    assert found["worker"] == everywhere | ingress
    assert found["master"] == everywhere | ingress | api | {haproxy.PATH}


def test_every_script_that_keepalived_runs_is_among_the_files(dual: settings.Settings, seen: view.View) -> None:
    for role in view.ROLES:
        found = rendering.files(dual, role, seen)
        config = keepalived_conf.parse(found[keepalived.PATH])
        assert all(script.command in found for script in config.scripts.values())


@pytest.mark.parametrize("role", view.ROLES)
@pytest.mark.parametrize("nodes", [(), conftest.VIEW.nodes], ids=["alone", "among others"])
def test_the_lab_reads_what_is_rendered_without_a_warning(
    dual: settings.Settings, seen: view.View, role: str, nodes: tuple[view.Node, ...]
) -> None:
    found = rendering.files(dual, role, dataclasses.replace(seen, nodes=nodes))

    assert keepalived_conf.parse(found[keepalived.PATH]).warnings == ()
    if role == view.MASTER:
        read = haproxy_cfg.parse(found[haproxy.PATH])
        assert (read.warnings, read.unplayed) == ((), ())


def test_haproxy_balances_over_all_masters_and_asks_each_whether_it_is_ready(
    dual: settings.Settings, seen: view.View
) -> None:
    read = haproxy_cfg.parse(haproxy.render(dual, seen))
    masters = next(each for each in read.proxies if each.name == "masters")

    assert [(each.address, each.port, each.check, each.tls) for each in masters.servers] == [
        (f"10.0.0.1{n}", 6443, True, True) for n in range(3)
    ]
    assert (masters.check.method, masters.check.path) == ("GET", "/readyz")
    assert next(each for each in read.proxies if each.name == "api").binds[0].port == 9445
    assert all(each.binds[0].local for each in read.proxies if each.name in ("monitor", "stats"))


def test_haproxy_listens_on_ipv6_only_where_there_is_any(
    wanted: settings.Settings, dual: settings.Settings, seen: view.View
) -> None:
    assert "bind *:9445\n" in haproxy.render(wanted, seen)
    assert "bind :::9445 v4v6\n" in haproxy.render(dual, seen)


def test_a_master_that_sees_nobody_balances_over_itself(wanted: settings.Settings) -> None:
    text = haproxy.render(wanted, view.View(conftest.ME))

    assert "server master-0 10.0.0.10:6443 " in text


def test_resolvers_that_would_lead_back_here_are_not_asked(wanted: settings.Settings, seen: view.View) -> None:
    given = ("10.0.0.5", "127.0.0.1", "::1", "10.0.0.10", "192.0.2.53", "192.0.2.53", "192.0.2.54")

    text = corefile.render(wanted, dataclasses.replace(seen, resolvers=given))

    assert "forward . 192.0.2.53 192.0.2.54 {" in text


def test_without_resolvers_nothing_is_forwarded(wanted: settings.Settings) -> None:
    assert "forward" not in corefile.render(wanted, view.View(conftest.ME))


def test_hosts_have_nodes_by_both_names_and_this_one_before_the_cluster_knows_it(wanted: settings.Settings) -> None:
    nodes = (view.Node("worker-0.harbour.example.com", view.WORKER, ("10.0.0.20", "fd00::20")),)
    lines = corefile.hosts(wanted, view.View(conftest.ME, nodes)).splitlines()[1:]

    assert lines == [
        "10.0.0.10 master-0 master-0.harbour.example.com",
        "fd00::10 master-0 master-0.harbour.example.com",
        "10.0.0.20 worker-0.harbour.example.com",
        "fd00::20 worker-0.harbour.example.com",
    ]


def test_the_checks_do_not_use_the_api_of_the_node_while_connections_go_to_haproxy(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    curl = tmp_path / "curl"
    curl.write_text('#!/bin/sh\nfor last; do :; done\ncase "$last" in *":$ALIVE/"*) exit 0;; *) exit 7;; esac\n')
    curl.chmod(0o755)
    script = checks.script(checks.API).replace(checks.REDIRECT_MARK, str(mark))

    def passes(alive: int) -> bool:
        environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ALIVE": str(alive)}
        return subprocess.run(["sh", "-c", script], env=environ).returncode == 0

    assert (passes(6443), passes(9445)) == (True, False)
    mark.touch()
    assert (passes(6443), passes(9445)) == (False, True)


# --- the batch ---


def test_the_batch_answers_with_the_files_of_the_node() -> None:
    answer = json.loads(rendering.answer(json.dumps(REQUEST)))
    seen = view.View(
        view.Self("master-0", "10.0.0.10", "ens3", 24, ("10.0.0.10",)),
        tuple(view.Node(f"master-{n}", "master", (f"10.0.0.1{n}",)) for n in range(2)),
        ("192.0.2.53",),
    )

    assert answer == {"files": rendering.files(conftest.SETTINGS, "master", seen)}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"role": "king"}, "'king' is no role"),
        ({"settings": {}}, "settings: "),
        ({"settings": None}, "settings: expected an object"),
        ({"self": {}}, "lacks 'interface'"),
        ({"self": None}, "cannot be used"),
        ({"self": REQUEST["self"] | {"interface": "a b"}}, "'a b' is no name of an interface"),
        ({"self": REQUEST["self"] | {"address": "ens3"}}, "'ens3' does not appear"),
        ({"nodes": [{"name": "x {", "address": "10.0.0.9", "role": "master"}]}, "no name of a node"),
        ({"nodes": [{"name": "x", "address": "10.0.0.9", "role": "boss"}]}, "'boss' is no role"),
        ({"resolvers": ["dns.example.com"]}, "does not appear"),
    ],
)
def test_the_batch_says_what_is_wrong_with_a_request(change: dict[str, object], why: str) -> None:
    answer = json.loads(rendering.answer(json.dumps({**REQUEST, **change})))

    assert list(answer) == ["error"]
    assert why in answer["error"]


@given(st.one_of(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)))
def test_the_batch_survives_any_line(line: str) -> None:
    assert list(json.loads(rendering.answer(line))) == ["error"]


def test_the_batch_command_answers_each_line_at_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "moorage", "node-network", "render", "--batch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as batch:
        assert batch.stdin is not None
        assert batch.stdout is not None
        for line, key in (("nonsense\n", "error"), (json.dumps(REQUEST) + "\n", "files")):
            batch.stdin.write(line)
            batch.stdin.flush()
            assert list(json.loads(batch.stdout.readline())) == [key]
        batch.stdin.close()
        assert batch.wait(10) == 0


def test_the_manifest_is_yaml_with_one_pod(wanted: settings.Settings) -> None:
    pod = yaml.safe_load(pods.to_yaml(wanted, view.MASTER))

    assert (pod["kind"], pod["metadata"]["name"]) == ("Pod", "moorage-network")
