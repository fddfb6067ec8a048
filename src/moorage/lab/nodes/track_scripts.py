"""What a track script of keepalived would find out, for scripts cannot be run on machines that are simulated.

Scripts that hold virtual addresses in place ask simple things: is a URL answered, is a file there, does a program or a
pod run. A script is read as a chain of such questions joined by ``&&`` and ``||``, and each is put to the machine
itself. A question that is not understood counts as answered well, which is said once on the console.
"""

from __future__ import annotations

import errno
import functools
import posixpath
import re
import shlex
import socket
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from moorage import lab
from moorage.lab.nodes import files as files_
from moorage.lab.nodes import instance, vip_pods

REDIRECT_MARK = "iptables-rule-exists"
_BRANCH = re.compile(r"(?:if|while|until|for|case)\b")
_URL = re.compile(r"https?://[^\s\"'|&;)]+")
_FILE = re.compile(r"^(?:test|\[\[?)\s+(!\s+)?-[ef]\s+(\S+)")
_RUNS = re.compile(r"\b(?:killall\s+(?:-0|-s\s*0)|pidof|pgrep(?:\s+-\w+)*)\s+([\w.-]+)")
_PODS = {
    "machine-config-server": "machine-config-server",
    "router-default": "router",
    "kube-apiserver": "kube-apiserver",
}
_HERE = ("localhost", "127.0.0.1", "::1")
_PORTS = {"http": 80, "https": 443}


class Questions:
    """The questions that the scripts on one machine ask; ``redirected`` says whether its port redirect is in place."""

    def __init__(
        self,
        machine: instance.Instance,
        program: vip_pods.Program,
        redirected: Callable[[], bool],
        seconds: float = 5.0,
    ) -> None:
        self._machine = machine
        self._program = program
        self._redirected = redirected
        self._files = files_.Files(machine)
        self._seconds = seconds
        self._told: set[str] = set()

    async def passes(self, name: str, command: str) -> bool:
        """Whether the script would succeed now."""
        lines = self._lines(command)
        if any(_BRANCH.match(line) for line in lines):
            # Nobody follows a script's branches here: what matters is that all that it asks for is there.
            urls = [url for line in lines for url in _URL.findall(line)]
            lines = urls or [command]
        for line in lines:
            if not await self._line(name, line):
                return False
        return True

    def _lines(self, command: str) -> list[str]:
        """The commands of the script: of the file that is called if it is on the disk, or the command itself."""
        for word in _words(command):
            if word.startswith("/"):
                content = self._files.find(self._program.on_host(word)) or self._files.find(word)
                if content is not None:
                    return _commands(content)
        return [command]

    async def _line(self, name: str, line: str) -> bool:
        """A chain, from left to right as a shell takes it."""
        result = True
        joint = "&&"
        for part in re.split(r"(&&|\|\|)", line):
            if part in ("&&", "||"):
                joint = part
            elif result == (joint == "&&"):
                result = await self._asked(name, part.strip())
        return result

    async def _asked(self, name: str, question: str) -> bool:
        if url := _URL.search(question):
            return await self._answered(url[0])
        if file := _FILE.search(question):
            path = file[2].strip("\"'")
            is_mark = posixpath.basename(path) == REDIRECT_MARK
            there = self._redirected() if is_mark else self._files.exists(self._program.on_host(path))
            return there != bool(file[1])
        if program := _RUNS.search(question):
            return program[1] in self._machine.wire.listening
        if "crictl" in question:
            for pod, service in _PODS.items():
                if pod in question:
                    return service in self._machine.wire.listening
        if re.fullmatch(r"(?:/\S+/)?(?:true|false)|exit \d+|set -\w+", question):
            return not re.search(r"false|exit [1-9]", question)
        if question not in self._told:
            self._told.add(question)
            self._machine.say(f"keepalived: script {name}: the lab cannot run {question!r}, and takes it as passing")
        return True

    async def _answered(self, url: str) -> bool:
        """As `curl -kf`: whether an answer comes, and is no error."""
        site, wire = self._machine.site, self._machine.wire
        parts = urlsplit(url)
        host = wire.address if parts.hostname in _HERE else parts.hostname or ""
        try:
            port = site.port(parts.port or _PORTS[parts.scheme])
            there = f"{parts.scheme}://{host}:{port}{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
            if parts.scheme == "http" and parts.hostname in _HERE and not _listened_on(host, port):
                return False
            tls = trusting_anybody() if parts.scheme == "https" else None
            reply = await wire.request("GET", there, tls=tls, seconds=self._seconds)
        except (OSError, TimeoutError, ValueError):
            return False
        return reply.status < 400


# Every node has the same few scripts, and runs them every few seconds.
@functools.lru_cache(maxsize=256)
def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


@functools.lru_cache(maxsize=256)
def _commands(content: bytes) -> list[str]:
    """The lines of a script that do something."""
    text = content.decode("utf-8", "replace").replace("\\\n", " ")
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _listened_on(address: str, port: int) -> bool:
    """Whether anybody is there at all: on most nodes no router is, and to find that out by asking takes longer."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trying:
        trying.setblocking(False)
        # Nothing is far away here: what comes back is there when the call returns.
        begun = trying.connect_ex((lab.loopback(address), port))
        return errno.ECONNREFUSED not in (begun, trying.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


@functools.cache
def trusting_anybody() -> ssl.SSLContext:
    """As curl --insecure: the question is whether somebody answers, not who."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
