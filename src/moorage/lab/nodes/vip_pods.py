"""Static pods that run keepalived or HAProxy: which ones are on a machine's disk, and where they have their config.

A container sees the machine's files through its mounts, so the path on its command line is led back to the disk by
them. A pod whose config is not on the disk is found all the same: somebody has to say what it lacks.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
from collections.abc import Iterator
from typing import Any

import yaml

from moorage.lab.nodes import files as files_
from moorage.lab.nodes import static_pods

Object = dict[str, Any]

KEEPALIVED, HAPROXY = "keepalived", "haproxy"
_CONFIGS = {KEEPALIVED: "keepalived.conf", HAPROXY: "haproxy.cfg"}
_USUAL = {KEEPALIVED: "/etc/keepalived/keepalived.conf", HAPROXY: "/etc/haproxy/haproxy.cfg"}
_MENTIONED = re.compile(rb"keepalived|haproxy")


@dataclasses.dataclass(frozen=True)
class Program:
    """A keepalived or HAProxy that is to run; ``config`` is None where its file is not on the disk.

    ``monitored`` says whether the pod has a monitor beside it, as those have that the payload brings: it takes the
    bootstrap's keepalived away when its time is over, and leads the API's port through HAProxy.
    """

    name: str
    pod: str
    path: str
    config: str | None
    mounts: tuple[tuple[str, str], ...] = ()
    monitored: bool = False

    def on_host(self, path: str) -> str:
        """Where a path inside the container is on the machine."""
        return _on_host(path, self.mounts)


def mentioned(machine: files_.Machine) -> bool:
    """Whether a closer look is worth it: some static pod speaks of one of the programs."""
    start = f"{static_pods.MANIFESTS}/"
    provisioned = machine.provisioned
    written = {} if provisioned is None else provisioned.files
    return any(_MENTIONED.search(file.content) for path, file in written.items() if path.startswith(start)) or any(
        _MENTIONED.search(content) for path, content in machine.kept.items() if path.startswith(start)
    )


def programs(files: files_.Files) -> list[Program]:
    """What is to run, each program of a pod once."""
    found: dict[tuple[str, str, str], Program] = {}
    for content in files.below(static_pods.MANIFESTS).values():
        for program in _of_pod(_loaded(content), files):
            found.setdefault((program.pod, program.name, program.path), program)
    return list(found.values())


def _loaded(content: bytes) -> Object:
    """A manifest; what is none is the kubelet's affair."""
    try:
        pod = yaml.safe_load(content)
    except yaml.YAMLError:
        return {}
    return pod if isinstance(pod, dict) and pod.get("kind") == "Pod" and isinstance(pod.get("spec"), dict) else {}


def _of_pod(pod: Object, files: files_.Files) -> Iterator[Program]:
    spec = pod.get("spec") or {}
    containers = [each for each in spec.get("containers") or () if isinstance(each, dict)]
    volumes = {
        each["name"]: str((each.get("hostPath") or {}).get("path", ""))
        for each in spec.get("volumes") or ()
        if isinstance(each, dict) and "name" in each
    }
    monitored = any(_is_monitor(each) for each in containers)
    for container in containers:
        if _is_monitor(container):
            continue
        for name in _CONFIGS:
            if _runs(container, name):
                mounts = _mounts(container, volumes)
                path = _config_path(container, name, mounts, files)
                content = files.find(path)
                text = None if content is None else content.decode("utf-8", "replace")
                label = str((pod.get("metadata") or {}).get("name", name))
                yield Program(name, label, path, text, mounts, monitored)


def _line(container: Object) -> str:
    return "\n".join(str(word) for key in ("command", "args") for word in container.get(key) or ())


def _is_monitor(container: Object) -> bool:
    return str(container.get("name", "")).endswith("-monitor")


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
    asked = re.search(rf"{name}\b[^\n;&|]*?\s(?:-f|--use-file)[=\s]+([^\s;&|\"']+)", _line(container))
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
