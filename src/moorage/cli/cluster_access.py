"""The way to a running cluster for the commands that look after its machines: a kubeconfig, or the pod they run in.

A cluster's names may be known to one name server alone (``MOORAGE_RESOLVER``). The Kubernetes client asks the system,
so it is then given a copy of the kubeconfig with the address in the place of the name, and the name to check the
certificate by.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorage.engine import clock as clocks
    from moorage.machines.runtime import client as clients

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"


def add_flag(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the cluster (default: that of the asset directory, or KUBECONFIG, or in a pod its own)",
    )


def chosen(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The kubeconfig to use; None means: the service account of this pod."""
    from moorage.installer import kubeconfig

    if arguments.kubeconfig:
        return Path(arguments.kubeconfig)
    if environ.get(_IN_CLUSTER):
        return None
    made = Path(arguments.dir) / kubeconfig.FILE
    if made.exists():
        return made
    return Path(environ["KUBECONFIG"]) if environ.get("KUBECONFIG") else None


@contextlib.contextmanager
def connected(arguments: argparse.Namespace, clock: clocks.Clock) -> Iterator[clients.Client]:
    """A client of the cluster."""
    from moorage.machines.runtime import client as clients
    from moorage.machines.runtime import connection

    path = chosen(arguments)
    if path is None:
        yield clients.Client(connection.in_cluster(), clock)
        return
    with _resolvable(path, os.environ, clock) as usable:
        # It is read at once, and whatever files it needs are the official client's.
        api = connection.from_kubeconfig(usable)
    yield clients.Client(api, clock)


@contextlib.contextmanager
def _resolvable(path: Path, environ: Mapping[str, str], clock: clocks.Clock) -> Iterator[Path]:
    """A kubeconfig that leads where ``path`` does, without names that the system cannot resolve."""
    from moorage.installer import names

    if names.chosen_server(environ) is None:
        yield path
        return
    content = _with_addresses(_loaded(path), environ, clock)
    # Beside the original, as paths in it count from there.
    descriptor, draft = tempfile.mkstemp(prefix=".kubeconfig-", dir=path.parent)
    try:
        import yaml

        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yaml.safe_dump(content, file)
        yield Path(draft)
    finally:
        Path(draft).unlink(missing_ok=True)


def _loaded(path: Path) -> Any:
    import yaml

    from moorage import errors

    try:
        return yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError) as problem:
        raise errors.ConfigError(
            f"the kubeconfig {path} cannot be read", remedy="give a kubeconfig of the cluster by --kubeconfig"
        ) from problem


def _with_addresses(content: Any, environ: Mapping[str, str], clock: clocks.Clock) -> Any:
    from moorage.installer import names

    for entry in (content.get("clusters") or ()) if isinstance(content, dict) else ():
        cluster = entry.get("cluster") or {}
        parts = urllib.parse.urlsplit(str(cluster.get("server") or ""))
        if not parts.hostname:
            continue
        address = names.resolve(parts.hostname, environ, clock)[0]
        host = f"[{address}]" if ":" in address else address
        cluster["server"] = parts._replace(netloc=f"{host}:{parts.port or 443}").geturl()
        cluster.setdefault("tls-server-name", parts.hostname)
    return content
