"""keepalived.conf as keepalived reads it: blocks of lines, each a keyword and what it is set to.

Real keepalived drops much of what it does not understand and goes on with something else than was written; its own
test (``keepalived -t``) fails on all of that. So does this reading, with the line and in the real words, because in a
lab a mistake is to be seen. What only deserves a warning there is one here.
"""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping

MASTER, BACKUP = "MASTER", "BACKUP"
_DEFAULT_PRIORITY = 100
_PASSWORD_LENGTH = 8
_WORD = re.compile(r'"([^"]*)"|([^\s"{}]+)|([{}])|(")')


class Wrong(ValueError):  # noqa: N818 - as the program puts it: this line is wrong
    """Something that keepalived does not accept, with its line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"(Line {line}) {message}" if line else message)
        self.line = line


@dataclasses.dataclass(frozen=True)
class Script:
    """A vrrp_script: what is run how often, and what its success is worth."""

    name: str
    command: str
    interval: float = 1.0
    weight: int = 0
    rise: int = 1
    fall: int = 1


@dataclasses.dataclass(frozen=True)
class Instance:
    """A vrrp_instance: one virtual router that this machine is part of.

    ``tracked`` are names of scripts and the weight each has here; ``peers`` is None where adverts are multicast.
    ``faulty`` is one that must not take part: it has no peers, and was told what that means.
    """

    name: str
    router_id: int
    addresses: tuple[str, ...]
    state: str = BACKUP
    interface: str = ""
    priority: int = _DEFAULT_PRIORITY
    advert_interval: float = 1.0
    source: str = ""
    peers: tuple[str, ...] | None = None
    authentication: tuple[str, str] = ("", "")
    tracked: tuple[tuple[str, int], ...] = ()
    nopreempt: bool = False
    faulty: bool = False


@dataclasses.dataclass(frozen=True)
class Config:
    """A whole file; ``warnings`` are what keepalived would mention and then live with."""

    scripts: Mapping[str, Script]
    instances: tuple[Instance, ...]
    warnings: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Line:
    """A keyword with its words, and the lines of its block if it has one."""

    number: int
    words: tuple[str, ...]
    block: tuple[_Line, ...] | None = None

    @property
    def keyword(self) -> str:
        return self.words[0]

    def argument(self) -> str:
        if len(self.words) < 2:
            raise Wrong(self.number, f"Configuration line starting `{self.keyword}` is missing a parameter")
        return self.words[1]


def parse(text: str) -> Config:
    """Read a file's text, or refuse it."""
    scripts: dict[str, Script] = {}
    instances: list[Instance] = []
    groups: list[tuple[tuple[str, ...], tuple[tuple[str, int], ...]]] = []
    warnings: list[str] = []
    top = _blocks(text)
    # Scripts may be defined below the instances that track them.
    for line in (each for each in top if each.keyword == "vrrp_script"):
        script = _script(line)
        scripts.setdefault(script.name, script)
    for line in top:
        if line.keyword == "vrrp_instance":
            instances.append(_instance(line, scripts, warnings))
        elif line.keyword == "vrrp_sync_group":
            groups.append(_group(line, scripts))
        elif line.keyword == "global_defs":
            _known(line, _GLOBALS)
        elif line.keyword != "vrrp_script":
            raise Wrong(line.number, f"Unknown keyword '{line.keyword}'")
    _twice(top, instances)
    return Config(scripts, tuple(_grouped(each, groups) for each in instances), tuple(warnings))


# --- lines and blocks --------------------------------------------------------------------------------------------


def _blocks(text: str) -> tuple[_Line, ...]:
    """The lines of the file, each with its block; a brace may stand on the keyword's line or below it."""
    stack: list[list[_Line]] = [[]]
    for number, words in _worded(text):
        pending: list[str] = []
        for word in words:
            if word == "{":
                _take(stack, number, pending)
                if not stack[-1] or stack[-1][-1].block is not None:
                    raise Wrong(number, "Unexpected '{'")
                stack.append([])
            elif word == "}":
                _take(stack, number, pending)
                if len(stack) == 1:
                    raise Wrong(number, "Extra '}' found")
                inside = tuple(stack.pop())
                stack[-1][-1] = dataclasses.replace(stack[-1][-1], block=inside)
            else:
                pending.append(word.removeprefix("\0"))
        _take(stack, number, pending)
    if len(stack) > 1:
        raise Wrong(0, f"There are {len(stack) - 1} missing '}}'s or extra '{{'s")
    return tuple(stack[0])


def _take(stack: list[list[_Line]], number: int, pending: list[str]) -> None:
    if pending:
        stack[-1].append(_Line(number, tuple(pending)))
        pending.clear()


def _worded(text: str) -> Iterator[tuple[int, list[str]]]:
    """Line by line, the words and braces outside of comments; words that were quoted start with a NUL."""
    for number, line in enumerate(text.splitlines(), 1):
        words: list[str] = []
        for quoted, plain, brace, loose in _WORD.findall(line):
            if loose:
                raise Wrong(number, "Unmatched quote")
            if plain and plain[0] in "#!":
                break
            words.append(plain or brace or f"\0{quoted}")
        if words:
            yield number, words


# --- keywords ----------------------------------------------------------------------------------------------------


def _vocabulary(text: str) -> frozenset[str]:
    return frozenset(text.split())


_GLOBALS = _vocabulary(
    "router_id enable_script_security script_user max_auto_priority vrrp_garp_master_refresh vrrp_garp_master_delay "
    "vrrp_garp_master_repeat vrrp_garp_master_refresh_repeat vrrp_garp_interval vrrp_gna_interval vrrp_strict "
    "vrrp_skip_check_adv_addr vrrp_version vrrp_iptables vrrp_mcast_group4 vrrp_mcast_group6 vrrp_priority "
    "vrrp_rt_priority vrrp_no_swap checker_priority notification_email notification_email_from smtp_server "
    "smtp_connect_timeout smtp_helo_name smtp_alert dynamic_interfaces default_interface process_names "
    "vrrp_startup_delay vrrp_notify_fifo vrrp_higher_prio_send_advert vrrp_garp_lower_prio_repeat "
    "vrrp_garp_lower_prio_delay lvs_sync_daemon enable_dbus use_pid_dir instance net_namespace"
)
_SCRIPT = _vocabulary("script interval timeout weight rise fall user init_fail")
_INSTANCE = _vocabulary(
    "state interface virtual_router_id priority advert_int unicast_src_ip unicast_peer authentication "
    "virtual_ipaddress virtual_ipaddress_excluded virtual_routes track_script track_interface track_file nopreempt "
    "preempt preempt_delay dont_track_primary mcast_src_ip use_vmac vmac_xmit_base garp_master_delay "
    "garp_master_repeat garp_master_refresh garp_master_refresh_repeat garp_lower_prio_delay garp_lower_prio_repeat "
    "version accept no_accept debug notify notify_master notify_backup notify_fault notify_stop smtp_alert "
    "higher_prio_send_advert strict_mode check_unicast_src lvs_sync_daemon_interface unicast_fault_no_peer unicast_ttl"
)
_GROUP = _vocabulary("group track_script notify notify_master notify_backup notify_fault global_tracking")


def _known(line: _Line, known: frozenset[str]) -> dict[str, _Line]:
    """The lines of a block by their keywords, the last of each; all are known."""
    if line.block is None:
        raise Wrong(line.number, f"Missing '{{' at beginning of configuration block `{line.keyword}`")
    for each in line.block:
        if each.keyword not in known:
            raise Wrong(each.number, f"Unknown keyword '{each.keyword}'")
    return {each.keyword: each for each in line.block}


def _number(
    line: _Line, least: float, most: float, convert: Callable[[str], float], name: str, text: str = ""
) -> float:
    text = text or line.argument()
    try:
        found = convert(text)
    except ValueError:
        raise Wrong(line.number, f"{name}: invalid number '{text}'") from None
    if not least <= found <= most:
        raise Wrong(line.number, f"{name}: number '{text}' outside range [{least:g}, {most:g}]")
    return found


def _script(line: _Line) -> Script:
    name = line.argument()
    lines = _known(line, _SCRIPT)
    if "script" not in lines:
        raise Wrong(line.number, f"No script set for vrrp_script {name}")
    at = functools.partial(_optional, lines)
    return Script(
        name=name,
        command=" ".join((lines["script"].argument(), *lines["script"].words[2:])),
        interval=at("interval", 0.001, 86400.0, float, 1.0),
        weight=int(at("weight", -253, 253, int, 0)),
        rise=int(at("rise", 1, 2**31 - 1, int, 1)),
        fall=int(at("fall", 1, 2**31 - 1, int, 1)),
    )


def _optional(
    lines: Mapping[str, _Line], name: str, least: float, most: float, convert: Callable[[str], float], default: float
) -> float:
    return _number(lines[name], least, most, convert, name) if name in lines else default


def _instance(line: _Line, scripts: Mapping[str, Script], warnings: list[str]) -> Instance:
    name = line.argument()
    lines = _known(line, _INSTANCE)
    at = functools.partial(_optional, lines)
    state = lines["state"].argument() if "state" in lines else BACKUP
    if state not in (MASTER, BACKUP):
        raise Wrong(lines["state"].number, f"({name}) unknown state '{state}'")
    if "virtual_router_id" not in lines:
        raise Wrong(line.number, f"({name}) the virtual router id must be set")
    interface = lines["interface"].argument() if "interface" in lines else ""
    if interface in ("", "lo"):
        number = lines["interface"].number if interface else line.number
        why = "cannot use a loopback interface (lo) for vrrp" if interface else "Unknown interface!"
        raise Wrong(number, f"({name}) {why}")
    nopreempt = "nopreempt" in lines
    if nopreempt and state == MASTER:
        warnings.append(
            f"(Line {lines['nopreempt'].number}) ({name}) nopreempt will not work with initial state MASTER"
        )
        nopreempt = False
    return Instance(
        name=name,
        router_id=int(_number(lines["virtual_router_id"], 1, 255, int, f"({name}) VRID")),
        addresses=_addresses(name, line, lines),
        state=state,
        interface=interface,
        priority=int(at("priority", 1, 255, int, _DEFAULT_PRIORITY)),
        advert_interval=at("advert_int", 0.01, 255.0, float, 1.0),
        source=_address(lines["unicast_src_ip"], lines["unicast_src_ip"].argument())
        if "unicast_src_ip" in lines
        else "",
        peers=_peers(name, line, lines),
        authentication=_authentication(name, lines, warnings),
        tracked=_tracked(name, lines, scripts),
        nopreempt=nopreempt,
        faulty=_lonely(lines) and "unicast_fault_no_peer" in lines,
    )


def _addresses(name: str, line: _Line, lines: Mapping[str, _Line]) -> tuple[str, ...]:
    """The virtual addresses, whatever label, device or scope they are given."""
    found = []
    for each in _listed(lines, "virtual_ipaddress"):
        try:
            found.append(str(ipaddress.ip_interface(each.keyword).ip))
        except ValueError:
            raise Wrong(each.number, f"({name}) VRRP parsed invalid IP {each.keyword}") from None
    if not found:
        raise Wrong(line.number, f"({name}) No VIP specified; at least one is sensible")
    return tuple(found)


def _listed(lines: Mapping[str, _Line], keyword: str) -> tuple[_Line, ...]:
    line = lines.get(keyword)
    if line is None:
        return ()
    if line.block is None:
        raise Wrong(line.number, f"Missing '{{' at beginning of configuration block `{keyword}`")
    return line.block


def _address(line: _Line, text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise Wrong(line.number, f"invalid address '{text}'") from None


def _lonely(lines: Mapping[str, _Line]) -> bool:
    """Whether adverts are to be unicast, and there is nobody to send them to."""
    asked = any(each in lines for each in ("unicast_peer", "unicast_src_ip"))
    return asked and not _listed(lines, "unicast_peer")


def _peers(name: str, line: _Line, lines: Mapping[str, _Line]) -> tuple[str, ...] | None:
    if _lonely(lines) and "unicast_fault_no_peer" not in lines:
        why = "A unicast keyword has been specified without any unicast peers. Defaulting to multicast."
        raise Wrong(line.number, f"({name}) {why}")
    if "unicast_peer" not in lines:
        return None
    return tuple(_address(each, each.keyword) for each in _listed(lines, "unicast_peer"))


def _authentication(name: str, lines: Mapping[str, _Line], warnings: list[str]) -> tuple[str, str]:
    if "authentication" not in lines:
        return "", ""
    inside = _known(lines["authentication"], frozenset({"auth_type", "auth_pass"}))
    kind = inside["auth_type"].argument() if "auth_type" in inside else ""
    if kind not in ("", "PASS", "AH"):
        raise Wrong(inside["auth_type"].number, f"({name}) unknown authentication type '{kind}'")
    password = inside["auth_pass"].argument() if "auth_pass" in inside else ""
    if len(password) > _PASSWORD_LENGTH:
        number = inside["auth_pass"].number
        warnings.append(f"(Line {number}) Truncating auth_pass to {_PASSWORD_LENGTH} characters")
    return kind, password[:_PASSWORD_LENGTH]


def _tracked(name: str, lines: Mapping[str, _Line], scripts: Mapping[str, Script]) -> tuple[tuple[str, int], ...]:
    found = []
    for each in _listed(lines, "track_script"):
        if each.keyword not in scripts:
            raise Wrong(each.number, f"({name}) track script {each.keyword} not found")
        weight = scripts[each.keyword].weight
        if "weight" in each.words:
            after = each.words[each.words.index("weight") + 1 :]
            weight = int(_number(each, -253, 253, int, "weight", after[0] if after else " "))
        found.append((each.keyword, weight))
    return tuple(found)


def _group(line: _Line, scripts: Mapping[str, Script]) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    """The instances of a sync group, and what is tracked for all of them."""
    lines = _known(line, _GROUP)
    return tuple(each.keyword for each in _listed(lines, "group")), _tracked(line.argument(), lines, scripts)


def _grouped(found: Instance, groups: list[tuple[tuple[str, ...], tuple[tuple[str, int], ...]]]) -> Instance:
    more = tuple(each for names, tracked in groups if found.name in names for each in tracked)
    return dataclasses.replace(found, tracked=(*found.tracked, *more))


def _twice(top: tuple[_Line, ...], instances: list[Instance]) -> None:
    """Names and virtual routers are there once."""
    for kind in ("vrrp_instance", "vrrp_script"):
        seen: set[str] = set()
        for line in (each for each in top if each.keyword == kind):
            if line.argument() in seen:
                raise Wrong(line.number, f"{kind.replace('_', ' ')} {line.argument()} already defined")
            seen.add(line.argument())
    routers: dict[tuple[str, int], str] = {}
    for each in instances:
        other = routers.setdefault((each.interface, each.router_id), each.name)
        if other != each.name:
            raise Wrong(0, f"{other} and {each.name} both use VRID {each.router_id} on interface {each.interface}")
