"""The firewall rule that leads connections to the API's virtual address to HAProxy.

It is there only while HAProxy answers for the API, so that a HAProxy that fails costs balancing and not the API. Rules
decide about new connections alone: those that exist stay where they are when the rule comes or goes.
"""

from __future__ import annotations

import http.client
import ipaddress
import ssl
import subprocess
from pathlib import Path

from moorage.network import checks, settings

TABLE = "moorage_network"
PATIENCE = 10.0


def ruleset(vips: tuple[str, ...]) -> str:
    """The whole table, in nft's language: applied at once or not at all."""
    rules = []
    for vip in vips:
        family = "ip" if ipaddress.ip_address(vip).version == 4 else "ip6"
        rules.append(f"{family} daddr {vip} tcp dport {checks.API_PORT} redirect to :{checks.BALANCED_PORT}")
    incoming = "".join(f"\n    {rule}" for rule in rules)
    # From the node itself only while the address is on it: then, and only then, packets leave by the loopback.
    own = "".join(f'\n    oifname "lo" {rule}' for rule in rules)
    return (
        f"table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n"
        f"  chain prerouting {{\n    type nat hook prerouting priority -100; policy accept;{incoming}\n  }}\n"
        f"  chain output {{\n    type nat hook output priority -100; policy accept;{own}\n  }}\n}}\n"
    )


def removal() -> str:
    return f"table inet {TABLE}\ndelete table inet {TABLE}\n"


def put(wanted: settings.Settings, *, on: bool, mark: Path) -> None:
    """Set or remove the rule. The mark tells keepalived's checks and the next agent of it: it comes before the rule and
    goes after it, so that whatever is cut short, there is never a rule that nobody knows of."""
    if not on:
        _nft(removal())
        mark.unlink(missing_ok=True)
        return
    known = mark.exists()
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    try:
        _nft(ruleset(wanted.api_vips))
    except TimeoutError:
        raise  # it may be set all the same
    except OSError:
        if not known:
            mark.unlink()
        raise


def _nft(text: str) -> None:
    try:
        ended = subprocess.run(
            ["nft", "-f", "-"], input=text, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"nft: no end after {PATIENCE:g} s") from None
    if ended.returncode:
        said = " ".join((ended.stderr or ended.stdout).split())
        raise OSError(f"nft: {said}")


def answers(port: int, seconds: float = 2.0) -> bool:
    """Whether an API that is ready answers at a port of this node."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As everywhere on the loopback: the question is whether somebody answers, not who.
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("localhost", port, timeout=seconds, context=trusting)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
