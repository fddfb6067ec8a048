"""`moorage create install-config|manifests|ignition-configs|cluster`: from a few answers to bootable configs."""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage.cli import create_cluster, create_install_config, early, talk

if TYPE_CHECKING:
    from moorage.installer import produce


def add(command: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    kinds = command.add_subparsers(title="what to create", metavar="WHAT", required=True)
    create_install_config.add(kinds, shared)
    _asset_command(
        kinds, shared, "manifests", run_manifests, "write the cluster's manifests, to be looked at and edited"
    )
    _asset_command(kinds, shared, "ignition-configs", run_ignition, "write bootstrap.ign, master.ign and worker.ign")
    create_cluster.add(kinds, shared)


def _asset_command(kinds: Any, shared: argparse.ArgumentParser, name: str, run: Any, text: str) -> None:
    kind = kinds.add_parser(name, parents=[shared], help=text, description=f"{text[0].upper()}{text[1:]}.")
    kind.add_argument("-o", "--output", choices=("text", "json"), default="text", help="summary for people or scripts")
    kind.set_defaults(run=run)


def run_manifests(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    return _make(arguments, voice, "MANIFESTS", "moorage create ignition-configs")


def run_ignition(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    return _make(arguments, voice, "IGNITION_CONFIGS", "")


def _make(arguments: argparse.Namespace, voice: talk.Voice, targets: str, then: str) -> int:
    started = time.monotonic()
    # A second of work leaves nothing worth collecting, and looking for it would take a tenth of that second.
    gc.disable()
    root = Path(arguments.dir)
    source = early.key_source(root, voice)

    from moorage.installer import produce

    produced = produce.produce(root, getattr(produce, targets), source)
    for warning in produced.warnings:
        voice.finding(produce.INSTALL_CONFIG, warning)
    for note in produced.result.notes:
        voice.info(note)
    _summary(arguments, voice, produced, time.monotonic() - started, then)
    return 0


def _summary(
    arguments: argparse.Namespace, voice: talk.Voice, produced: produce.Produced, seconds: float, then: str
) -> None:
    result = produced.result
    cluster_id = result.values.get("cluster_id")
    told = {
        "cluster": produced.config.cluster_domain,
        "infraID": cluster_id.infra_id if cluster_id else None,
        "written": list(result.written),
        "notes": list(result.notes),
        "seconds": round(seconds, 2),
    }
    if arguments.output == "json":
        print(json.dumps(told, indent=1))
        return
    folders: dict[str, int] = {}
    for path in result.written:
        folder = path.rpartition("/")[0]
        folders[f"{folder}/ ({{}} files)" if folder else path] = folders.get(f"{folder}/ ({{}} files)", 0) + 1
    listed = ", ".join(name.format(count) for name, count in folders.items())
    if listed:
        voice.info(f"wrote {listed} in {arguments.dir} for {told['cluster']} ({told['infraID']}) in {seconds:.1f} s")
    else:
        voice.info(f"everything in {arguments.dir} is up to date for {told['cluster']} ({told['infraID']})")
    if then:
        voice.info(f"next: {then}{'' if arguments.dir == '.' else f' --dir {arguments.dir}'}")
