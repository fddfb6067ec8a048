"""What older or larger install-configs say, brought to what the model knows.

Files written for openshift-install years ago must still work, so deprecated spellings are translated the way it does,
with a warning. Fields it knows and Moorage does not serve are refused by name: "unknown field" would be a lie. All of
this happens on plain data, before the model looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from moorage.config import defaults, findings, source, stanza

UNSUPPORTED: Final[dict[tuple[str, ...], str]] = {
    ("arbiter",): "arbiter nodes exist on platform baremetal of openshift-install only",
    ("operatorPublishingStrategy",): "API and ingress are published alike; set publish instead",
    ("controlPlane", "fencing"): "two-node clusters with fencing are not installed by moorage; use 1 or 3 replicas",
    ("compute", "fencing"): "fencing belongs to two-node control planes, which moorage does not install",
    ("controlPlane", "diskSetup"): "add a MachineConfig to openshift/ after: moorage create manifests",
    ("compute", "diskSetup"): "add a MachineConfig to openshift/ after: moorage create manifests",
    (
        "networking",
        "clusterNetworkMTU",
    ): "it exists on platform aws of openshift-install only; the plug-in finds the MTU by itself",
    ("bootstrapInPlace",): "a single node comes up with a bootstrap machine of its own: remove the field",
    ("metadata", "annotations"): "the cluster has no use for them; remove the field",
    ("metadata", "labels"): "the cluster has no use for them; remove the field",
    ("metadata", "namespace"): "the cluster has no use for it; remove the field",
}
"""Fields that openshift-install has and Moorage does not, and what to do instead."""

# An empty value of these means "not set" to openshift-install.
_ENUMERATIONS: Final = frozenset(
    {
        "additionalTrustBundlePolicy",
        "architecture",
        "baselineCapabilitySet",
        "cpuPartitioningMode",
        "credentialsMode",
        "hyperthreading",
        "networkType",
        "publish",
    }
)
_PLUGINS: Final = ("OVNKubernetes", "OpenShiftSDN")


def convert(document: source.Document, chosen: stanza.Stanza) -> Iterator[findings.Finding]:
    """Translate the document's data in place; what was old or is not served comes back as findings."""
    data = document.data
    if data is None:
        return
    _drop_unset(data, ())
    if data.get("kind") == "InstallConfig":
        del data["kind"]
    yield from _refuse_unsupported(data)
    yield from _api_version(data)
    if data.get("featureSet") == "Default":
        data["featureSet"] = ""
    networking = data.get("networking")
    if isinstance(networking, dict):
        yield from _networking(document, networking)
    yield from _compute(data)
    yield from _platform(document, data, chosen)


def _drop_unset(data: dict[str, Any], location: source.Location) -> None:
    for key, value in list(data.items()):
        # `platform: {none: }` chooses a platform, so an empty value there is no omission.
        if value is None and (location[-1:] != ("platform",)):
            del data[key]
        elif value is None:
            data[key] = {}
        elif value == "" and key in _ENUMERATIONS:
            del data[key]
        elif isinstance(value, dict):
            _drop_unset(value, (*location, key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    _drop_unset(item, (*location, key, index))


def _refuse_unsupported(data: dict[str, Any]) -> Iterator[findings.Finding]:
    for names, remedy in UNSUPPORTED.items():
        *parents, name = names
        for location, holder in _sections(data, parents):
            if name in holder:
                del holder[name]
                yield _not_served(source.path((*location, name)), remedy)


def _sections(data: dict[str, Any], parents: list[str]) -> Iterator[tuple[source.Location, dict[str, Any]]]:
    if not parents:
        yield (), data
        return
    held = data.get(parents[0])
    if isinstance(held, dict):
        yield (parents[0],), held
    elif isinstance(held, list):
        for index, item in enumerate(held):
            if isinstance(item, dict):
                yield (parents[0], index), item


def _api_version(data: dict[str, Any]) -> Iterator[findings.Finding]:
    if data.get("apiVersion") in ("v1beta3", "v1beta4"):
        yield _deprecated("apiVersion", "write apiVersion: v1", f"{data['apiVersion']} is an old version of the schema")
        data["apiVersion"] = "v1"


def _networking(document: source.Document, data: dict[str, Any]) -> Iterator[findings.Finding]:
    here = ("networking",)
    yield from _rename(document, data, here, "clusterNetworks", "clusterNetwork", _as_it_is)
    yield from _rename(document, data, here, "machineCIDR", "machineNetwork", lambda old: [{"cidr": old}], (0, "cidr"))
    yield from _rename(document, data, here, "serviceCIDR", "serviceNetwork", _listed, (0,))
    yield from _rename(document, data, here, "type", "networkType", _as_it_is)
    for plugin in _PLUGINS:
        if isinstance(data.get("networkType"), str) and data["networkType"].lower() == plugin.lower():
            data["networkType"] = plugin
    entries = data.get("clusterNetwork")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict) and "hostSubnetLength" in entry:
            yield from _host_subnet_length(entry, f"networking.clusterNetwork[{index}]")


def _platform(document: source.Document, data: dict[str, Any], chosen: stanza.Stanza) -> Iterator[findings.Finding]:
    here = ("platform", chosen.name)
    section = data["platform"][chosen.name] if source.holds(data.get("platform"), chosen.name) else None
    if not isinstance(section, dict):
        return
    for each in chosen.renamed:
        translate, tail = (_listed, (0,)) if each.listed else (_as_it_is, ())
        yield from _rename(document, section, here, each.old, each.new, translate, tail)
    for name, remedy in chosen.unsupported.items():
        if name in section:
            del section[name]
            yield _not_served(source.path((*here, name)), remedy)


def _as_it_is(old: Any) -> Any:
    return old


def _listed(old: Any) -> Any:
    return [old]


def _rename(
    document: source.Document,
    section: dict[str, Any],
    here: source.Location,
    old: str,
    new: str,
    translate: Callable[[Any], Any],
    tail: source.Location = (),
) -> Iterator[findings.Finding]:
    if old not in section:
        return
    value = section.pop(old)
    field, instead = source.path((*here, old)), source.path((*here, new))
    yield _deprecated(field, f"write it as {instead}", "is a deprecated spelling")
    if not section.get(new):
        section[new] = translate(value)
        _move_lines(document, (*here, old), (*here, new), tail)
    else:
        yield findings.Finding(field, f"is ignored, since {instead} is given", "warning", "remove it")


def _move_lines(document: source.Document, old: source.Location, new: source.Location, tail: source.Location) -> None:
    for lines in (document.lines, document.written):
        for location, line in list(lines.items()):
            if location[: len(old)] == old:
                lines[(*new, *tail, *location[len(old) :])] = line  # type: ignore[assignment]
    document.lines[new] = document.lines.get(old, 1)


def _host_subnet_length(entry: dict[str, Any], field: str) -> Iterator[findings.Finding]:
    length = entry.pop("hostSubnetLength")
    if type(length) is not int:
        yield findings.Finding(f"{field}.hostSubnetLength", "is not a whole number", remedy="write hostPrefix instead")
        return
    bits = 128 if ":" in str(entry.get("cidr")) else 32
    yield _deprecated(f"{field}.hostSubnetLength", f"write hostPrefix: {bits - length}", "is a deprecated spelling")
    if length:
        entry.setdefault("hostPrefix", bits - length)


def _compute(data: dict[str, Any]) -> Iterator[findings.Finding]:
    # openshift-install adds its three workers to a list that has no pool named worker, even to an empty one.
    if data.get("compute") == []:
        del data["compute"]
        yield findings.Finding(
            "compute",
            f"is an empty list, which means the default of {defaults.REPLICAS} workers",
            "warning",
            "for no workers write one pool, name: worker, replicas: 0",
        )


def _not_served(field: str, remedy: str) -> findings.Finding:
    return findings.Finding(field, "is known to openshift-install but not to moorage", remedy=remedy)


def _deprecated(field: str, remedy: str, message: str) -> findings.Finding:
    return findings.Finding(field, message, "warning", remedy)
