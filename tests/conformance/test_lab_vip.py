"""The real keepalived and HAProxy read what the lab reads, and refuse what it refuses."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from moorage.lab.nodes import haproxy_cfg, keepalived_conf

KEEPALIVED = """\
global_defs {
    enable_script_security
    script_user root
    max_auto_priority -1
    vrrp_garp_master_refresh 60
}
! a comment
vrrp_script chk_api {
    script "/usr/bin/timeout 1.9 /bin/true"  # another
    interval 2
    weight 20
    rise 3
    fall 3
}
vrrp_instance harbour_API {
    state BACKUP
    interface INTERFACE
    virtual_router_id 51
    priority 40
    advert_int 1
    unicast_src_ip 127.0.0.1
    unicast_peer {
        127.0.0.2
    }
    authentication {
        auth_type PASS
        auth_pass harbour
    }
    virtual_ipaddress {
        127.0.0.5/16 label vip
    }
    track_script {
        chk_api weight 5
    }
    nopreempt
}
"""
HAPROXY = """\
global
  maxconn 4000
defaults
  maxconn 2000
  mode    tcp
  option  dontlognull
  retries 3
  timeout http-request 30s
  timeout connect      10s
  timeout client       1m
  timeout server       1m
  timeout client-fin   1s
frontend  main
  bind :::9445 v4v6
  default_backend masters
listen health_check_http_url
  bind :::9444 v4v6
  mode http
  monitor-uri /haproxy_ready
  option dontlognull
listen monitor_check_http_url
  bind :::9454 v4v6
  mode http
  monitor-uri /haproxy_monitor
  monitor fail if { nbsrv(masters) lt 1 }
listen stats
  bind localhost:29445
  mode http
  stats enable
  stats hide-version
  stats uri /haproxy_stats
  stats refresh 30s
backend masters
   timeout check 10s
   option  httpchk GET /readyz HTTP/1.0
   balance roundrobin
   default-server rise 2
   server master-0 127.0.0.2:6443 weight 1 verify none check check-ssl inter 5s fall 3 rise 1
   server master-1 127.0.0.3:6443 weight 1 verify none check check-ssl inter 5s fall 3 rise 1
"""


def interface() -> str:
    """An interface that keepalived would use; it does not use loopback ones."""
    return next(name for _, name in socket.if_nameindex() if name != "lo")


def keepalived_says(text: str, folder: Path) -> str:
    """What keepalived's own test of a config has to say."""
    path = folder / "keepalived.conf"
    path.write_text(text.replace("INTERFACE", interface()))
    ended = subprocess.run(["keepalived", "-t", "-f", path], capture_output=True, text=True, check=False)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr or "refused"


def haproxy_says(text: str, folder: Path) -> str:
    path = folder / "haproxy.cfg"
    path.write_text(text)
    ended = subprocess.run(["haproxy", "-c", "-f", path], capture_output=True, text=True, check=False)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr or "refused"


@pytest.mark.needs("keepalived")
def test_keepalived_takes_what_the_lab_takes(tmp_path: Path) -> None:
    assert keepalived_conf.parse(KEEPALIVED).warnings == ()
    assert keepalived_says(KEEPALIVED, tmp_path) == ""


@pytest.mark.needs("keepalived")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("virtual_router_id 51", "virtual_router_id 300"),
        ("virtual_router_id 51", ""),
        ("priority 40", "priority high"),
        ("priority 40", "priority"),
        ("priority 40", "bogus 40"),
        ("state BACKUP", "state SLEEPY"),
        ("interface INTERFACE", "interface lo"),
        ("127.0.0.5/16", "300.0.0.5/16"),
        ("        chk_api weight 5", "        chk_other"),
        ("auth_type PASS", "auth_type FOO"),
        ("advert_int 1", "advert_int 0"),
        ("interval 2", "interval 0"),
        ("weight 20", "weight 300"),
        ("global_defs", "globals"),
        ("nopreempt\n}", "nopreempt"),
        ("nopreempt\n}", "nopreempt\n}\n}"),
    ],
)
def test_keepalived_refuses_what_the_lab_refuses(before: str, after: str, tmp_path: Path) -> None:
    text = KEEPALIVED.replace(before, after)
    assert text != KEEPALIVED

    with pytest.raises(keepalived_conf.Wrong):
        keepalived_conf.parse(text)
    assert keepalived_says(text, tmp_path)


@pytest.mark.needs("haproxy")
def test_haproxy_takes_what_the_lab_takes(tmp_path: Path) -> None:
    assert len(haproxy_cfg.parse(HAPROXY).proxies) == 5
    assert haproxy_says(HAPROXY, tmp_path) == ""


@pytest.mark.needs("haproxy")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  maxconn 4000", "  bogus yes"),
        ("mode    tcp", "mode    udp"),
        ("option  dontlognull", "option  frob"),
        ("timeout client       1m", "timeout client       1q"),
        ("timeout client       1m", "timeout frob         1m"),
        ("bind :::9445 v4v6", "bind :::port v4v6"),
        ("default_backend masters", "default_backend nosuch"),
        ("balance roundrobin", "balance frob"),
        ("balance roundrobin", "frobnicate"),
        ("127.0.0.2:6443", "127.0.0.2:xx"),
        ("inter 5s", "inter 5q"),
        ("check-ssl", "check-frob"),
        ("rise 1\n   server", "rise\n   server"),
        ("server master-1", "server master-0"),
        ("backend masters\n", "frontend main\n"),
    ],
)
def test_haproxy_refuses_what_the_lab_refuses(before: str, after: str, tmp_path: Path) -> None:
    text = HAPROXY.replace(before, after, 1)
    assert text != HAPROXY

    with pytest.raises(haproxy_cfg.Wrong) as refused:
        haproxy_cfg.parse(text)
    said = haproxy_says(text, tmp_path)
    assert "Fatal errors found in configuration" in said
    if "haproxy.cfg:" in said:
        assert f"haproxy.cfg:{refused.value.line}]" in said


@pytest.mark.needs("haproxy")
def test_haproxy_only_warns_where_the_lab_only_warns(tmp_path: Path) -> None:
    text = HAPROXY.replace("balance roundrobin", "bind :9999")

    assert len(haproxy_cfg.parse(text).warnings) == 1
    assert haproxy_says(text, tmp_path) == ""
