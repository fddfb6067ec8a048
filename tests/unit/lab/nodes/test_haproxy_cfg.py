"""haproxy.cfg: what is read from it, and what HAProxy would refuse to start with."""

from __future__ import annotations

import pytest

from moorage.lab.nodes import haproxy_cfg as cfg

WHOLE = """\
global
  stats socket /var/lib/haproxy/run/haproxy.sock  mode 600 level admin expose-fd listeners
defaults
  maxconn 40000
  mode    tcp
  log     /var/run/haproxy/haproxy-log.sock local0 notice alert
  log-format "%ci:%cp -> %fi:%fp [%t] # %ft"
  option  dontlognull
  retries 3
  timeout connect      3s
  timeout client       1m
  timeout server       1m
frontend  main
  bind :::9445 v4v6
  default_backend masters
listen monitor_check_http_url
  bind :::9454 v4v6
  mode http
  monitor-uri /haproxy_monitor
  monitor fail if { nbsrv(masters) lt 1 }
listen stats
  bind localhost:29445
  mode http
  stats enable
  stats uri /haproxy_stats
backend masters
   timeout check 10s
   option  httpchk GET /readyz HTTP/1.0
   balance roundrobin
   server master-0 127.1.0.2:6443 weight 1 verify none check check-ssl inter 5s fall 3 rise 1   # the first
   server master-1 127.1.0.3:6443 weight 1 verify none check check-ssl inter 500 fall 3 rise 1 backup
"""


def with_backend(*lines: str) -> str:
    return "backend b\n" + "".join(f"  {line}\n" for line in lines)


def test_a_whole_file() -> None:
    found = cfg.parse(WHOLE)

    main, monitor, stats, masters = found.proxies
    assert (main.binds, main.mode, main.connect_timeout) == ((cfg.Bind("", 9445),), "tcp", 3.0)
    assert found.backend(main) == masters
    assert (monitor.mode, monitor.monitor_path) == ("http", "/haproxy_monitor")
    assert monitor.monitor_fails == cfg.MonitorFails("masters", 1)
    assert (stats.stats_path, stats.binds[0].local) == ("/haproxy_stats", True)
    assert (masters.check, masters.check_timeout) == (cfg.Check("GET", "/readyz", "HTTP/1.0"), 10.0)
    first = cfg.Server("master-0", "127.1.0.2", 6443, check=True, tls=True, interval=5.0, fall=3, rise=1)
    second = cfg.Server("master-1", "127.1.0.3", 6443, check=True, tls=True, interval=0.5, fall=3, rise=1, backup=True)
    assert masters.servers == (first, second)
    assert found.unplayed == ()


@pytest.mark.parametrize(
    ("lines", "check"),
    [
        (["option httpchk"], cfg.Check("OPTIONS", "/")),
        (["option httpchk /up"], cfg.Check("OPTIONS", "/up")),
        (["option httpchk GET /up HTTP/1.1"], cfg.Check("GET", "/up", "HTTP/1.1")),
        (["option httpchk", "http-check send meth GET uri /up"], cfg.Check("GET", "/up")),
        (["option httpchk", "http-check expect status 200,204"], cfg.Check("OPTIONS", "/", expected=(200, 204))),
    ],
)
def test_how_health_is_asked_for(lines: list[str], check: cfg.Check) -> None:
    assert cfg.parse(with_backend(*lines)).proxies[0].check == check


def test_servers_take_what_the_default_server_says() -> None:
    found = cfg.parse(with_backend("default-server check inter 7s rise 4", "server a 127.0.0.2:80 rise 5"))

    assert found.proxies[0].servers == (cfg.Server("a", "127.0.0.2", 80, check=True, interval=7.0, rise=5),)


def test_rules_that_choose_are_named_as_not_played() -> None:
    text = "frontend f\n bind *:80\n use_backend b if { path /x }\n" + with_backend()

    assert cfg.parse(text).unplayed == ("[haproxy.cfg:3] use_backend b if { path /x }",)


def test_what_stands_in_the_wrong_section_is_ignored_with_a_warning() -> None:
    found = cfg.parse(with_backend("bind :80"))

    assert found.proxies[0].binds == ()
    assert found.warnings == ("parsing [haproxy.cfg:2] : 'bind' ignored in a backend",)


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("bind :80\n", 1, "unknown keyword 'bind' out of section."),
        ("global\n bogus yes\n", 2, "unknown keyword 'bogus' in 'global' section"),
        ("frontend\n", 1, "expects a name"),
        ("frontend f\n bind :::x\n", 2, "invalid character in port number 'x'"),
        ("frontend f\n bind :70000\n", 2, "port number 70000"),
        ("frontend f\n mode tcp\n", 1, "has no 'bind' directive"),
        ("frontend f\n bind :80\n default_backend nosuch\n", 3, "unable to find required default_backend: 'nosuch'"),
        ("defaults\n server a 127.0.0.2:80\n", 2, "'server' not allowed in 'defaults' section"),
        (with_backend("frobnicate"), 2, "unknown keyword 'frobnicate' in 'backend' section"),
        (with_backend("mode udp"), 2, "unknown proxy mode 'udp'"),
        (with_backend("balance frob"), 2, "balance only supports"),
        (with_backend("option frob"), 2, "unknown option 'frob'"),
        (with_backend("timeout check 5q"), 2, "'timeout check' argument '5q'"),
        (with_backend("timeout frob 5s"), 2, "does not know 'frob'"),
        (with_backend("http-check expect frob"), 2, "'http-check expect' only supports"),
        (with_backend("server a 127.0.0.2:xx"), 2, "invalid character in port number 'xx'"),
        (with_backend("server a 127.0.0.2"), 2, "needs an address and a port"),
        (with_backend("server a 127.0.0.2:80 inter 5q"), 2, "'inter' argument '5q'"),
        (with_backend("server a 127.0.0.2:80 frob"), 2, "unknown keyword 'frob'"),
        (with_backend("server a 127.0.0.2:80 rise"), 2, "'rise' expects an argument"),
        (with_backend("server a 127.0.0.2:80", "server a 127.0.0.3:80"), 3, "another server has the same name"),
        (with_backend() + with_backend(), 2, "has the same name as the one declared at line 1"),
        (with_backend('log-format "x'), 2, "unmatched quote"),
        ("listen m\n bind :80\n monitor fail if frob\n", 3, "the lab cannot play the condition"),
    ],
)
def test_nonsense_is_refused_with_its_line(text: str, line: int, why: str) -> None:
    with pytest.raises(cfg.Wrong) as refused:
        cfg.parse(text)

    assert refused.value.line == line
    assert why in str(refused.value)
