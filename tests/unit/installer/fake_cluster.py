"""A cluster to wait for, as seen from outside: a name server and a TLS API whose objects follow a script.

Both listen on loopback addresses; the API has the port 6443 and the certificates that a real one would have been given
by our own assets, so nothing in the product has to know that it talks to a fake.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime
import http.server
import ipaddress
import itertools
import json
import os
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from moorage.assets import keys, store
from tests.conftest import INSTALL_CONFIG, make

API = "api.harbour.example.com"
A, NS, CNAME, AAAA = 1, 2, 5, 28

Object = Mapping[str, Any]
#: What the API answers at a path: an object, or a status code without one.
Script = Callable[[], Mapping[str, Object | int]]


@dataclasses.dataclass(frozen=True)
class Built:
    """An asset directory after `create ignition-configs`, and what its API would be given to serve with.

    ``server`` and ``signer`` are certificate and key; ``clients`` is the CA that the administrator is known by.
    """

    directory: Path
    server: str
    signer: str
    clients: str


def build(directory: Path, keyring: keys.Keyring) -> Built:
    directory.mkdir(parents=True)
    (directory / "install-config.yaml").write_text(INSTALL_CONFIG)
    with store.opened(directory) as opened:
        opened.commit(store.State(kept={"keyring": keyring.to_state()}), {})
    values = make(directory).result.values
    server, signer = values["kube_apiserver_lb_server"], values["kube_apiserver_lb_signer"]
    return Built(directory, server.cert + server.key, signer.cert + signer.key, values["admin_kubeconfig_signer"].cert)


# --- certificates ------------------------------------------------------------------------------------------------


def authority(name: str = "somebody else's CA") -> str:
    """A CA that has nothing to do with the cluster: certificate and key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pem(certificate, key)


def server(signer: str, *, host: str = API, since: int = -1, until: int = 1) -> str:
    """A server's certificate and key; ``since`` and ``until`` are days from now."""
    ca = x509.load_pem_x509_certificate(signer.encode())
    ca_key: Any = serialization.load_pem_private_key(signer[signer.index("-----END CERTIFICATE") :].encode(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, API)]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=since))
        .not_valid_after(now + datetime.timedelta(days=until))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return _pem(certificate, key)


def node_request(node: str) -> str:
    """What a kubelet sends to be let in, as the API shows it."""
    name = x509.Name(
        [
            x509.NameAttribute(oid.NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(oid.NameOID.COMMON_NAME, f"system:node:{node}"),
        ]
    )
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> str:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode() + private.decode()


# --- the API -----------------------------------------------------------------------------------------------------


class Api(http.server.ThreadingHTTPServer):
    """A Kubernetes API that shows what its script says at the moment."""

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], script: Script, tls: ssl.SSLContext) -> None:
        super().__init__(address, _Answers)
        self.script = script
        self.tls = tls
        self.connections = 0
        self.asked: list[str] = []
        self.shown: list[object] = []

    @property
    def address(self) -> str:
        return str(self.server_address[0])

    def finish_request(self, request: Any, client_address: Any) -> None:
        # In the connection's own thread: a client that gives up the handshake must not hold the others up.
        self.connections += 1
        with (
            contextlib.suppress(OSError),
            self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as wrapped,
        ):
            try:
                wrapped.do_handshake()
            except ssl.SSLError:
                _drain(wrapped)
                raise
            self.shown.append(wrapped.getpeercert())
            super().finish_request(wrapped, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


def _drain(refused: ssl.SSLSocket) -> None:
    """Read what the client still sends: closed on unread data, the kernel would throw our alert away."""
    refused.settimeout(2)
    socket.socket.shutdown(refused, socket.SHUT_WR)
    while socket.socket.recv(refused, 4096):
        pass


class _Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        api: Any = self.server
        api.asked.append(self.path)
        answer = api.script().get(self.path, 404)
        if answer == 0:  # hang up
            self.close_connection = True
            return
        status = answer if isinstance(answer, int) else 200
        content = {"kind": "Status", "message": f"scripted {status}"} if isinstance(answer, int) else answer
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(script: Script, built: Built, folder: Path, certificate: str = "") -> Iterator[Api]:
    """The API at port 6443 of a loopback address of its own; it takes this cluster's administrator alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    path = folder / f"server-{next(_numbers)}.pem"
    path.write_text(certificate or built.server)
    context.load_cert_chain(path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=built.clients)
    with Api((free_address(), 6443), script, context) as api, running(api):
        yield api


_numbers = itertools.count()


def free_address() -> str:
    """A loopback address that no other test of this machine uses at the moment."""
    while True:
        number = next(_numbers)
        address = f"127.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}.{1 + number % 250}"
        with socket.socket() as probe:
            if probe.connect_ex((address, 6443)) != 0:
                return address


@contextlib.contextmanager
def running(listener: socketserver.BaseServer) -> Iterator[None]:
    """Let a listener answer, in a thread of its own."""
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown()
        thread.join()


# --- the name server ---------------------------------------------------------------------------------------------

Record = tuple[str, int, str]


@dataclasses.dataclass
class Zone:
    """What the name server knows, and how it behaves. A name it has no record of does not exist."""

    records: list[Record] = dataclasses.field(default_factory=list)
    whole_answer: bool = True
    code: int = 0
    truncates: bool = False
    silent_about: tuple[int, ...] = ()
    forged_first: bool = False
    raw: bytes | None = None
    asked: list[tuple[str, int, str]] = dataclasses.field(default_factory=list)

    def reply(self, query: bytes, by: str) -> list[bytes]:
        name, kind = _asked(query)
        self.asked.append((name, kind, by))
        if kind in self.silent_about:
            return []
        if self.raw is not None:
            return [query[:2] + b"\x81\x80" + query[4:6] + b"\0\1\0\0\0\0" + query[12:] + self.raw]
        if self.truncates and by == "udp":
            return [query[:2] + struct.pack("!H", 0x8380) + query[4:]]
        found = self._found(name, kind)
        known = any(owner == name for owner, _, _ in self.records)
        code = self.code or (0 if known else 3)
        header = query[:2] + struct.pack("!5H", 0x8180 | code, 1, len(found), 0, 0)
        answer = header + query[12:] + b"".join(map(_encoded, found))
        forged = bytes([query[0] ^ 1, *answer[1:]]).replace(b"\x7f", b"\x7e")
        return [forged, answer] if self.forged_first else [answer]

    def _found(self, name: str, kind: int, told: tuple[str, ...] = ()) -> list[Record]:
        found = [record for record in self.records if record[0] == name and record[1] in (kind, CNAME)]
        if self.whole_answer:
            for target in [value for _, record_kind, value in found if record_kind == CNAME]:
                if target not in (name, *told):
                    found += self._found(target, kind, (name, *told))
        return found


def _asked(query: bytes) -> tuple[str, int]:
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    return ".".join(labels), int.from_bytes(query[at + 1 : at + 3], "big")


def _encoded(record: Record) -> bytes:
    owner, kind, value = record
    data = _name(value) if kind in (CNAME, NS) else ipaddress.ip_address(value).packed
    return _name(owner) + struct.pack("!2HIH", kind, 1, 60, len(data)) + data


def _name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


@contextlib.contextmanager
def naming(zone: Zone) -> Iterator[dict[str, str]]:
    """The name server, and the environment that makes the product ask it."""

    class Datagrams(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            query, sock = self.request
            for reply in zone.reply(query, "udp"):
                sock.sendto(reply, self.client_address)

    class Streams(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            (length,) = struct.unpack("!H", self.rfile.read(2))
            for reply in zone.reply(self.rfile.read(length), "tcp"):
                self.wfile.write(struct.pack("!H", len(reply)) + reply)

    with contextlib.ExitStack() as opened:
        udp, tcp = _same_port(Datagrams, Streams)
        for listener in (udp, tcp):
            opened.enter_context(listener)
            opened.enter_context(running(listener))
        yield {"MOORAGE_RESOLVER": f"127.0.0.1:{udp.server_address[1]}"}


def _same_port(datagrams: Any, streams: Any) -> tuple[socketserver.UDPServer, socketserver.TCPServer]:
    """Two listeners at one port: what is free for datagrams may be taken for streams, so try until both are had."""
    while True:
        udp = socketserver.UDPServer(("127.0.0.1", 0), datagrams)
        try:
            return udp, socketserver.TCPServer(("127.0.0.1", udp.server_address[1]), streams)
        except OSError:
            udp.server_close()
