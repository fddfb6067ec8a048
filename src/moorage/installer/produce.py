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
from moorage.installer import aside

if TYPE_CHECKING:
    from moorage.assets import values
    from moorage.config import model
    from moorage.platforms import contract

INSTALL_CONFIG = "install-config.yaml"

MANIFESTS = ("manifests", "openshift", "companions")
IGNITION_CONFIGS = (
    "bootstrap_ign",
    "bootable",
    "master_ign",
    "worker_ign",
    "admin_kubeconfig",
    "kubeadmin_password",
    "metadata",
    "companions",
)


@dataclasses.dataclass(frozen=True)
class Wish:
    """What is asked for: the install-config, the warnings that it deserves, and the release to install."""

    config: model.InstallConfig
    warnings: tuple[findings.Finding, ...]
    release: values.Release


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


def inputs() -> dict[str, type]:
    """What the graph stands on, by name and type."""
    from moorage.assets import bootstrap, platform, values
    from moorage.config import model

    return {
        "install_config": model.InstallConfig,
        "platform": platform.Manifests,
        "release": values.Release,
        "key_source": keys.KeySource,
        "moment": datetime.datetime,
        "invoker": str,
        "bootstrap_overrides": bootstrap.Overrides,
    }


def whole_graph() -> graph.Graph:
    """The graph with its inputs, as `graph` draws it and `produce` runs it."""
    return graph.collect(modules(), inputs())


def wish(root: Path, environ: Mapping[str, str] = os.environ) -> Wish:
    """The install-config in ``root`` and the release that it and the environment ask for. Changes nothing."""
    from moorage.assets import releases
    from moorage.platforms import registry

    config, warnings = load.read(root / INSTALL_CONFIG, registry.stanzas())
    release = releases.choose(config.control_plane.architecture, environ)
    return Wish(config, tuple(warnings), release)


def produce(
    root: Path,
    targets: Sequence[str],
    key_source: keys.KeySource,
    environ: Mapping[str, str] = os.environ,
    moment: datetime.datetime | None = None,
) -> Produced:
    """Compute ``targets`` in ``root`` and write their files. Nothing is changed when anything is wrong."""
    wanted = wish(root, environ)
    aside.finish(root)
    with store.opened(root) as directory:
        return within(directory, wanted, targets, key_source, environ, moment)


def within(
    directory: store.Store,
    wanted: Wish,
    targets: Sequence[str],
    key_source: keys.KeySource,
    environ: Mapping[str, str] = os.environ,
    moment: datetime.datetime | None = None,
) -> Produced:
    """`produce` for those who hold the directory already and go on holding it."""
    from moorage.assets import bootstrap
    from moorage.platforms import registry

    moment = (moment or datetime.datetime.now(datetime.UTC)).replace(microsecond=0)
    config = wanted.config
    result = resolve.run(
        whole_graph(),
        directory,
        inputs={
            "install_config": config,
            "platform": registry.manifests(config.platform.name),
            "release": wanted.release,
            "key_source": key_source,
            "moment": moment,
            "invoker": environ.get("OPENSHIFT_INSTALL_INVOKER") or "user",
            "bootstrap_overrides": bootstrap.overrides(environ),
        },
        targets=targets,
        causes={
            INSTALL_CONFIG: _digest(config.to_dict()),
            "the release image": _digest(dataclasses.asdict(wanted.release)),
            "moorage itself": moorage.__version__,
        },
        stamp=f"{moment:%Y%m%dT%H%M%SZ}",
    )
    return Produced(config, wanted.warnings, result)


def cluster(produced: Produced) -> contract.Cluster:
    """The cluster to be built, from a run that had `boot_configs` among its targets."""
    from moorage.platforms import contract

    values = produced.result.values
    return contract.Cluster(
        config=produced.config,
        cluster_id=values["cluster_id"],
        release=values["release"],
        endpoints=values["endpoints"],
        ignition=values["boot_configs"],
    )


def _digest(content: object) -> str:
    return overlay.digest(json.dumps(content, sort_keys=True).encode())
