"""Ways in and out: proxies, and the repositories that images come from.

A wrong proxy or mirror shows an hour later as a bootstrap that never pulls its first image, so both are taken apart
here. URLs are not echoed: they may carry a password.
"""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Final

from moorage.config import findings, model, names, network_rules, rule, stanza

_USERINFO: Final = re.compile(r"([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*")
_HOST_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?")
_PATH_PART: Final = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*")
_REPOSITORY: Final = 255


def proxy_url(field: str, url: str, schemes: Sequence[str]) -> Iterator[findings.Finding]:
    """An URL of a proxy: scheme, perhaps user and password, host, perhaps port, and nothing else."""
    encode = "percent-encode special characters of user and password: @ is %40, / is %2F, # is %23, : is %3A, % is %25"
    scheme, separator, rest = url.partition("://")
    if not separator:
        yield findings.Finding(field, "has no scheme", remedy=f"begin it with {schemes[0]}://")
        return
    if scheme not in schemes:
        allowed = " or ".join(f"{name}://" for name in schemes)
        yield findings.Finding(field, f"begins with {scheme[:20]!r}; it must begin with {allowed}")
    userinfo, at, _ = rest.rpartition("@")
    if at and not _USERINFO.fullmatch(userinfo):
        yield findings.Finding(field, "has a user or password that is not percent-encoded", remedy=encode)
        return
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        yield findings.Finding(field, "has no valid host and port", remedy=encode if at else "write host:port")
        return
    if not _is_host(host):
        yield findings.Finding(field, "does not name a host", remedy=f"write {schemes[0]}://<host>:<port>")
    if re.search(r"\s", url):
        yield findings.Finding(field, "has a space in it", remedy="remove it, or write it as %20")


def no_proxy(field: str, listed: str) -> Iterator[findings.Finding]:
    """``*``, or domains, addresses and networks."""
    if listed in ("", "*"):
        return
    if re.search(r"\s", listed):
        yield findings.Finding(field, "has spaces in it", remedy="separate entries by commas alone")
    for index, entry in enumerate(listed.split(","), start=1):
        fault = _no_proxy_fault(entry.strip())
        if fault:
            yield findings.Finding(field, f"entry {index}, {entry.strip()[:60]!r}, {fault[0]}", remedy=fault[1])


def _no_proxy_fault(entry: str) -> tuple[str, str] | None:
    if not entry:
        return "is empty", "remove the comma"
    if entry == "*":
        return "stands for everything, so it must stand alone", "write noProxy: '*', or remove it"
    if entry.startswith("*."):
        return "has a wildcard, which is not understood", f"did you mean {entry[1:]}?"
    if "://" in entry:
        return "is a URL", f"did you mean {entry.split('://', 1)[1].split('/')[0]}?"
    if names.is_dns_name(entry.removeprefix(".").removesuffix(".")):
        return _malformed_address(entry)
    try:
        ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return "is no domain, IP address or CIDR", "write example.com, .example.com, 10.0.0.1 or 10.0.0.0/8"
    return None


def _malformed_address(entry: str) -> tuple[str, str] | None:
    """10.0.0.300 is a DNS name by the letter, but nobody means one."""
    if re.fullmatch(r"[0-9.]+", entry):
        try:
            ipaddress.ip_address(entry)
        except ValueError:
            return "looks like an IP address but is none", "write four numbers from 0 to 255"
    return None


def repository(field: str, name: str) -> Iterator[findings.Finding]:
    """A registry's host, perhaps with port and path; no scheme, tag or digest."""
    scheme, separator, rest = name.partition("://")
    if separator:
        message = f"begins with {scheme[:20]}://, but repositories have no scheme"
        yield findings.Finding(field, message, remedy=f"did you mean {rest.rstrip('/')}?")
        return
    host, slash, path = name.partition("/")
    last = path.rpartition("/")[2]
    if "@" in name or ":" in last:
        bare = name.split("@")[0]
        if ":" in bare.rpartition("/")[2] and "/" in bare:
            bare = bare.rpartition(":")[0]
        yield findings.Finding(
            field, "names one image; a repository has no tag and no digest", remedy=f"did you mean {bare}?"
        )
        return
    if not _is_registry(host, has_path=bool(slash)):
        yield findings.Finding(
            field, f"{name[:80]!r} does not begin with a registry's host", remedy="write <host>[:<port>]/<path>"
        )
    elif len(name) > _REPOSITORY:
        yield findings.Finding(field, f"is longer than {_REPOSITORY} characters")
    elif slash and not all(_PATH_PART.fullmatch(part) for part in path.split("/")):
        yield findings.Finding(
            field,
            f"{name[:80]!r} is not a repository: its path has other than lower-case letters, digits, '.', '_' and '-'",
            remedy=f"did you mean {name.lower()}?" if path != path.lower() else "",
        )


def _is_registry(host: str, *, has_path: bool) -> bool:
    name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not colon:
        name = host
    elif not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        return False
    if has_path and not (colon or "." in name or name == "localhost" or name.startswith("[")):
        return False
    return _is_host(name.removeprefix("[").removesuffix("]") if name.startswith("[") else name)


def _is_host(host: str) -> bool:
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return False
        return True
    return len(host) <= names.NAME and all(
        len(label) <= names.LABEL and _HOST_LABEL.fullmatch(label) for label in host.removesuffix(".").split(".")
    )


@rule.reads("proxy")
def check_proxy(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    proxy = config.proxy
    if proxy is None:
        return
    if not proxy.http_proxy and not proxy.https_proxy:
        yield findings.Finding("proxy", "names no proxy", remedy="set httpProxy or httpsProxy, or remove the section")
    if proxy.http_proxy:
        yield from proxy_url("proxy.httpProxy", proxy.http_proxy, ("http",))
    if proxy.https_proxy:
        yield from proxy_url("proxy.httpsProxy", proxy.https_proxy, ("http", "https"))
    yield from no_proxy("proxy.noProxy", proxy.no_proxy)


@rule.reads("proxy", "networking.clusterNetwork.cidr", "networking.serviceNetwork")
def proxy_outside(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    if config.proxy is None:
        return
    for key, url in (("httpProxy", config.proxy.http_proxy), ("httpsProxy", config.proxy.https_proxy)):
        try:
            address = ipaddress.ip_address(urllib.parse.urlsplit(url).hostname or "")
        except ValueError:
            continue  # a name, or malformed and reported as such
        for network in network_rules.networks(config):
            if network.kind != "machineNetwork" and address in network.range:
                yield findings.Finding(
                    f"proxy.{key}",
                    f"the proxy's address is inside networking.{network.kind}, which exists within the cluster only",
                    remedy="name a proxy outside, or move the network",
                )


@rule.reads("imageDigestSources", "imageContentSources")
def image_sources(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    for key, sources in (
        ("imageDigestSources", config.image_digest_sources),
        ("imageContentSources", config.image_content_sources),
    ):
        seen: dict[str, int] = {}
        for index, source in enumerate(sources):
            field = f"{key}[{index}]"
            yield from repository(f"{field}.source", source.source)
            if source.source in seen:
                yield findings.Finding(
                    f"{field}.source",
                    f"has the same source as {key}[{seen[source.source]}]",
                    remedy="make it one entry with all the mirrors",
                )
            seen.setdefault(source.source, index)
            for number, mirror in enumerate(source.mirrors):
                yield from repository(f"{field}.mirrors[{number}]", mirror)


@rule.reads("imageDigestSources", "imageContentSources")
def image_sources_once(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    if config.image_content_sources and config.image_digest_sources:
        yield findings.Finding(
            "imageContentSources",
            "cannot be given together with imageDigestSources, its new name",
            remedy="move its entries to imageDigestSources",
        )
    elif config.image_content_sources:
        yield findings.Finding("imageContentSources", "is deprecated", "warning", "rename it to imageDigestSources")


RULES: Final[tuple[rule.Rule, ...]] = (check_proxy, proxy_outside, image_sources, image_sources_once)
