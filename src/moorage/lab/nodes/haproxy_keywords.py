"""The words of haproxy.cfg that HAProxy knows: what is not among them is a mistake, wherever it stands."""

from __future__ import annotations

from collections.abc import Mapping


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ROUTING = frozenset({"use_backend", "use-server", "tcp-request", "http-request", "redirect"})
READ_OVER = _words(
    "maxconn log log-format log-tag retries fullconn backlog acl description id disabled enabled errorfile errorloc "
    "hash-type http-response http-reuse load-server-state-from-file no option retry-on stick stick-table "
    "tcp-check tcp-response unique-id-format unique-id-header cookie compression email-alert declare capture "
    "rate-limit source bind-process"
)
OPTIONS = _words(
    "httpchk tcp-check ssl-hello-chk log-health-checks dontlognull dontlog-normal redispatch httplog tcplog "
    "http-server-close httpclose forwardfor http-keep-alive clitcpka srvtcpka tcpka splice-auto splice-request "
    "splice-response contstats logasap nolinger abortonclose allbackups persist external-check ldap-check "
    "mysql-check pgsql-check redis-check smtpchk http-buffer-request http-ignore-probes prefer-last-server "
    "transparent checkcache originalto independent-streams idle-close-on-response socket-stats tcp-smart-accept "
    "tcp-smart-connect http-no-delay http-pretend-keepalive http-use-proxy-header log-separate-errors"
)
TIMEOUTS = _words(
    "check client client-fin client-hs connect http-keep-alive http-request queue server server-fin server-hs tarpit "
    "tunnel"
)
GLOBALS = _words(
    "stats log log-tag log-send-hostname maxconn maxconnrate maxpipes daemon user group uid gid chroot pidfile nbproc "
    "nbthread cpu-map ca-base crt-base hard-stop-after default-path description node localpeer master-worker "
    "presetenv setenv unsetenv resetenv server-state-base server-state-file spread-checks ulimit-n quiet zero-warning "
    "insecure-fork-wanted external-check expose-experimental-directives set-dumpable strict-limits "
    "ssl-default-bind-ciphers ssl-default-bind-ciphersuites ssl-default-bind-options ssl-default-server-ciphers "
    "ssl-default-server-ciphersuites ssl-default-server-options ssl-dh-param-file ssl-server-verify unix-bind "
    "lua-load lua-prepend-path"
)
SERVER_FLAGS: Mapping[str, Mapping[str, object]] = {
    "check": {"check": True},
    "no-check": {"check": False},
    "check-ssl": {"tls": True},
    "ssl": {"tls": True},
    "backup": {"backup": True},
    "disabled": {"disabled": True},
    "enabled": {"disabled": False},
    "send-proxy": {},
    "send-proxy-v2": {},
    "allow-0rtt": {},
    "no-ssl-reuse": {},
}
SERVER_VALUES = _words(
    "weight verify inter fastinter downinter rise fall maxconn minconn maxqueue slowstart ca-file crt sni check-sni "
    "alpn check-alpn cookie id init-addr on-error on-marked-down on-marked-up port addr source observe error-limit "
    "resolvers resolve-prefer resolve-opts agent-check agent-port agent-inter track verifyhost namespace pool-max-conn "
    "pool-purge-delay ssl-min-ver ssl-max-ver proto check-proto"
)
BALANCE = _words("roundrobin static-rr leastconn first source uri url_param random hash hdr rdp-cookie")
