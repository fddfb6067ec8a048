"""The look at a platform before the first create. It only reads, so a call that fails in passing is repeated.

Where the nodes carry the cluster's addresses themselves, the two names that lead to them are the user's to write. They
are looked up here too: a cluster whose names lead nowhere comes up and cannot be reached.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from moorage.config import findings
from moorage.engine import retry
from moorage.installer import names
from moorage.platforms import contract, registry

_FIELD = "baseDomain"


def look(cluster: contract.Cluster, around: contract.Surroundings, *, patience: float) -> contract.Report:
    """What the platform's preflight sees; raises what keeps it from seeing for ``patience`` cloud seconds."""
    platform = registry.preflight(cluster.config.platform.name)
    deadline = around.clock.deadline(patience, "the look at the platform")
    report = retry.retry(lambda: platform.inspect(cluster, around), deadline=deadline)
    return dataclasses.replace(report, findings=(*report.findings, *_nameless(cluster, around)))


def _nameless(cluster: contract.Cluster, around: contract.Surroundings) -> Iterator[findings.Finding]:
    """The names that do not lead to the cluster's virtual addresses, as seen from here."""
    points = cluster.endpoints
    if points.api_vips:
        yield from _leads(points.api, points.api, points.api_vips, around)
    if points.ingress_vips:
        # Any name below apps will do; this one is asked for first by a person.
        console = f"console-openshift-console.apps.{points.cluster_domain}"
        yield from _leads(console, f"*.apps.{points.cluster_domain}", points.ingress_vips, around)


def _leads(name: str, record: str, vips: Sequence[str], around: contract.Surroundings) -> Iterator[findings.Finding]:
    wanted = " and ".join(vips)
    try:
        found = names.resolve(name, around.environ, around.clock)
    except names.NoAnswer:
        return  # nothing was learned
    except names.NameProblem as problem:
        message = f"{record} leads nowhere yet ({problem.message}), so the cluster could not be reached by name"
        yield findings.Finding(
            _FIELD, message, severity="warning", remedy=f"write the DNS record: {record} to {wanted}"
        )
        return
    if not set(found) & set(vips):
        message = f"{name} leads to {', '.join(found)}, and not to {wanted}, which the nodes will carry"
        yield findings.Finding(
            _FIELD,
            message,
            severity="warning",
            remedy=f"correct the DNS record {record}, unless something translates it",
        )
