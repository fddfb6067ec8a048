"""Waiting for a cluster: from the first answer of its API to a console a person can open.

Each stage has a deadline of its own, looks again every few seconds of cloud time, and ends either in what it waited for
or in an error with a sentence on what exactly is missing. All stages only read (but for the kubeconfig, which learns to
trust the cluster's ingress), so they may be repeated at will.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from moorage import errors
from moorage.config import load
from moorage.engine import clock as clocks
from moorage.installer import diagnosis, kube, kubeconfig, probes, produce, wording
from moorage.platforms import registry

T = TypeVar("T")

#: ``say(stage, waiting_for, seconds)``: called when what is missing changes, and every 60 cloud seconds. The second
#: reads on from "waiting for": the goal, a colon, what is missing. The third is how long the stage has taken so far.
Say = Callable[[str, str, float], None]

#: ``cause(role)``: why the machines of a role keep silent; empty if there is no such role, or nothing to tell.
Cause = Callable[[str], str]

MINUTE = 60.0
HEARTBEAT = 60.0
SETTLED = 30.0
#: How long machines may keep silent before it is asked why.
SILENCE = 3 * MINUTE
_EVERY = 5.0

BOOTSTRAP = "/api/v1/namespaces/kube-system/configmaps/bootstrap"
ETCD = "/apis/operator.openshift.io/v1/etcds/cluster"
ETCD_ENDPOINTS = "/api/v1/namespaces/openshift-etcd/configmaps/etcd-endpoints"
INGRESS_AUTHORITY = "/api/v1/namespaces/openshift-config-managed/configmaps/default-ingress-cert"
CONSOLE = "/apis/route.openshift.io/v1/namespaces/openshift-console/routes/console"

_ON_BOOTSTRAP = "look at the bootstrap machine: ssh core@BOOTSTRAP journalctl -b -u release-image -u bootkube"


class WaitFailed(errors.MoorageError):
    """A stage's time is over. ``stage`` says which, ``missing`` what it lacked."""

    def __init__(self, message: str, *, stage: str, missing: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.stage = stage
        self.missing = missing


class BootstrapIncomplete(WaitFailed):
    """The cluster does not stand on its own feet."""

    exit_code = errors.BOOTSTRAP


class InstallIncomplete(WaitFailed):
    """The cluster stands, but is not all there."""

    exit_code = errors.INSTALL


class OperatorsUnsettled(WaitFailed):
    """All is there, but does not come to rest."""

    exit_code = errors.OPERATORS


@dataclasses.dataclass(frozen=True)
class Stage:
    """One thing to wait for: how long at most, and how to complain."""

    name: str
    seconds: float
    goal: str
    complaint: str
    failure: type[WaitFailed]
    remedy: str = ""


@dataclasses.dataclass(frozen=True)
class Installed:
    """A cluster that is ready to be used. ``console_url`` is empty for a cluster without a console.

    ``missing`` tells of machines that it can do without and that are not nodes yet: such as its second worker.
    """

    api_url: str
    console_url: str
    version: str
    kubeconfig: Path
    kubeadmin_password: Path
    degraded: tuple[str, ...] = ()
    missing: str = ""


def bootstrap_complete(
    directory: Path,
    clock: clocks.Clock,
    environ: Mapping[str, str],
    say: Say,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Return when the cluster stands on its own control plane and the bootstrap machine may go.

    ``meanwhile`` is called at every look from when the API has answered once: for what need not wait until the end.
    """
    facts = known(directory)
    with kube.Reader(kubeconfig.read(directory / kubeconfig.FILE), clock, environ) as reader:
        stages = _bootstrap_stages(reader.access.url, facts)
        until(stages[0], lambda: reader.get("/version"), clock, say)
        cause = _cause(probes.Prober(directory, clock, environ), clock)

        def bootstrapped() -> None:
            meanwhile()
            _bootstrapped(reader, facts, cause, directory)

        until(stages[1], bootstrapped, clock, say)
        until(stages[2], lambda: _etcd_moved(reader, facts), clock, say)


def install_complete(directory: Path, clock: clocks.Clock, environ: Mapping[str, str], say: Say) -> Installed:
    """Return when the cluster is installed and its operators have settled."""
    facts = known(directory)
    path = directory / kubeconfig.FILE
    with kube.Reader(kubeconfig.read(path), clock, environ) as reader:
        install, ingress, operators, console = _install_stages(path, facts)
        cause = _cause(probes.Prober(directory, clock, environ), clock)
        version = until(install, lambda: _installed(reader, facts, cause, directory), clock, say)
        kubeconfig.trust(path, until(ingress, lambda: _ingress_authority(reader), clock, say))
        quiet = Quiet(clock)
        settled = until(operators, lambda: quiet.all_of(diagnosis.listed(reader, diagnosis.OPERATORS)), clock, say)
        try:
            url = until(console, lambda: _console(reader), clock, say)
        except WaitFailed:
            url = ""  # a cluster is complete without a console, and the line said before tells what was seen
        return Installed(
            api_url=reader.access.url,
            console_url=url,
            version=version,
            kubeconfig=path,
            kubeadmin_password=directory / "auth" / "kubeadmin-password",
            degraded=diagnosis.degraded(settled),
            missing=diagnosis.still_missing(reader, facts),
        )


def known(directory: Path) -> diagnosis.Facts:
    """What the install-config tells about the cluster to wait for; a wait can do without it."""
    stanzas = registry.stanzas()
    try:
        config, _ = load.read(directory / produce.INSTALL_CONFIG, stanzas)
    except errors.ConfigError:
        return diagnosis.Facts()
    return diagnosis.Facts(
        masters=config.control_plane_replicas,
        workers=config.worker_replicas,
        hardware=stanzas[config.platform.name].hardware,
    )


def _bootstrap_stages(url: str, facts: diagnosis.Facts) -> tuple[Stage, Stage, Stage]:
    return (
        Stage(
            name="api",
            seconds=20 * MINUTE,
            goal="the Kubernetes API",
            complaint=f"the Kubernetes API at {url} cannot be used",
            failure=BootstrapIncomplete,
            remedy=_ON_BOOTSTRAP,
        ),
        Stage(
            name="bootstrap",
            seconds=(60 if facts.hardware else 45) * MINUTE,
            goal="the bootstrap",
            complaint="the bootstrap is not complete",
            failure=BootstrapIncomplete,
            remedy=_ON_BOOTSTRAP,
        ),
        Stage(
            name="etcd",
            seconds=10 * MINUTE,
            goal="etcd to leave the bootstrap machine",
            complaint="the bootstrap's etcd member has not been removed",
            failure=BootstrapIncomplete,
            remedy="leave the bootstrap machine in place: without it etcd may lose its quorum",
        ),
    )


def _install_stages(path: Path, facts: diagnosis.Facts) -> tuple[Stage, Stage, Stage, Stage]:
    see = f"see: oc --kubeconfig {path} get clusterversion,clusteroperators,nodes"
    return (
        Stage(
            name="install",
            seconds=(60 if facts.hardware else 40) * MINUTE,
            goal="the cluster's parts",
            complaint="the cluster is not installed",
            failure=InstallIncomplete,
            remedy=see,
        ),
        Stage(
            name="ingress",
            seconds=5 * MINUTE,
            goal="the ingress's certificate authority",
            complaint="the ingress's certificate authority is not known",
            failure=InstallIncomplete,
            remedy=see,
        ),
        Stage(
            name="operators",
            seconds=30 * MINUTE,
            goal="the operators to come to rest",
            complaint="the operators have not come to rest",
            failure=OperatorsUnsettled,
            remedy=see,
        ),
        Stage(
            name="console",
            seconds=2 * MINUTE,
            goal="the console's address",
            complaint="the console has no address",
            failure=InstallIncomplete,
        ),
    )


class NotYet(Exception):  # noqa: N818 - not an error: there is time left
    """What was looked for is not there yet; says what is missing, and what could help."""

    def __init__(self, missing: str, advice: str = "") -> None:
        super().__init__(missing)
        self.missing = missing
        self.advice = advice


class _Telling:
    """Says what a stage waits for: at every change, and once a minute to show that someone is still there."""

    def __init__(self, stage: Stage, clock: clocks.Clock, say: Say) -> None:
        self._stage = stage
        self._clock = clock
        self._say = say
        self._began = clock.now()
        self._last = ""
        self._said_at = 0.0

    def waiting_for(self, missing: str) -> None:
        missing, now = wording.glance(missing), self._clock.now()
        if missing != self._last or now - self._said_at >= HEARTBEAT:
            self._last, self._said_at = missing, now
            self._say(self._stage.name, f"{self._stage.goal}: {missing}", now - self._began)


def until(stage: Stage, look: Callable[[], T], clock: clocks.Clock, say: Say) -> T:
    """Look until it is there; a silent or troubled API is part of the wait, not its end."""
    deadline = clock.deadline(stage.seconds, stage.name)
    telling = _Telling(stage, clock, say)
    seen = ""
    while True:
        last_look = deadline.expired
        try:
            return look()
        except NotYet as reason:
            missing, advice = reason.missing, reason.advice
            seen = missing
        except kube.ApiProblem as problem:
            missing, advice = problem.message, problem.remedy
        telling.waiting_for(missing)
        if last_look:
            before = f"; last seen before that: {seen}" if seen and seen != missing else ""
            raise stage.failure(
                f"{stage.complaint} after {stage.seconds / MINUTE:.0f} min: {missing}{before}",
                stage=stage.name,
                missing=f"{missing}{before}",
                remedy=advice or stage.remedy,
            )
        # The last look falls on the deadline itself, not up to a whole interval before it.
        clock.sleep(min(_EVERY, deadline.remaining()))


def _bootstrapped(reader: kube.Reader, facts: diagnosis.Facts, cause: Cause, root: Path) -> None:
    data = diagnosis.present(reader, BOOTSTRAP).get("data")
    status = str(data.get("status") or "") if isinstance(data, dict) else ""
    if status == "complete":
        return
    sight = diagnosis.look(reader)
    control_plane = dataclasses.replace(facts, workers=None)
    missing = wording.joined(
        diagnosis.machines_missing(sight, control_plane), cause(diagnosis.silent(sight, control_plane))
    )
    # While machines are missing the operators have nowhere to run, so their complaints would only hide the cause.
    missing = missing or diagnosis.operators_missing(sight.operators)
    told = f"the bootstrap says {status!r}" if status else ""
    raise NotYet(
        wording.joined(told, missing) or "all masters are Ready; the bootstrap has yet to say that it is done",
        diagnosis.advice(sight, root),
    )


def _etcd_moved(reader: kube.Reader, facts: diagnosis.Facts) -> None:
    etcd = diagnosis.present(reader, ETCD)
    removed = diagnosis.condition(etcd, "EtcdBootstrapMemberRemoved").get("status") == "True"
    # Releases before that condition say it in the reason of another.
    gone = diagnosis.condition(etcd, "EtcdRunningInCluster").get("reason") == "BootstrapAlreadyRemoved"
    if not (removed or gone):
        raise NotYet(diagnosis.etcd_missing(etcd, diagnosis.present(reader, ETCD_ENDPOINTS), facts))


def _cause(prober: probes.Prober, clock: clocks.Clock) -> Cause:
    """Why machines of a role keep silent, if it can be told from here.

    Machines take their time to boot, and an API that has just come up refuses what it will grant in a minute: so for a
    while silence is no trouble, and looking for its cause would only find what heals by itself.
    """
    patience = clock.deadline(SILENCE)
    return lambda role: prober.sentence(role) if role and patience.expired else ""


def _installed(reader: kube.Reader, facts: diagnosis.Facts, cause: Cause, root: Path) -> str:
    version = diagnosis.present(reader, diagnosis.VERSION)
    states = {
        kind: diagnosis.condition(version, kind).get("status") for kind in ("Available", "Failing", "Progressing")
    }
    if states["Available"] == "True" and states["Failing"] != "True" and states["Progressing"] == "False":
        return _version(version)
    sight = diagnosis.look(reader)
    missing = wording.joined(diagnosis.sentence(sight, facts), cause(diagnosis.silent(sight, facts)))
    raise NotYet(missing or "the cluster version is not settled", diagnosis.advice(sight, root))


def _version(version: Mapping[str, Any]) -> str:
    desired = (version.get("status") or {}).get("desired") or {}
    return str(desired.get("version") or "")


def _ingress_authority(reader: kube.Reader) -> str:
    bundle = (diagnosis.present(reader, INGRESS_AUTHORITY).get("data") or {}).get("ca-bundle.crt")
    if not kubeconfig.is_trustworthy(str(bundle or "")):
        operators = diagnosis.listed(reader, diagnosis.OPERATORS)
        ingress = [operator for operator in operators if diagnosis.name_of(operator) == "ingress"]
        raise NotYet(
            wording.joined(
                "the ingress operator has not published its certificate", diagnosis.operators_missing(ingress)
            )
        )
    return str(bundle)


def _console(reader: kube.Reader) -> str:
    route = diagnosis.present(reader, CONSOLE)
    if not route:
        return ""
    for ingress in (route.get("status") or {}).get("ingress") or ():
        admitted = diagnosis.condition({"status": ingress}, "Admitted")
        if admitted.get("status") == "True" and ingress.get("host"):
            return f"https://{ingress['host']}"
    raise NotYet("no router has taken up the console's route")


def _undecided(operators: Sequence[diagnosis.Object]) -> str:
    named = ", ".join(map(diagnosis.name_of, operators[:6]))
    return f"{named} cannot tell yet whether there is something to do"


class Quiet:
    """Knows since when each operator has been at rest.

    Counted by our own clock from what is seen, for the cluster's clocks may differ from ours; a new transition time
    betrays a change that came and went between two looks.
    """

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._since: dict[str, tuple[str, float]] = {}

    def all_of(self, operators: Sequence[diagnosis.Object]) -> Sequence[diagnosis.Object]:
        """The operators, if all of them have been at rest for long enough; raises what is missing."""
        now = self._clock.now()
        resting: dict[str, tuple[str, float]] = {}
        busy = []
        for operator in operators:
            name, progressing = diagnosis.name_of(operator), diagnosis.condition(operator, "Progressing")
            if progressing.get("status") != "False":
                busy.append(operator)
                continue
            moved = str(progressing.get("lastTransitionTime") or "")
            before = self._since.get(name)
            resting[name] = before if before is not None and before[0] == moved else (moved, now)
        self._since = resting
        if not operators:
            raise NotYet("there are no operators yet")
        if busy:
            raise NotYet(diagnosis.operators_missing(busy) or _undecided(busy))
        restless = sorted(name for name, (_, since) in resting.items() if now - since < SETTLED)
        if restless:
            listed = ", ".join(restless[:6]) + (", …" if len(restless) > 6 else "")
            raise NotYet(f"{listed} must stay at rest for {SETTLED:.0f} s")
        return operators
