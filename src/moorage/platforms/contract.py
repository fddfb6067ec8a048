"""What a platform is: a folder of small modules, each of the shape described here.

`config` and `manifests` are needed before anything exists (see `config.stanza` and `assets.platform`); the others act
on the platform itself. `registry` has one line per platform and loads a module when it is asked for. A platform that
lacks a module says so by not having the file, and the installer says it to the user.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from moorage.assets import values
from moorage.config import findings, model, survey
from moorage.engine import clock as clocks
from moorage.engine import flow, secret

Scope = Literal["cluster", "bootstrap"]


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """Where a platform's calls are made from: its settings and credentials come from ``environ``."""

    environ: Mapping[str, str]
    clock: clocks.Clock
    #: Tells the log of every call to the platform: a line without secrets.
    trace: Callable[[str], None]
    #: Which of our programs calls, as its administrators are told: ``installer``, or ``machine-api`` in a cluster.
    caller: str = "installer"


class Survey(Protocol):
    """`survey.py`: what to ask a person, with live answers. A platform without the file has nothing to ask.

    Reading the module loads no SDK: the keys of every platform's questions are wanted before one is chosen.
    """

    KEYS: Sequence[str]
    """The questions that can be answered beforehand."""

    def missing(self, interview: survey.Interview, around: Surroundings) -> Iterable[findings.Finding]: ...

    def ask(self, interview: survey.Interview, around: Surroundings) -> survey.Settled: ...


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A cluster to be built, complete: nothing in it is read from disk again while it is built."""

    config: model.InstallConfig
    cluster_id: values.ClusterID
    release: values.Release
    endpoints: values.Endpoints
    ignition: Mapping[str, bytes] = dataclasses.field(repr=False)
    """The configs that machines boot from, by role: bootstrap, master, worker."""

    @property
    def infra_id(self) -> str:
        return self.cluster_id.infra_id


@dataclasses.dataclass(frozen=True)
class Metadata:
    """All that is known of a cluster when it is to be destroyed: what metadata.json says, or less.

    With ``--infra-id`` alone ``cluster_name`` and ``settings`` are empty: the mark on the resources must be enough.
    """

    platform: str
    infra_id: str
    cluster_name: str = ""
    uuid: str = ""
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Limit:
    """A quota or capacity that the cluster touches."""

    name: str
    used: float
    adds: float
    most: float
    unit: str = ""

    @property
    def fits(self) -> bool:
        return self.used + self.adds <= self.most


@dataclasses.dataclass(frozen=True)
class Reused:
    """Something of the user's that the cluster will use and that destroy leaves alone."""

    kind: str
    name: str
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Report:
    """What a look at the platform showed before the first create."""

    findings: tuple[findings.Finding, ...] = ()
    limits: tuple[Limit, ...] = ()
    reused: tuple[Reused, ...] = ()


class Preflight(Protocol):
    """`preflight.py`: credentials, permissions, quota, capacity, name clashes. Changes nothing."""

    def inspect(self, cluster: Cluster, around: Surroundings) -> Report: ...


class Infra(Protocol):
    """`infra.py`: the day-1 flow. Declaring it makes no call; the resources do, when they are run."""

    def declare(self, cluster: Cluster, around: Surroundings) -> flow.Flow: ...

    def cluster_secret(self, cluster: Cluster, around: Surroundings) -> ClusterSecret | None:
        """The platform's credentials for the controllers in the cluster; None if they need none.

        The installer hands them over through the cluster's API. In a manifest they would be part of the bootstrap
        machine's user data, which others on the platform may read.
        """

    def secrets(self, cluster: Cluster, around: Surroundings) -> Sequence[secret.Secret]:
        """Credentials that must never reach journal or log, in whatever message they may turn up."""


@dataclasses.dataclass(frozen=True)
class ClusterSecret:
    """A Secret of the cluster: the namespaces it goes into, all the same, and the plain values of its keys."""

    namespaces: tuple[str, ...]
    name: str
    values: Mapping[str, secret.Secret] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Machine:
    """One node's instance as it is wanted, by day 1 and day 2 alike: what a Machine object says, and its user data."""

    name: str
    infra_id: str
    role: str
    """master, worker or bootstrap."""
    provider_spec: Mapping[str, object]
    """``spec.providerSpec.value`` of the Machine object."""
    user_data: bytes = dataclasses.field(repr=False)
    provider_id: str = ""
    """What the instance is known as since it was made, if that is recorded anywhere: names may be taken by others."""
    not_addresses: tuple[str, ...] = ()
    """Addresses that the node may carry for a while and that are not its own: the cluster's VIPs."""


@dataclasses.dataclass(frozen=True)
class Instance:
    """What the platform has for a `Machine`. ``ready`` means: complete and switched on; addresses may come later."""

    id: str
    provider_id: str
    state: str
    """The platform's own word for it."""
    ready: bool
    addresses: tuple[str, ...] = ()
    """Addresses of the node itself, the primary one first; never a virtual one that it carries for a while."""
    waiting_for: str = ""
    """What is missing until it is ready, in a person's words."""
    type: str = ""
    """Its size, in a word that can be a label; empty if the platform does not tell."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a machine's instance is, in words that can be labels; empty where the platform has no such thing."""

    region: str = ""
    zone: str = ""


class Actuator(Protocol):
    """`machine.py`: one instance per `Machine`, made, completed and removed by the same calls on day 1 and day 2.

    What goes wrong is told in the engine's types: `Terminal` (the spec can never work), `Transient` (again, later),
    `NotFound`, `Conflict`, `Unauthorized`, `Ambiguous`. No method waits for the platform: callers come again.
    """

    def exists(self, machine: Machine) -> Instance | None:
        """The machine's instance, found by name and mark; what is being deleted counts as there."""

    def create(self, machine: Machine) -> Instance:
        """Ask for it, once."""

    def update(self, machine: Machine) -> Instance:
        """Do the next step that is missing (none, if it is complete): what was half built is completed."""

    def delete(self, machine: Machine) -> bool:
        """Do the next step of its removal; `NotFound` once it is surely gone.

        True once the removal itself is ordered: it goes by itself from then on, so that it may be believed gone when it
        is not found. False while a step before that is under way, such as switching it off.
        Once its provider id is known it is removed by that alone: what bears its name may be another machine's by then.
        """


@runtime_checkable
class Locating(Protocol):
    """What an actuator is besides, on platforms that have places. Day 1 does not ask."""

    def place(self, machine: Machine) -> Place:
        """Where the machine's instance is, or is going to be."""


class Machines(Protocol):
    """`machine.py` as a module."""

    def actuator(self, around: Surroundings) -> Actuator: ...


class ClusterCredentials(Protocol):
    """`cluster_credentials.py`: how controllers in a cluster come to the platform's credentials."""

    SECRET: str
    """The name of the Secret that has them; what the installer hands over in `Infra.cluster_secret`."""

    def environ(self, plain: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        """What to add to ``environ`` of the `Surroundings`, for a Secret of these values.

        Files go into ``folder``, which is private, and are for their owner alone. `ConfigError` if they are no good.
        """


@dataclasses.dataclass(frozen=True)
class Remnant:
    """Something on the platform that bears the cluster's mark and is to go.

    ``stage`` orders removal: all of a lower stage go before a higher one is touched. ``remove`` asks for it,
    ``present`` looks again. What hung on it and is not ours to remove is noted in ``spared`` as ``remove`` comes to it,
    in words for a person: nobody else will tell them that it is still there.
    """

    kind: str
    name: str
    stage: int
    remove: Callable[[], None] = dataclasses.field(repr=False)
    present: Callable[[], bool] = dataclasses.field(repr=False)
    spared: Sequence[str] = ()


class Destroy(Protocol):
    """`destroy.py`: finds by mark, on the platform, what belongs to a cluster. Never by journal, never by guess."""

    SETTLE: float
    """Cloud seconds that a thing may exist before `discover` sees it: an empty answer is doubted for so long."""

    def discover(self, metadata: Metadata, scope: Scope, around: Surroundings) -> Sequence[Remnant]: ...

    def secrets(self, metadata: Metadata, around: Surroundings) -> Sequence[secret.Secret]:
        """Credentials that must never reach journal or log, as in `Infra`."""
