"""From an asset directory to assets: reads the install-config, picks release and platform, runs the graph."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import moorage
from moorage.assets import graph, keys, overlay, resolve, store
from moorage.config import findings, load

if TYPE_CHECKING:
    from moorage.config import model

INSTALL_CONFIG = "install-config.yaml"

MANIFESTS = ("manifests", "openshift")
IGNITION_CONFIGS = (
    "bootstrap_ign",
    "bootable",
    "master_ign",
    "worker_ign",
    "admin_kubeconfig",
    "kubeadmin_password",
    "metadata",
)


@dataclasses.dataclass(frozen=True)
class Produced:
    """The outcome of a run, with the install-config it came from and the warnings that it deserves."""

    config: model.InstallConfig
    warnings: tuple[findings.Finding, ...]
    result: resolve.Result


def modules() -> Sequence[ModuleType]:
    """The modules whose functions are the assets."""
    from moorage.assets import cluster, ignition, kubeconfigs, manifests, tls

    return (cluster, tls, kubeconfigs, *manifests.MODULES, ignition)


def whole_graph() -> graph.Graph:
    """The graph with its inputs, as `graph` draws it and `produce` runs it."""
    from moorage.assets import bootstrap, platform, values
    from moorage.config import model

    inputs: dict[str, type] = {
        "install_config": model.InstallConfig,
        "platform": platform.Manifests,
        "release": values.Release,
        "key_source": keys.KeySource,
        "moment": datetime.datetime,
        "invoker": str,
        "bootstrap_overrides": bootstrap.Overrides,
    }
    return graph.collect(modules(), inputs)


def produce(
    root: Path,
    targets: Sequence[str],
    key_source: keys.KeySource,
    environ: Mapping[str, str] = os.environ,
    moment: datetime.datetime | None = None,
) -> Produced:
    """Compute ``targets`` in ``root`` and write their files. Nothing is changed when anything is wrong."""
    from moorage.assets import bootstrap, releases
    from moorage.platforms import registry

    moment = (moment or datetime.datetime.now(datetime.UTC)).replace(microsecond=0)
    config, warnings = load.read(root / INSTALL_CONFIG, registry.stanzas())
    release = releases.choose(config.control_plane.architecture, environ)
    invoker = environ.get("OPENSHIFT_INSTALL_INVOKER") or "user"
    causes = {
        INSTALL_CONFIG: _digest(config.to_dict()),
        "the release image": _digest(dataclasses.asdict(release)),
        "moorage itself": moorage.__version__,
    }
    with store.opened(root) as directory:
        result = resolve.run(
            whole_graph(),
            directory,
            inputs={
                "install_config": config,
                "platform": registry.manifests(config.platform.name),
                "release": release,
                "key_source": key_source,
                "moment": moment,
                "invoker": invoker,
                "bootstrap_overrides": bootstrap.overrides(environ),
            },
            targets=targets,
            causes=causes,
            stamp=f"{moment:%Y%m%dT%H%M%SZ}",
        )
    return Produced(config, tuple(warnings), result)


def _digest(content: object) -> str:
    return overlay.digest(json.dumps(content, sort_keys=True).encode())
