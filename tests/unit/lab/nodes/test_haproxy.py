"""HAProxy on a machine that holds a virtual address: through it, past it, and what asks for it."""

from __future__ import annotations

from moorage.lab import site as sites
from tests.unit.lab.nodes.vip_world import (
    API,
    BALANCED,
    TRACK,
    Scene,
    conf,
    console,
    haproxy,
    keepalived,
    script,
    story,
    until,
)


def balancing(addresses: list[str]) -> str:
    servers = "\n".join(
        f"  server s{number} {address}:{API} weight 1 verify none check check-ssl inter 5s fall 3 rise 1"
        for number, address in enumerate(addresses)
    )
    return f"""\
defaults
  mode tcp
frontend main
  bind :::{BALANCED} v4v6
  default_backend masters
listen ready
  bind :::9444 v4v6
  mode http
  monitor-uri /haproxy_ready
listen stats
  bind localhost:29445
  mode http
  stats enable
backend masters
  option httpchk GET /readyz HTTP/1.0
  balance roundrobin
{servers}
"""


def test_the_api_goes_through_haproxy_once_that_works() -> None:
    async def tell(scene: Scene) -> None:
        network_ = scene.site.networks[sites.DEFAULT_NETWORK]
        addresses = [str(network_[257]), str(network_[258])]
        contents = keepalived(conf(scene.address, 40)) | haproxy(balancing(addresses))
        one = await scene.machine("one", contents, port=API, tls=True)
        await scene.machine("two", {}, port=API, tls=True)
        assert one.address == addresses[0]

        await scene.answered_by("two", API, tls=True)
        assert {await scene.asked(API, tls=True) for _ in range(4)} == {"one", "two"}
        assert "lead port 6443" in console(one)
        assert await scene.asked(29445) == ""

        # The holder's own API may be ill: HAProxy knows of another that is not.
        scene.webs["one"].status = 503
        await until(lambda: "Server masters/s0 is DOWN" in console(one))
        assert {await scene.asked(API, tls=True) for _ in range(4)} == {"two"}

        # With no server up, HAProxy is of no use; the port leads to the machine itself again.
        scene.webs["two"].status = 503
        await until(lambda: "no longer lead port 6443" in console(one))
        assert await scene.asked(API, tls=True) == "one"

    story(tell)


def test_a_script_that_asks_haproxy() -> None:
    async def tell(scene: Scene) -> None:
        asks = script("/usr/bin/curl -kLfs http://localhost:9444/haproxy_ready", 0)
        contents = keepalived(conf(scene.address, 40, TRACK, head=asks)) | haproxy(balancing([]))
        machine = await scene.machine("one", contents)
        await scene.held_by("one")

        machine.kept["/etc/kubernetes/manifests/haproxy.yaml"] = b"{}"
        await until(lambda: scene.holder() == "")
        assert "Script `chk` failed" in console(machine)

    story(tell)
