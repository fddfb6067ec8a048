"""Static pods that run keepalived, HAProxy or CoreDNS: which ones are on a machine's disk, and where their configs are.

A container sees the machine's files through its mounts, so the path on its command line is led back to the disk by
them. A pod whose config is not on the disk is found all the same: somebody has to say what it lacks. A pod may also
have an agent (`moorage node-network`), which renders the configs of the programs beside it.
"""

from __future__ import annotations

import dataclasses
import functools
import posixpath
import re
from collections.abc import Iterator
from typing import Any

import yaml

from moorage.lab.nodes import files as files_
from moorage.lab.nodes import static_pods

Object = dict[str, Any]

KEEPALIVED, HAPROXY, COREDNS = "keepalived", "haproxy", "coredns"
_CONFIGS = {KEEPALIVED: "keepalived.conf", HAPROXY: "haproxy.cfg", COREDNS: "Corefile"}
_USUAL = {
    KEEPALIVED: "/etc/keepalived/keepalived.conf",
    HAPROXY: "/etc/haproxy/haproxy.cfg",
    COREDNS: "/etc/coredns/Corefile",
}
_OPTIONS = {KEEPALIVED: "-f|--use-file", HAPROXY: "-f", COREDNS: "-conf"}
_AGENT = "node-network"
_SETTINGS = "/etc/moorage/network.json"
_MENTIONED = re.compile(rb"keepalived|haproxy|coredns|node-network")


@dataclasses.dataclass(frozen=True)
class Program:
    """A program that is to run; ``config`` is None where its file is not on the disk.

    ``monitored`` says whether the pod has a monitor beside it, as those have that the payload brings: it takes the
    bootstrap's keepalived away when its time is over, and leads the API's port through HAProxy. ``rendered`` says that
    an agent writes the config: nobody starts before it has, and it waits by itself before it changes anything.
    """

    name: str
    pod: str
    path: str
    config: str | None
    mounts: tuple[tuple[str, str], ...] = ()
    monitored: bool = False
    rendered: bool = False

    def on_host(self, path: str) -> str:
        """Where a path inside the container is on the machine."""
        return _on_host(path, self.mounts)


@dataclasses.dataclass(frozen=True)
class Agent:
    """An agent that renders the configs of its pod: as which role, and where on the machine its settings are."""

    pod: str
    role: str
    settings: str


def mentioned(machine: files_.Machine) -> bool:
    """Whether a closer look is worth it: some static pod speaks of one of the programs."""
    start = f"{static_pods.MANIFESTS}/"
    provisioned = machine.provisioned
    written = {} if provisioned is None else provisioned.files
    return any(_mentions(file.content) for path, file in written.items() if path.startswith(start)) or any(
        _mentions(content) for path, content in machine.kept.items() if path.startswith(start)
    )


# All machines of a role have the same manifests, and are looked at every few seconds.
@functools.lru_cache(maxsize=1024)
def _mentions(content: bytes) -> bool:
    return _MENTIONED.search(content) is not None


def programs(files: files_.Files) -> list[Program]:
    """What is to run, each program of a pod once."""
    found: dict[tuple[str, str, str], Program] = {}
    for content in files.below(static_pods.MANIFESTS).values():
        if _mentions(content):
            for program in _of_pod(_loaded(content), files):
                found.setdefault((program.pod, program.name, program.path), program)
    return list(found.values())


def agents(files: files_.Files) -> list[Agent]:
    """The agents that are to run, one for a pod."""
    found: dict[str, Agent] = {}
    for content in files.below(static_pods.MANIFESTS).values():
        if _mentions(content):
            pod = _loaded(content)
            for container in _containers(pod):
                if _is_agent(container):
                    settings = _on_host(_SETTINGS, _mounts(container, _volumes(pod)))
                    role = re.search(r"--role[=\s]+(\S+)", _line(container))
                    found.setdefault(_label(pod), Agent(_label(pod), role[1] if role else "", settings))
    return list(found.values())


@functools.lru_cache(maxsize=256)
def _loaded(content: bytes) -> Object:
    """A manifest; what is none is the kubelet's affair."""
    try:
        pod = yaml.safe_load(content)
    except yaml.YAMLError:
        return {}
    return pod if isinstance(pod, dict) and pod.get("kind") == "Pod" and isinstance(pod.get("spec"), dict) else {}


def _of_pod(pod: Object, files: files_.Files) -> Iterator[Program]:
    containers, volumes = _containers(pod), _volumes(pod)
    rendered = any(_is_agent(each) for each in containers)
    monitored = rendered or any(_is_monitor(each) for each in containers)
    for container in containers:
        if _is_monitor(container) or _is_agent(container):
            continue
        for name in _CONFIGS:
            if _runs(container, name):
                mounts = _mounts(container, volumes)
                path = _config_path(container, name, mounts, files)
                content = files.find(path)
                text = None if content is None else content.decode("utf-8", "replace")
                yield Program(name, _label(pod) or name, path, text, mounts, monitored, rendered)


def _containers(pod: Object) -> list[Object]:
    return [each for each in (pod.get("spec") or {}).get("containers") or () if isinstance(each, dict)]


def _volumes(pod: Object) -> dict[str, str]:
    return {
        each["name"]: str((each.get("hostPath") or {}).get("path", ""))
        for each in (pod.get("spec") or {}).get("volumes") or ()
        if isinstance(each, dict) and "name" in each
    }


def _label(pod: Object) -> str:
    return str((pod.get("metadata") or {}).get("name", ""))


def _line(container: Object) -> str:
    return "\n".join(str(word) for key in ("command", "args") for word in container.get(key) or ())


def _is_monitor(container: Object) -> bool:
    return str(container.get("name", "")).endswith("-monitor")


def _is_agent(container: Object) -> bool:
    return _AGENT in _line(container).split("\n")


def _runs(container: Object, name: str) -> bool:
    """Whether its command line starts the program; where it has none, whether its image is that of the program."""
    line = _line(container)
    if line:
        return re.search(rf"(?:^|[\s/\"']){name}(?:\s|$|\")", line) is not None
    return name in posixpath.basename(str(container.get("image", "")))


def _mounts(container: Object, volumes: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Mount points and what of the machine is there, the longest first."""
    found = [
        (str(each["mountPath"]).rstrip("/") or "/", volumes[each["name"]].rstrip("/") or "/")
        for each in container.get("volumeMounts") or ()
        if isinstance(each, dict) and "mountPath" in each and volumes.get(each.get("name", ""))
    ]
    return tuple(sorted(found, key=lambda pair: -len(pair[0])))


def _on_host(path: str, mounts: tuple[tuple[str, str], ...]) -> str:
    for inside, outside in mounts:
        if path == inside:
            return outside
        if path.startswith(f"{inside.rstrip('/')}/"):
            return posixpath.join(outside, path[len(inside.rstrip("/")) + 1 :])
    return path


def _config_path(container: Object, name: str, mounts: tuple[tuple[str, str], ...], files: files_.Files) -> str:
    """The config file on the machine: the one of the command line, the usual one, or any of that name it sees."""
    asked = re.search(rf"{name}\b[^\n;&|]*?\s(?:{_OPTIONS[name]})[=\s]+([^\s;&|\"']+)", _line(container))
    wanted = _on_host(asked[1] if asked else _USUAL[name], mounts)
    if files.exists(wanted):
        return wanted
    if not asked:
        for _, outside in mounts:
            if posixpath.basename(outside) == _CONFIGS[name] and files.exists(outside):
                return outside
            for path in files.below(outside):
                if posixpath.basename(path) == _CONFIGS[name]:
                    return posixpath.join(outside, path)
    return wanted
