"""Static pods with keepalived and HAProxy: where their configs are, and what their scripts ask."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from moorage.lab.nodes import files, track_scripts, vip, vip_pods
from tests.unit.lab.nodes.vip_world import KEPT, PORT, Scene, conf, console, haproxy, keepalived, pod, story, until


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        (f"curl http://localhost:{PORT}/", True),
        (f"curl http://127.0.0.1:{PORT + 1}/ || curl http://localhost:{PORT}/", True),
        (f"curl http://localhost:{PORT}/ || curl http://localhost:{PORT + 1}/", True),
        (f"curl http://localhost:{PORT}/ && curl http://localhost:{PORT + 1}/", False),
        (f"curl http://localhost:{PORT + 1}/ && curl http://localhost:{PORT}/", False),
        (f"curl http://localhost:{PORT}/ && [ -e /var/run/keepalived/iptables-rule-exists ]", False),
        ("[ -e /etc/keepalived/keepalived.conf ]", True),
        ("test -f /etc/keepalived/other", False),
        ("killall -0 web", True),
        ("pidof haproxy", False),
        ("chroot /host /bin/crictl ps --state running | grep -qE '\\smachine-config-server\\s'", False),
        (f"if ! curl http://localhost:{PORT + 1}/; then\nexit 1\nfi", False),
        (f"if ! curl http://localhost:{PORT}/; then\nexit 1\nfi", True),
        (f"curl http://localhost:{PORT + 1}/ || exit 1\nexit 0", False),
        ("/bin/false", False),
        ("ping -c1 192.0.2.1", True),
    ],
)
def test_what_a_script_asks(text: str, passes: bool) -> None:
    async def tell(scene: Scene) -> None:
        machine = scene.idle({KEPT: "", "/etc/keepalived/c.sh": f"#!/bin/bash\n# why\n{text}\n"})
        await scene.serve(machine)
        program = vip_pods.Program("keepalived", "keepalived", KEPT, "")
        questions = track_scripts.Questions(machine, program, lambda: False)

        for _ in range(2):
            assert await questions.passes("chk", "/usr/bin/timeout 1.9 /etc/keepalived/c.sh") == passes
        assert console(machine).count("the lab cannot run") == ("ping" in text)

    story(tell)


def test_a_config_with_a_mistake_keeps_the_pod_from_starting() -> None:
    async def tell(scene: Scene) -> None:
        machine = await scene.machine("m", keepalived(conf(scene.address, 40, "bogus 3")) | haproxy("frontend x\n"))
        await until(lambda: "Unknown keyword 'bogus'" in console(machine))
        await until(lambda: "[haproxy.cfg:1]" in console(machine))
        assert f"keepalived: {KEPT}: (Line 13) Unknown keyword 'bogus'" in console(machine)
        assert not {"keepalived", "haproxy"} & set(machine.wire.listening)
        assert scene.holder() == ""

        machine.kept[KEPT] = conf(scene.address, 40).encode()
        await scene.held_by("m")
        assert console(machine).count("Unknown keyword 'bogus'") == 1

    story(tell)


def test_a_config_that_changes_is_used_after_it_was_seen_three_times() -> None:
    async def tell(scene: Scene) -> None:
        machine = scene.idle(keepalived(conf(scene.address, 40)))
        node = vip.Node(machine)
        await node.look()
        machine.kept[KEPT] = conf(scene.address, 80).encode()

        reloaded = []
        for _ in range(4):
            await node.look()
            reloaded.append("keepalived: reloading" in console(machine))

        assert reloaded == [False, False, True, True]
        await until(lambda: "Entering MASTER STATE (priority 80)" in console(machine))
        await node.stop(resigning=True)

    story(tell)


def test_a_pod_that_is_taken_away_stops() -> None:
    async def tell(scene: Scene) -> None:
        machine = scene.idle(keepalived(conf(scene.address, 40)))
        node = vip.Node(machine)
        await node.look()
        await scene.held_by("idle")

        del machine.kept["/etc/kubernetes/manifests/keepalived.yaml"]
        await node.look()

        assert (scene.holder(), machine.wire.listening) == ("", [])

    story(tell)


def test_a_pod_without_its_config_waits_for_it() -> None:
    async def tell(scene: Scene) -> None:
        contents = keepalived("")
        del contents[KEPT]
        machine = await scene.machine("m", contents)
        await until(lambda: f"cannot open {KEPT}: No such file" in console(machine))

        machine.kept[KEPT] = conf(scene.address, 40).encode()
        await scene.held_by("m")

    story(tell)


def test_a_machine_without_such_pods_costs_nothing() -> None:
    async def tell(scene: Scene) -> None:
        plain = await scene.machine("plain", {"/etc/kubernetes/manifests/other.yaml": pod("other", "/etc/other")})
        with_pod = await scene.machine("held", keepalived(conf(scene.address, 40)))

        assert (vip.wanted(plain), vip.wanted(with_pod)) == (False, True)

    story(tell)


class Disk:
    """A machine of which nothing but the disk is looked at."""

    provisioned = None

    def __init__(self, contents: Mapping[str, str]) -> None:
        self.kept = {path: text.encode() for path, text in contents.items()}


@pytest.mark.parametrize(
    ("manifest", "name", "path"),
    [
        (pod("keepalived", "/etc/keepalived", f"set -e\nkeepalived -n -f {KEPT} &\nwait"), "keepalived", KEPT),
        (pod("vrrp", "/etc/keepalived", image="example.com/osixia/keepalived:2.0"), "keepalived", KEPT),
        (pod("lb", "/srv/lb", image="haproxytech/haproxy-alpine:2.6"), "haproxy", "/srv/lb/deep/haproxy.cfg"),
        (pod("lb", "/srv/lb", "exec haproxy -db -f /srv/lb/deep/haproxy.cfg"), "haproxy", "/srv/lb/deep/haproxy.cfg"),
    ],
)
def test_where_a_pod_has_its_config(manifest: str, name: str, path: str) -> None:
    disk = Disk({"/etc/kubernetes/manifests/x.yaml": manifest, KEPT: "k", "/srv/lb/deep/haproxy.cfg": "h"})

    (found,) = vip_pods.programs(files.Files(disk))

    assert (found.name, found.path, found.config) == (name, path, name[0])


def test_a_path_inside_the_container_is_led_back_to_the_disk() -> None:
    manifest = pod("keepalived", "/srv/vrrp", "keepalived -f /config/keepalived.conf").replace(
        "mountPath: /srv/vrrp", "mountPath: /config"
    )
    disk = Disk({"/etc/kubernetes/manifests/x.yaml": manifest, "/srv/vrrp/keepalived.conf": "k"})

    (found,) = vip_pods.programs(files.Files(disk))

    assert (found.path, found.config) == ("/srv/vrrp/keepalived.conf", "k")


@pytest.mark.parametrize(
    "manifest",
    ["{", "[]", "kind: Pod", pod("dyn", "/etc/keepalived", "dynkeepalived --out /etc/keepalived/keepalived.conf")],
)
def test_what_runs_neither_is_nobodys_affair(manifest: str) -> None:
    assert vip_pods.programs(files.Files(Disk({"/etc/kubernetes/manifests/x.yaml": manifest, KEPT: "k"}))) == []
