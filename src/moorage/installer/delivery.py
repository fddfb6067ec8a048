"""The platform's credentials, handed to the cluster: for the controllers there that make and remove machines.

They go through the cluster's own API, and no other way: in a manifest they would be part of the bootstrap machine's
user data, which others on the platform may read. The controllers make the first workers, so `Courier` tries from the
moment the API answers, beside the wait for the bootstrap; `deliver` insists. What is there already and the same is left
alone, so both may be repeated at will.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from moorage.assets import objects
from moorage.engine import clock as clocks
from moorage.engine import secret
from moorage.installer import kube, kubeconfig, waiting
from moorage.platforms import contract

PATIENCE = 10 * waiting.MINUTE

#: ``tell(sentence)``: what was put into the cluster.
Tell = Callable[[str], None]


class Undelivered(waiting.InstallIncomplete):
    """The cluster did not take the credentials."""


def deliver(
    wanted: contract.ClusterSecret,
    directory: Path,
    clock: clocks.Clock,
    environ: Mapping[str, str],
    say: waiting.Say,
    tell: Tell,
) -> None:
    """Put the Secret into the cluster, wherever it belongs; tells where something had to be done for that."""
    for namespace in wanted.namespaces:
        stage = waiting.Stage(
            name="credentials",
            seconds=PATIENCE,
            goal="the cluster to take the platform's credentials",
            complaint=f"the cluster did not take the Secret {namespace}/{wanted.name}",
            failure=Undelivered,
            remedy=f"see: oc --kubeconfig {directory / kubeconfig.FILE} get namespace {namespace}",
        )
        with kube.Editor(kubeconfig.read(directory / kubeconfig.FILE), clock, environ) as editor:
            _report(tell, namespace, wanted, waiting.until(stage, _putting(editor, wanted, namespace), clock, say))


class Courier:
    """Hands over what it can, as early as it can; what goes wrong is left to `deliver`, which comes later."""

    def __init__(
        self,
        wanted: contract.ClusterSecret,
        directory: Path,
        clock: clocks.Clock,
        environ: Mapping[str, str],
        tell: Tell,
    ) -> None:
        self._wanted = wanted
        self._directory = directory
        self._clock = clock
        self._environ = environ
        self._tell = tell
        self._left = list(wanted.namespaces)

    def call(self) -> None:
        """Try wherever it is not yet; to be called now and then, by somebody who waits for something else."""
        if not self._left:
            return
        with kube.Editor(kubeconfig.read(self._directory / kubeconfig.FILE), self._clock, self._environ) as editor:
            self._left = [namespace for namespace in self._left if not self._delivered(editor, namespace)]

    def _delivered(self, editor: kube.Editor, namespace: str) -> bool:
        try:
            done = _put(editor, self._wanted, namespace)
        except (waiting.NotYet, kube.ApiProblem):
            return False
        _report(self._tell, namespace, self._wanted, done)
        return True


def _report(tell: Tell, namespace: str, wanted: contract.ClusterSecret, done: str) -> None:
    if done:
        tell(f"the platform's credentials are in the cluster: Secret {namespace}/{wanted.name} was {done}")


def _putting(editor: kube.Editor, wanted: contract.ClusterSecret, namespace: str) -> Callable[[], str]:
    return lambda: _put(editor, wanted, namespace)


def _put(editor: kube.Editor, wanted: contract.ClusterSecret, namespace: str) -> str:
    """What had to be done for the Secret to be there: ``created``, ``replaced``, or nothing."""
    try:
        return _settled(editor, wanted, namespace)
    except kube.ApiProblem as problem:
        # The API may repeat what it was sent in what it says about it.
        spellings = secret.forms(wanted.values.values())
        raise type(problem)(secret.scrub(problem.message, spellings), remedy=problem.remedy) from None


def _settled(editor: kube.Editor, wanted: contract.ClusterSecret, namespace: str) -> str:
    place = f"/api/v1/namespaces/{namespace}"
    content = objects.secret(namespace, wanted.name, {key: value.reveal() for key, value in wanted.values.items()})
    try:
        editor.get(place)
    except kube.Missing:
        raise waiting.NotYet(f"there is no namespace {namespace} yet") from None
    try:
        there: dict[str, Any] = editor.get(f"{place}/secrets/{wanted.name}")
    except kube.Missing:
        editor.create(f"{place}/secrets", content)
        return "created"
    if there.get("data") == content["data"]:
        return ""
    editor.replace(f"{place}/secrets/{wanted.name}", {**there, "data": content["data"]})
    return "replaced"
