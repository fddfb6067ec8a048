"""The way to a running cluster for the commands that look after its machines: a kubeconfig, or the pod they run in.

A cluster's names may be known to one name server alone (``MOORAGE_RESOLVER``). The Kubernetes client asks the system,
so it is then given a copy of the kubeconfig with the address in the place of the name, and the name to check the
certificate by.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorage import errors as top
    from moorage.engine import clock as clocks
    from moorage.machines.runtime import client as clients
    from moorage.machines.runtime import errors as api_errors

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_GIVE_ANOTHER = "give a kubeconfig of the cluster by --kubeconfig"
#: How the library below names a connection, in front of what became of it.
_CONNECTION = re.compile(r"^HTTPS?Connection(?:Pool)?\(host='([^']*)', port=(\d+)\): ")


def add_flag(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the cluster (default: that of the asset directory, else in a pod its own, else that of KUBECONFIG)",
    )


def require_extra() -> None:
    """Say what is to be installed, to those who have moorage without what these commands need."""
    import importlib

    from moorage import errors

    for name in ("kubernetes", "prometheus_client"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as missing:
            raise errors.MoorageError(
                f"this command needs {name}, which is not installed", remedy="pip install 'moorage[machines]'"
            ) from missing


def chosen(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The kubeconfig to use; None means: the service account of this pod."""
    from moorage.installer import kubeconfig

    if arguments.kubeconfig:
        return Path(arguments.kubeconfig)
    made = Path(arguments.dir) / kubeconfig.FILE
    if made.exists():
        return made
    if environ.get(_IN_CLUSTER):
        return None
    return Path(environ["KUBECONFIG"]) if environ.get("KUBECONFIG") else None


@contextlib.contextmanager
def connected(arguments: argparse.Namespace, clock: clocks.Clock) -> Iterator[clients.Client]:
    """A client of the cluster."""
    require_extra()
    from moorage.machines.runtime import client as clients
    from moorage.machines.runtime import connection, errors

    path = chosen(arguments)
    if path is None:
        _require_pod(arguments, os.environ)
        api = connection.in_cluster()
    else:
        _require_file(path)
        # What is wrong with it is to be told of this file, and not of a copy.
        api = connection.from_kubeconfig(path)
        with _resolvable(path, os.environ, clock) as usable:
            if usable != path:
                # It is read at once, and whatever files it needs are the official client's.
                api = connection.from_kubeconfig(usable)
    if not api.configuration.verify_ssl:
        # Whoever wrote that into a kubeconfig knows it, and need not be told at every call.
        import urllib3

        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    try:
        yield clients.Client(api, clock)
    except errors.ApiError as refused:
        raise explained(refused, path) from refused


def _require_pod(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    from moorage import errors
    from moorage.installer import kubeconfig

    if not environ.get(_IN_CLUSTER):
        raise errors.MoorageError(
            f"no cluster is named: there is no {Path(arguments.dir) / kubeconfig.FILE}, and KUBECONFIG is not set",
            remedy="give the folder of its installation by --dir, or its kubeconfig by --kubeconfig",
        )


def _require_file(path: Path) -> None:
    """KUBECONFIG may name several files, of which some may be missing."""
    from moorage import errors

    if os.pathsep not in str(path) and not path.is_file():
        what = "is not a file" if path.exists() else "is not there"
        raise errors.MoorageError(f"the kubeconfig {path} {what}", remedy=_GIVE_ANOTHER)


def explained(refused: api_errors.ApiError, path: Path | None) -> top.MoorageError:
    """A refusal by a cluster that ends a command, for the person who typed it: whose it is, and what to try next."""
    from moorage import errors
    from moorage.machines.runtime import errors as kinds

    cluster, look = ("this pod's cluster", "see whether its API runs")
    if path is not None:
        cluster, look = f"the cluster of {path}", f"kubectl --kubeconfig {path} get nodes"
    words = _CONNECTION.sub(r"\1:\2: ", refused.words) or refused.message
    match refused:
        case kinds.Unauthorized():
            message, remedy = f"{cluster} does not accept its credentials", f"they may have expired; {_GIVE_ANOTHER}"
        case kinds.Forbidden():
            message, remedy = f"{cluster} does not permit that: {words}", f"ask for that right, or {_GIVE_ANOTHER}"
        case kinds.Unavailable(code=0) if "CERTIFICATE_VERIFY_FAILED" in words:
            message = f"{cluster} cannot be trusted: {words}"
            remedy = f"somebody else may answer at its address; {_GIVE_ANOTHER}"
        case kinds.Unavailable():
            message, remedy = f"{cluster} is out of reach: {words}", look
        case _:
            message, remedy = refused.message, look
    return errors.MoorageError(message, remedy=remedy)


@contextlib.contextmanager
def _resolvable(path: Path, environ: Mapping[str, str], clock: clocks.Clock) -> Iterator[Path]:
    """A kubeconfig that leads where ``path`` does, without names that the system cannot resolve."""
    from moorage.installer import names

    if names.chosen_server(environ) is None:
        yield path
        return
    content = _loaded(path)
    try:
        content = _with_addresses(content, environ, clock)
    except names.NameProblem as unknown:
        chosen_one = f"{names.RESOLVER}={environ[names.RESOLVER]}"
        unknown.remedy = f"see whether {chosen_one} knows this cluster's names, or unset it"
        raise
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
        raise errors.MoorageError(f"the kubeconfig {path} cannot be read", remedy=_GIVE_ANOTHER) from problem


def _with_addresses(content: Any, environ: Mapping[str, str], clock: clocks.Clock) -> Any:
    from moorage.installer import names

    for entry in (content.get("clusters") or ()) if isinstance(content, dict) else ():
        try:
            cluster = entry["cluster"]
            parts = urllib.parse.urlsplit(str(cluster["server"]))
            name, port = parts.hostname, parts.port or 443
        except (TypeError, LookupError, ValueError):
            continue  # one that leads nowhere; if it is the one that is meant, its user will hear so
        if not name:
            continue
        address = names.resolve(name, environ, clock)[0]
        host = f"[{address}]" if ":" in address else address
        cluster["server"] = parts._replace(netloc=f"{host}:{port}").geturl()
        cluster.setdefault("tls-server-name", name)
    return content
