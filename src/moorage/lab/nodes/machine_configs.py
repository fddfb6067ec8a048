"""What a machine of a pool is given when it asks for its configuration.

The MachineConfigs that the pool selects are laid over each other in the order of their names (a worker's before a
custom pool's), which makes the pool's rendered MachineConfig; to its Ignition config the server adds what only it
knows: the credentials with which a new node introduces itself, the node's first annotations, and last the MachineConfig
itself, without its Ignition part, for the daemon that deals with what Ignition cannot do.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from moorage import errors
from moorage.lab.nodes import base_configs, merging, resources, specs, validation

Object = dict[str, Any]

KUBECONFIG = "/etc/kubernetes/kubeconfig"
KUBELET_CA = "/etc/kubernetes/kubelet-ca.crt"
ANNOTATIONS = "/etc/machine-config-daemon/node-annotations.json"
CONTENT = "/etc/mcs-machine-config-content.json"
ENCAPSULATED = "/etc/ignition-machine-config-encapsulated.json"

_BUILT_IN = ("master", "worker")
_KERNELS = ("realtime", "64k-pages")


class CannotRender(errors.MoorageError):
    """The MachineConfigs of a pool do not make a configuration."""


def rendered(
    manifests: Iterable[Object], pool: str, *, kubeconfig: str, root_ca: str, kubelet_ca: str
) -> specs.Config | None:
    """The Ignition config (newest spec) for machines of a pool; None if there is no such pool.

    ``kubeconfig`` holds the bootstrap credentials, ``kubelet_ca`` those whose clients a kubelet lets in.
    """
    config = machine_config(manifests, pool, root_ca=root_ca)
    return None if config is None else served(config, kubeconfig=kubeconfig, kubelet_ca=kubelet_ca)


def machine_config(manifests: Iterable[Object], pool: str, *, root_ca: str) -> Object | None:
    """The pool's rendered MachineConfig, named by what is in it; None if there is no such pool."""
    known = list(manifests)
    if not exists(known, pool):
        return None
    selected = [each for each in known if _of_kind(each, "MachineConfig") and _selects(known, pool, each)]
    templates = base_configs.base(known, pool, root_ca)
    if pool not in _BUILT_IN:
        # Machines of a custom pool are workers in all but one thing: their kubelet names the pool as a role too.
        templates = base_configs.base(known, "worker", root_ca) + templates[-1:]
    spec = _merged_spec([*templates, *selected])
    digest = hashlib.md5(json.dumps(spec, sort_keys=True).encode(), usedforsecurity=False).hexdigest()
    return {
        "apiVersion": f"{base_configs.GROUP}/v1",
        "kind": "MachineConfig",
        "metadata": {"name": f"rendered-{pool}-{digest}"},
        "spec": spec,
    }


def exists(manifests: Sequence[Object], pool: str) -> bool:
    """Whether somebody speaks of such a pool: there are always masters and workers."""
    return pool in _BUILT_IN or any(
        (_of_kind(each, "MachineConfigPool") and (each.get("metadata") or {}).get("name") == pool)
        or (_of_kind(each, "MachineConfig") and _labels(each).get(base_configs.ROLE_LABEL) == pool)
        for each in manifests
    )


def _of_kind(manifest: Object, kind: str) -> bool:
    group = str(manifest.get("apiVersion") or "").partition("/")[0]
    return manifest.get("kind") == kind and group == base_configs.GROUP


def _labels(manifest: Object) -> dict[str, str]:
    return (manifest.get("metadata") or {}).get("labels") or {}


def _selects(manifests: Sequence[Object], pool: str, config: Object) -> bool:
    """Whether the pool's selector takes a MachineConfig; a pool without one takes its own and the workers'."""
    given = next(
        (
            each
            for each in manifests
            if _of_kind(each, "MachineConfigPool") and (each.get("metadata") or {}).get("name") == pool
        ),
        {},
    )
    labels = _labels(config)
    selector = (given.get("spec") or {}).get("machineConfigSelector")
    if selector is None:
        wanted = {pool} if pool in _BUILT_IN else {"worker", pool}
        return labels.get(base_configs.ROLE_LABEL) in wanted
    plain = (selector.get("matchLabels") or {}).items()
    return all(labels.get(name) == value for name, value in plain) and all(
        _fulfils(labels, each) for each in selector.get("matchExpressions") or []
    )


def _fulfils(labels: dict[str, str], expression: Object) -> bool:
    key, values = expression.get("key") or "", expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case other:
            raise CannotRender(f"{other!r} is not a label selector operator")


def _merged_spec(configs: list[Object]) -> Object:
    """One spec out of many, as the machine-config controller makes it."""

    def order(each: Object) -> tuple[bool, str]:
        return _labels(each).get(base_configs.ROLE_LABEL) != "worker", each["metadata"]["name"]

    configs = sorted(configs, key=order)
    specs_ = [each.get("spec") or {} for each in configs]
    kernels = [each["kernelType"] for each in specs_ if each.get("kernelType") in _KERNELS]
    extensions = [name for each in specs_ for name in each.get("extensions") or []]
    if kernels and "kernel-devel" in extensions:
        raise CannotRender(f"installing kernel-devel extension is not supported with kernelType: {kernels[-1]}")
    images = [each["osImageURL"] for each in specs_ if each.get("osImageURL")]
    return {
        "baseOSExtensionsContainerImage": "",
        "config": _merged_ignition(configs),
        "extensions": extensions,
        "fips": any(each.get("fips") for each in specs_),
        "kernelArguments": [argument for each in specs_ for argument in each.get("kernelArguments") or []],
        "kernelType": kernels[-1] if kernels else "default",
        "osImageURL": images[-1] if images else "",
    }


def _merged_ignition(configs: list[Object]) -> specs.Config:
    whole: specs.Config = {"ignition": {"version": specs.written(specs.NEWEST)}}
    for each in configs:
        said = (each.get("spec") or {}).get("config")
        if said:
            whole = merging.merged(whole, _with_compression(_readable(said, each["metadata"]["name"])))
    for file in (whole.get("storage") or {}).get("files") or []:
        if (file.get("contents") or {}).get("compression") == "":
            del file["contents"]["compression"]
        # Ignition would refuse to write over what is there; the operator never does.
        file.setdefault("overwrite", True)
    return whole


def _readable(said: Object, name: str) -> specs.Config:
    try:
        config, _ = specs.read(json.dumps(said).encode())
        validation.check(config)
    except specs.IgnitionError as problem:
        raise CannotRender(f"parsing Ignition config of MachineConfig {name} failed: {problem}") from problem
    return config


def _with_compression(config: specs.Config) -> specs.Config:
    # A merge takes each field by itself, so contents without compression would inherit that of what they replace.
    for file in (config.get("storage") or {}).get("files") or []:
        if file.get("contents"):
            file["contents"].setdefault("compression", "")
    return config


def served(config: Object, *, kubeconfig: str, kubelet_ca: str) -> specs.Config:
    """The Ignition config of a rendered MachineConfig, with what the server adds to it."""
    name = config["metadata"]["name"]
    whole: specs.Config = copy.deepcopy(config["spec"]["config"])
    storage = whole.setdefault("storage", {})
    files = storage.setdefault("files", [])
    storage["files"] = [each for each in files if each["path"] != KUBELET_CA] if kubelet_ca else files
    notes = {f"{base_configs.GROUP}/{key}": name for key in ("currentConfig", "desiredConfig", "firstPivotConfig")} | {
        f"{base_configs.GROUP}/state": "Done"
    }
    added = {KUBELET_CA: kubelet_ca} if kubelet_ca else {}
    added |= {
        ANNOTATIONS: json.dumps(notes, separators=(",", ":"), sort_keys=True),
        KUBECONFIG: kubeconfig,
        CONTENT: json.dumps(config, indent=4),
        ENCAPSULATED: json.dumps(_encapsulated(config), separators=(",", ":")),
    }
    storage["files"] = [*storage["files"], *(_file(path, content) for path, content in added.items())]
    return whole


def _encapsulated(config: Object) -> Object:
    empty = {"ignition": {"version": specs.written(specs.NEWEST)}}
    return {**config, "spec": {**config["spec"], "config": empty}}


def _file(path: str, content: str) -> Object:
    return {
        "path": path,
        "mode": 0o644,
        "overwrite": True,
        "contents": {"source": resources.encoded(content.encode())},
    }


def without_kernel_arguments(config: specs.Config) -> specs.Config:
    """The config for an Ignition that knows no kernel arguments: the daemon sets them, from the MachineConfig."""
    arguments = config.get("kernelArguments") or {}
    if not arguments:
        return config
    if arguments.get("shouldNotExist"):
        raise CannotRender("can't serve a spec before 3.3 with ignition kernelArguments.shouldNotExist populated")
    rest = copy.deepcopy({name: value for name, value in config.items() if name != "kernelArguments"})
    for file in rest["storage"]["files"]:
        if file["path"] in (CONTENT, ENCAPSULATED):
            said = json.loads(resources.decoded(file["contents"]["source"]))
            said["spec"]["kernelArguments"] = [
                *(said["spec"].get("kernelArguments") or []),
                *(arguments.get("shouldExist") or []),
            ]
            file["contents"]["source"] = resources.encoded(json.dumps(said).encode())
    return rest
