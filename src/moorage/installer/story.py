"""`create cluster`, told as one story: assets, preflight, infrastructure, bootstrap, its removal, install.

Every stage is journaled. Kill the process anywhere and start it again: finished stages are passed over, the one that
was under way goes on. An error keeps its exit code and says what was left in place and what to type next.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from moorage import errors as top
from moorage.assets import cluster as identity
from moorage.assets import keys, store
from moorage.config import findings
from moorage.engine import clock as clocks
from moorage.engine import errors, flow, progress, secret
from moorage.engine import journal as journals
from moorage.installer import (
    approving,
    aside,
    delivery,
    destroy,
    metadata,
    plan,
    preflight,
    produce,
    stages,
    waiting,
    wording,
)
from moorage.platforms import contract, registry

FLOW = "create cluster"
#: The waits of a user who made the machines; they are about no resource of ours.
WAITS = "wait-for"
STAGES = ("assets", "preflight", "infrastructure", "bootstrap", "bootstrap-removal", "install")
ASSETS = (*produce.IGNITION_CONFIGS, "boot_configs")
#: Cloud seconds for all of the infrastructure; every resource has a deadline of its own below that.
INFRASTRUCTURE = 4 * 3600.0
#: Cloud seconds for a platform in trouble to answer before the first create.
PREFLIGHT = 600.0

PRESERVE_BOOTSTRAP = "OPENSHIFT_INSTALL_PRESERVE_BOOTSTRAP"
NOTHING = "nothing"
SKIP_PREFLIGHT = "OPENSHIFT_INSTALL_SKIP_PREFLIGHT_VALIDATIONS"


def _unheard(*_: object) -> None:
    """Where no one listens."""


def _untraced(_secrets: Sequence[secret.Secret]) -> Callable[[str], None]:
    return _unheard


@dataclasses.dataclass(frozen=True)
class Audience:
    """Who is told what happens: events of flows, waits, notes, findings, and each call to the platform."""

    events: progress.Listener = _unheard
    say: stages.Say = _unheard
    note: Callable[[str], None] = _unheard
    finding: Callable[[findings.Finding], None] = _unheard
    tracer: destroy.Tracer = _untraced
    planned: Callable[[contract.Cluster, flow.Flow], None] = _unheard


@dataclasses.dataclass(frozen=True)
class Created:
    """A cluster that is ready to be used."""

    cluster_domain: str
    infra_id: str
    resources: int
    installed: waiting.Installed


class Stopped(top.MoorageError):
    """The story ended early. Its message holds the cause and what was left; its remedy, the commands to go on."""

    def __init__(self, stage: str, cause: top.MoorageError, infra_id: str, left: str, root: Path) -> None:
        changed = " --accept-changes" if isinstance(cause, errors.GraphChanged) else ""
        words, remedies = _told(cause)
        lines = [*dict.fromkeys(remedies), f"to go on:     {wording.command('moorage create cluster', root)}{changed}"]
        if left != NOTHING:
            lines.append(f"to remove it: {wording.command('moorage destroy cluster', root)}")
        super().__init__(
            f"{stage} of {infra_id} stopped: {words}\n       left in place: {left}", remedy="\n      ".join(lines)
        )
        self.exit_code = cause.exit_code
        self.stage = stage
        self.cause = cause


def _told(cause: top.MoorageError) -> tuple[str, list[str]]:
    """What went wrong, with the platform's own words, and what may help."""
    if isinstance(cause, errors.FlowFailed):
        return "; ".join(map(str, cause.failures)), [failure.remedy for failure in cause.failures if failure.remedy]
    words = cause.told() if isinstance(cause, errors.PlatformFailure) else cause.message
    return words, [cause.remedy] if cause.remedy else []


class Refused(top.ConfigError):
    """The platform, as it is now, cannot take the cluster; ``findings`` says why, one by one."""

    def __init__(self, source: str, found: Sequence[findings.Finding]) -> None:
        super().__init__(
            "the platform cannot take this cluster; nothing was created",
            remedy=f"correct what is named above; {SKIP_PREFLIGHT}=1 goes on regardless",
        )
        self.source = source
        self.findings = tuple(found)


def create_cluster(
    root: Path,
    key_source: keys.KeySource,
    clock: clocks.Clock,
    environ: Mapping[str, str],
    audience: Audience,
    *,
    rollback: bool = False,
    accept_changes: bool = False,
) -> Created:
    """Bring the cluster to its end, going on where an earlier run stopped."""
    wanted = produce.wish(root, environ)
    infra = registry.infra(wanted.config.platform.name)
    aside.finish(root)
    with store.opened(root) as directory:
        _refuse_another_cluster(directory, wanted)
        begun = clock.wall(), clock.now()
        produced = produce.within(directory, wanted, ASSETS, key_source, environ)
        _announce(produced, audience)
        cluster = produce.cluster(produced)
        _check_metadata(root, cluster)
        around = contract.Surroundings(environ, clock, _unheard)
        secrets = (secret.Secret(wanted.config.pull_secret.get_secret_value()), *infra.secrets(cluster, around))
        around = dataclasses.replace(around, trace=audience.tracer(secrets))
        with journals.Journal(root / aside.JOURNAL, secrets=secrets) as journal:
            told = stages.Stages(FLOW, STAGES, _about(cluster.infra_id, wanted.config.platform.name), journal, clock)
            told.finished("assets", *begun)
            infrastructure = infra.declare(cluster, around)
            keys_of_platform = infra.cluster_secret(cluster, around)
            story = _Story(
                root, cluster, infrastructure, keys_of_platform, around, journal, told, audience, secret.forms(secrets)
            )
            return story.tell(rollback=rollback, accept_changes=accept_changes)


def _refuse_another_cluster(directory: store.Store, wanted: produce.Wish) -> None:
    """Raise if the journal is about a cluster that this install-config no longer describes, or one being destroyed.

    To be asked before the assets are made again: they would carry the new name into metadata.json.
    """
    path = directory.root / aside.JOURNAL
    if not path.exists():
        return
    with journals.Journal(path, create=False) as journal:
        flows, before = journal.flows(), stages.about(journal, FLOW)
    where = shlex.quote(str(directory.root))
    if destroy.FLOW in flows:
        raise top.StoreError(
            f"the cluster of {directory.root} is being destroyed: some of what the journal calls finished is gone",
            remedy=f"let it end first: moorage destroy cluster --dir {where}",
        )
    marks = directory.state.kept.get("marks")
    mark = identity.cluster_id(wanted.config, identity.Marks(**marks)).infra_id if marks else "a new cluster"
    now = _about(mark, wanted.config.platform.name)
    if set(flows) - {FLOW, WAITS} and before != now:
        raise top.StoreError(
            f"{directory.root} holds the cluster {before}, and the install-config now describes {now}",
            remedy=f"change it back, or first remove what exists: moorage destroy cluster --dir {where}",
        )


def _check_metadata(root: Path, cluster: contract.Cluster) -> None:
    """Raise if metadata.json (a user's file is left alone) is about another cluster: destroy would miss this one."""
    known = metadata.read(root / metadata.FILE)
    if (known.infra_id, known.platform) != (cluster.infra_id, cluster.config.platform.name):
        raise top.StoreError(
            f"{root / metadata.FILE} is about {known.infra_id}, and not about {cluster.infra_id}, which is to be made",
            remedy=f"destroy it first: moorage destroy cluster --dir {shlex.quote(str(root))}; or move the file away",
        )


def _about(infra_id: str, platform: str) -> str:
    return f"{infra_id} on {platform}"


def _announce(produced: produce.Produced, audience: Audience) -> None:
    for warning in produced.warnings:
        audience.finding(warning)
    for note in produced.result.notes:
        audience.note(note)


@dataclasses.dataclass(frozen=True)
class _Story:
    """The stages that come after the assets; everything they need is at hand."""

    root: Path
    cluster: contract.Cluster
    infrastructure: flow.Flow
    credentials: contract.ClusterSecret | None
    around: contract.Surroundings
    journal: journals.Journal
    told: stages.Stages
    audience: Audience
    spellings: tuple[str, ...] = dataclasses.field(repr=False)

    def tell(self, *, rollback: bool, accept_changes: bool) -> Created:
        if not self.told.begun("bootstrap-removal"):
            # From there on parts of the infrastructure are meant to be gone, and making them again would be wrong.
            self._preflight()
            self._build(rollback=rollback, accept_changes=accept_changes)
        with approving.letting_in(self.cluster, self.root, self.around, self._made(), self._tell):
            if not self.told.done("bootstrap"):
                with self._stage("bootstrap") as say:
                    self._bootstrap(say)
            self._remove_bootstrap()
            with self._stage("install") as say:
                installed = self._install(say)
        self.told.end("finished")
        config = self.cluster.config
        return Created(config.cluster_domain, self.cluster.infra_id, len(self.infrastructure.resources), installed)

    def _preflight(self) -> None:
        attempts = self.journal.attempts(self.infrastructure.name)
        if attempts and attempts[-1].outcome != "rolled-back":
            return  # what an earlier run made counts against the limits and clashes with itself
        if self.around.environ.get(SKIP_PREFLIGHT):
            self.audience.note(f"preflight is left out, because {SKIP_PREFLIGHT} is set")
            return
        with self._stage("preflight"):
            found = plan.objections(preflight.look(self.cluster, self.around, patience=PREFLIGHT))
            if any(finding.severity == "error" for finding in found):
                raise Refused(produce.INSTALL_CONFIG, found)
        for finding in found:
            self.audience.finding(finding)

    def _build(self, *, rollback: bool, accept_changes: bool) -> None:
        self.audience.planned(self.cluster, self.infrastructure)
        with self._stage("infrastructure"):
            flow.run(
                self.infrastructure,
                journal=self.journal,
                clock=self.around.clock,
                listeners=[self.audience.events],
                rollback=rollback,
                accept_changes=accept_changes,
                timeout=INFRASTRUCTURE,
            )

    def _remove_bootstrap(self) -> None:
        if self.told.done("bootstrap-removal"):
            return
        if self.around.environ.get(PRESERVE_BOOTSTRAP):
            self.audience.note(f"the bootstrap stays, because {PRESERVE_BOOTSTRAP} is set: moorage destroy bootstrap")
            return
        platform = self.cluster.config.platform.name
        with self._stage("bootstrap-removal"):
            known = metadata.read(self.root / metadata.FILE)
            destroy.destroy(known, "bootstrap", registry.destroy(platform), self.around, self.audience.events)

    def _bootstrap(self, say: stages.Say) -> None:
        """Wait for the control plane. Its controllers make the workers, so they get the credentials meanwhile."""
        clock, environ = self.around.clock, self.around.environ
        if self.credentials is None:
            waiting.bootstrap_complete(self.root, clock, environ, say)
            return
        courier = delivery.Courier(self.credentials, self.root, clock, environ, self._tell)
        waiting.bootstrap_complete(self.root, clock, environ, say, courier.call)

    def _install(self, say: stages.Say) -> waiting.Installed:
        """Give the cluster what only the installer can, if it has not got it yet, and wait until it is complete."""
        clock, environ = self.around.clock, self.around.environ
        if self.credentials is not None:
            delivery.deliver(self.credentials, self.root, clock, environ, say, self._tell)
        return waiting.install_complete(self.root, clock, environ, say)

    def _made(self) -> datetime.datetime:
        """When the last of the machines was there, by our clock."""
        finished = [entry.at for entry in self.journal.events(self.infrastructure.name) if entry.state == "finished"]
        return max(finished, default=self.around.clock.wall())

    def _tell(self, sentence: str) -> None:
        """Say it, and keep it for the timeline; the platform's own words may be in it."""
        clean = secret.scrub(sentence, self.spellings)
        self.audience.note(clean)
        self.told.tell(clean)

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[stages.Say]:
        """A stage whose error tells what was left and what to do next."""
        try:
            with self.told.stage(name):
                yield self.told.heard(name, self.audience.say)
        except (errors.Interrupted, Refused):
            raise
        except top.MoorageError as cause:
            raise Stopped(name, cause, self.cluster.infra_id, self._left(cause), self.root) from cause

    def _left(self, cause: top.MoorageError) -> str:
        if not isinstance(cause, errors.FlowFailed):
            count = len(self.journal.finished(self.infrastructure.name))
            return f"all {count} resources made so far" if count else NOTHING
        if cause.rolled_back:
            return "; ".join(map(str, cause.left)) or NOTHING
        perhaps = [f"{name} (unfinished)" for name in cause.unfinished]
        return ", ".join([*cause.exists, *perhaps]) or NOTHING
