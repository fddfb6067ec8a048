"""The questions by which keepalived finds out whether a node may carry a virtual address: small shell scripts.

Each is a question or two by `curl`, asked of the node itself. They are files, not commands in keepalived.conf, so that
a person on the node can run them and see for themselves: ``sh -x /etc/keepalived/chk-api.sh``.
"""

from __future__ import annotations

FOLDER = "/etc/keepalived"
REDIRECT_MARK = "/run/moorage/iptables-rule-exists"
"""There while the firewall leads the API's port of the virtual address to HAProxy. Its name is the one that the
payload's own pods use for this, by nft or not: those who look for it know it."""

API_PORT, BALANCED_PORT, CONFIG_PORT = 6443, 9445, 22623
HAPROXY_MONITOR_PORT, HAPROXY_STATS_PORT = 9454, 29445
ROUTER_PORT, DNS_HEALTH_PORT = 1936, 18080

_ASK = "curl --silent --fail --insecure --max-time 2 --output /dev/null"

API, BALANCED, CONFIG, DNS, ROUTER, ROUTER_READY = (
    "chk-api",
    "chk-balanced",
    "chk-machine-config",
    "chk-dns",
    "chk-router",
    "chk-router-ready",
)

_SCRIPTS = {
    API: (
        "Whoever connects to the API's port is answered: by HAProxy while the firewall leads there, else directly.",
        "set -e\n"
        f"test ! -e {REDIRECT_MARK} || {_ASK} https://localhost:{BALANCED_PORT}/readyz\n"
        f"test -e {REDIRECT_MARK} || {_ASK} https://localhost:{API_PORT}/readyz",
    ),
    BALANCED: (
        "Connections to the API are spread over all masters.",
        f"test -e {REDIRECT_MARK} && {_ASK} http://localhost:{HAPROXY_MONITOR_PORT}/haproxy_monitor",
    ),
    CONFIG: (
        "New nodes get their config here: this port is not balanced, it is answered where the address is.",
        f"{_ASK} https://localhost:{CONFIG_PORT}/healthz",
    ),
    DNS: ("CoreDNS answers.", f"{_ASK} http://localhost:{DNS_HEALTH_PORT}/health"),
    ROUTER: ("A router runs here.", f"{_ASK} http://localhost:{ROUTER_PORT}/healthz"),
    ROUTER_READY: (
        "The router takes new connections: one that is about to end says no, and goes on with those it has.",
        f"{_ASK} http://localhost:{ROUTER_PORT}/healthz/ready",
    ),
}


def path(name: str) -> str:
    return f"{FOLDER}/{name}.sh"


def script(name: str) -> str:
    """The script's text."""
    why, line = _SCRIPTS[name]
    return f"#!/bin/sh\n# {why}\n{line}\n"
