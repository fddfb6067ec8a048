"""A program that answers as `moorage node-network render --batch` does, with files from which a story can be told."""

from __future__ import annotations

import json
import sys
from typing import Any

SEEN = "/etc/moorage/seen.json"


def keepalived(request: dict[str, Any]) -> str:
    me = request["self"]
    peers = [each["address"] for each in request["nodes"] if each["address"] != me["address"]] or ["127.0.0.1"]
    listed = "\n".join(peers)
    return f"""
vrrp_instance API {{
    interface {me["interface"]}
    virtual_router_id 51
    priority {70 if request["role"] == "bootstrap" else 40}
    unicast_src_ip {me["address"]}
    unicast_peer {{
        {listed}
    }}
    virtual_ipaddress {{
        {request["settings"]["vip"]}/32
    }}
}}
"""


def files(request: dict[str, Any]) -> dict[str, str]:
    names = "".join(f"{each['address']} {each['name']}\n" for each in request["nodes"])
    servers = " ".join(request["resolvers"])
    blocks = ["errors", "hosts /etc/coredns/nodes.hosts {", "fallthrough", "}", f"forward . {servers}"]
    config = keepalived(request)
    if request["settings"].get("spoilt") and len(request["nodes"]) > 1:
        config = config.replace("vrrp_instance", "vrrp_intsance")
    return {
        "/etc/keepalived/keepalived.conf": config,
        "/etc/coredns/Corefile": "\n".join([". {", *blocks, "}"]),
        "/etc/coredns/nodes.hosts": names,
        SEEN: json.dumps(request),
    }


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        why = request["settings"].get("error")
        print(json.dumps({"error": why} if why else {"files": files(request)}), flush=True)


if __name__ == "__main__":
    main()
