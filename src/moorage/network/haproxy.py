"""haproxy.cfg: the API of all masters behind one port of each.

It listens beside the API, on 9445; the agent's firewall rule leads connections to the virtual address there. So a
master whose own API restarts goes on serving, and the virtual address does not have to move.
"""

from __future__ import annotations

from moorage.network import checks, settings, view

PATH = "/etc/haproxy/haproxy.cfg"

# Watches on the API are silent for long; the API ends them itself.
_HEAD = """\
# Written by moorage node-network: what is changed here is written over.
global
    log stdout format raw local0 warning
    maxconn 8000
    hard-stop-after 60s

defaults
    mode tcp
    log global
    maxconn 8000
    option dontlognull
    option redispatch
    retries 3
    timeout connect 5s
    timeout client 86400s
    timeout server 86400s
    timeout client-fin 10s
    timeout server-fin 10s
    timeout check 5s
"""


def render(wanted: settings.Settings, seen: view.View) -> str:
    """The whole file. A master that sees no other yet balances over itself."""
    everywhere = f":::{checks.BALANCED_PORT} v4v6" if wanted.has_ipv6 else f"*:{checks.BALANCED_PORT}"
    lines = [
        "frontend api",
        f"    bind {everywhere}",
        "    default_backend masters",
        "",
        "listen monitor",
        f"    bind 127.0.0.1:{checks.HAPROXY_MONITOR_PORT}",
        "    mode http",
        "    monitor-uri /haproxy_monitor",
        "    monitor fail if { nbsrv(masters) lt 1 }",
        "    timeout client 10s",
        "    timeout server 10s",
        "",
        "listen stats",
        f"    bind 127.0.0.1:{checks.HAPROXY_STATS_PORT}",
        "    mode http",
        "    stats enable",
        "    stats hide-version",
        "    stats uri /haproxy_stats",
        "    timeout client 10s",
        "    timeout server 10s",
        "",
        "backend masters",
        "    balance leastconn",
        "    option httpchk GET /readyz HTTP/1.0",
        *(f"    {line}" for line in _servers(seen)),
    ]
    return _HEAD + "\n" + "\n".join(lines) + "\n"


def _servers(seen: view.View) -> list[str]:
    masters = {each.name: each.addresses[0] for each in seen.nodes if each.role == view.MASTER}
    masters.setdefault(seen.me.name, seen.me.address)
    return [
        f"server {name} {_bracketed(address)}:{checks.API_PORT} check check-ssl verify none inter 2s fall 3 rise 2"
        for name, address in sorted(masters.items())
    ]


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
