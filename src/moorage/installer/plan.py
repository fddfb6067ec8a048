"""What `create cluster` will do, before it does it: every resource, in order, with its time, its limits, its path.

The plan is read from the very flow that is run afterwards, so the two cannot disagree. Making one calls nobody.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast

from moorage.assets import platform as platforms
from moorage.assets import values
from moorage.config import findings, model
from moorage.engine import critical, flow, graph
from moorage.installer import durations
from moorage.machines import objects
from moorage.platforms import contract, registry

WORKERS: Final = 16
FORMATS: Final = ("text", "json", "mermaid", "dot")


@dataclasses.dataclass(frozen=True)
class Row:
    """One resource of the plan. ``start`` is the earliest second after the beginning at which it can be begun."""

    name: str
    kind: str
    needs: tuple[str, ...]
    start: float
    expected: float
    critical: bool
    made: bool


@dataclasses.dataclass(frozen=True)
class Later:
    """Machines that the cluster makes itself once its control plane is up; they count in the limits all the same."""

    machine_set: str
    count: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """A cluster to be, as far as the platform is concerned.

    ``seconds`` is how long the infrastructure takes, ``path`` the chain of resources that decides it. ``later`` is what
    the cluster adds by itself. ``unknown`` says why limits and reuse are not known; they are empty then.
    """

    cluster: str
    flow: str
    platform: str
    rows: tuple[Row, ...]
    path: tuple[str, ...]
    seconds: float
    later: tuple[Later, ...] = ()
    reused: tuple[contract.Reused, ...] = ()
    limits: tuple[contract.Limit, ...] = ()
    findings: tuple[findings.Finding, ...] = ()
    unknown: str = ""

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(row.kind for row in self.rows))

    @property
    def feasible(self) -> bool:
        return all(finding.severity != "error" for finding in self.findings)


def objections(report: contract.Report) -> tuple[findings.Finding, ...]:
    """All that speaks against the cluster: what the look at the platform found, and every limit it would break."""
    over = tuple(
        findings.Finding(
            "platform",
            f"{limit.name}: {_amount(limit.adds, limit)} are needed, "
            f"{_amount(limit.most - limit.used, limit)} are left of {_amount(limit.most, limit)}",
            remedy="have the limit raised, free some, or ask for less",
        )
        for limit in report.limits
        if not limit.fits
    )
    return (*report.findings, *over)


def later(cluster: contract.Cluster) -> tuple[Later, ...]:
    """What is left for the cluster to make: its MachineSets, without those machines that day 1 makes."""
    context = platforms.Context(cluster.config, cluster.cluster_id, cluster.release)
    hook = registry.manifests(cluster.config.platform.name)
    made = Counter(_labels(machine).get(objects.SET_LABEL) for machine in hook.worker_machines(context))
    sets = ((_name(found), _replicas(found)) for found in hook.workers(context))
    return tuple(Later(name, count - made[name]) for name, count in sets if count > made[name])


def _name(manifest: values.Manifest) -> str:
    return str(cast(Mapping[str, Any], manifest)["metadata"]["name"])


def _labels(manifest: values.Manifest) -> Mapping[str, str]:
    return cast(Mapping[str, Any], manifest)["metadata"].get("labels") or {}


def _replicas(manifest: values.Manifest) -> int:
    return int(cast(Mapping[str, Any], manifest)["spec"]["replicas"])


def make(
    infrastructure: flow.Flow,
    report: contract.Report | None,
    config: model.InstallConfig,
    *,
    later: Sequence[Later] = (),
    finished: Collection[str] = (),
    unknown: str = "",
) -> Plan:
    """The plan of a flow. ``report`` None means that the platform could not be asked; ``unknown`` says why."""
    expected = {name: 0.0 if name in finished else time for name, time in infrastructure.expected.items()}
    needs = infrastructure.needs
    path = critical.critical_path(needs, expected)
    chain = path.names if path.seconds else ()
    starts = _starts(needs, expected)
    things = {thing.name: thing for thing in infrastructure.resources}
    rows = tuple(
        Row(
            name=name,
            kind=things[name].kind,
            needs=needs[name],
            start=starts[name],
            expected=things[name].expected,
            critical=name in chain,
            made=name in finished,
        )
        for name in _in_order(needs, starts)
    )
    seen = report or contract.Report()
    return Plan(
        cluster=config.cluster_domain,
        flow=infrastructure.name,
        platform=config.platform.name,
        rows=rows,
        path=chain,
        seconds=critical.makespan(needs, expected, WORKERS),
        later=tuple(later),
        reused=seen.reused,
        limits=seen.limits,
        findings=objections(seen),
        unknown="" if report is not None else unknown or "the platform was not asked",
    )


def _starts(needs: graph.Needs, expected: dict[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in graph.order(needs):
        found[name] = max((found[need] + expected[need] for need in needs[name]), default=0.0)
    return found


def _in_order(needs: graph.Needs, starts: dict[str, float]) -> list[str]:
    """Every name after what it needs, and as they will be begun: earlier first."""
    rank = {name: place for place, name in enumerate(graph.order(needs))}
    return sorted(needs, key=lambda name: (starts[name], rank[name]))


def render(plan: Plan, form: str) -> str:
    """The plan in one of `FORMATS`, without a line end."""
    return {"text": _text, "json": _json, "mermaid": _mermaid, "dot": _dot}[form](plan)


def _text(plan: Plan) -> str:
    counts = ", ".join(f"{count} {kind}" for kind, count in plan.counts.items()) or "nothing"
    there = sum(row.made for row in plan.rows)
    lines = [
        f"{plan.cluster} on {plan.platform}: {len(plan.rows)} resources ({counts})"
        + (f", {there} of them made already" if there else ""),
        "",
        *_table(plan.rows),
        "",
        f"infrastructure takes about {durations.words(plan.seconds)}; "
        f"decided by (*): {' → '.join(plan.path) or 'nothing'}",
    ]
    lines += [
        f"made by the cluster itself, once its control plane is up: {_machines(each.count)} of MachineSet "
        f"{each.machine_set}"
        for each in plan.later
    ]
    lines += [f"reused, and left alone by destroy: {item.kind} {item.name}" + _why(item.why) for item in plan.reused]
    if plan.unknown:
        lines.append(f"limits, clashes and reuse are unknown: {plan.unknown}")
    lines += [f"limit {_limit(limit)}" for limit in plan.limits]
    lines += [
        f"{finding.severity}: {finding.field}: {finding.message}" + _why(finding.remedy) for finding in plan.findings
    ]
    return "\n".join(lines)


def _table(rows: Sequence[Row]) -> list[str]:
    cells = [("", "RESOURCE", "KIND", "STARTS", "TAKES", "AFTER")]
    for row in rows:
        after = "made already" if row.made else ", ".join(row.needs) or "-"
        start, takes = f"+{durations.words(row.start)}", durations.words(row.expected)
        cells.append(("*" if row.critical else "", row.name, row.kind, start, takes, after))
    widths = [max(len(line[column]) for line in cells) for column in range(5)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[5]]).rstrip()
        for line in cells
    ]


def _machines(count: int) -> str:
    return f"{count} machine{'s' if count > 1 else ''}"


def _why(text: str) -> str:
    return f" ({text})" if text else ""


def _amount(number: float, limit: contract.Limit) -> str:
    return f"{number:g} {limit.unit}".rstrip()


def _limit(limit: contract.Limit) -> str:
    after = limit.used + limit.adds
    verdict = "" if limit.fits else f": over by {_amount(after - limit.most, limit)}"
    return f"{limit.name}: {limit.used:g} used + {limit.adds:g} = {after:g} of {_amount(limit.most, limit)}{verdict}"


def _json(plan: Plan) -> str:
    told = dataclasses.asdict(plan)
    told["limits"] = [{**dataclasses.asdict(limit), "fits": limit.fits} for limit in plan.limits]
    return json.dumps(
        {**told, "resources": told.pop("rows"), "counts": plan.counts, "feasible": plan.feasible}, indent=1
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _label(row: Row) -> tuple[str, str]:
    return f"{row.kind} {row.name}", f"+{durations.words(row.start)}, {durations.words(row.expected)}"


def _mermaid(plan: Plan) -> str:
    ids = {row.name: f"r{number}" for number, row in enumerate(plan.rows)}
    lines = ["flowchart LR"]
    for row in plan.rows:
        label = "<br>".join(part.replace('"', "#quot;") for part in _label(row))
        lines.append(f'  {ids[row.name]}["{label}"]{":::critical" if row.critical else ""}')
    lines += [f"  {ids[need]} --> {ids[row.name]}" for row in plan.rows for need in row.needs]
    return "\n".join([*lines, "  classDef critical stroke-width:3px"])


def _dot(plan: Plan) -> str:
    lines = ["digraph plan {", "  rankdir=LR", "  node [shape=box]"]
    for row in plan.rows:
        label = "\\n".join(_quoted(part)[1:-1] for part in _label(row))
        lines.append(f'  {_quoted(row.name)} [label="{label}"{", penwidth=3" if row.critical else ""}]')
    lines += [f"  {_quoted(need)} -> {_quoted(row.name)}" for row in plan.rows for need in row.needs]
    return "\n".join([*lines, "}"])
