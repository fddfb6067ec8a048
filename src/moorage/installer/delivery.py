"""The platform's credentials, handed to the cluster: for the controllers there that will make and remove machines.

They go through the cluster's own API once it is up, and no other way: in a manifest they would be part of the bootstrap
machine's user data, which others on the platform may read. What is there already and the same is left alone, so the
delivery may be repeated at will.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moorage.assets import objects
from moorage.engine import clock as clocks
from moorage.engine import secret
from moorage.installer import kube, kubeconfig, waiting
from moorage.platforms import contract

PATIENCE = 10 * waiting.MINUTE


class Undelivered(waiting.InstallIncomplete):
    """The cluster did not take the credentials."""


def deliver(
    wanted: contract.ClusterSecret, directory: Path, clock: clocks.Clock, environ: Mapping[str, str], say: waiting.Say
) -> str:
    """Put the Secret into the cluster; what had to be done for that: ``created``, ``replaced``, or nothing."""
    stage = waiting.Stage(
        name="credentials",
        seconds=PATIENCE,
        goal="the cluster to take the platform's credentials",
        complaint=f"the cluster did not take the Secret {wanted.namespace}/{wanted.name}",
        failure=Undelivered,
        remedy=f"see: oc --kubeconfig {directory / kubeconfig.FILE} get namespace {wanted.namespace}",
    )
    spellings = secret.forms(wanted.values.values())
    with kube.Editor(kubeconfig.read(directory / kubeconfig.FILE), clock, environ) as editor:
        return waiting.until(stage, lambda: _put(editor, wanted, spellings), clock, say)


def _put(editor: kube.Editor, wanted: contract.ClusterSecret, spellings: tuple[str, ...]) -> str:
    try:
        return _settled(editor, wanted)
    except kube.ApiProblem as problem:
        # The API may repeat what it was sent in what it says about it.
        raise type(problem)(secret.scrub(problem.message, spellings), remedy=problem.remedy) from None


def _settled(editor: kube.Editor, wanted: contract.ClusterSecret) -> str:
    namespace = f"/api/v1/namespaces/{wanted.namespace}"
    content = objects.secret(
        wanted.namespace, wanted.name, {key: value.reveal() for key, value in wanted.values.items()}
    )
    try:
        editor.get(namespace)
    except kube.Missing:
        raise waiting.NotYet(f"there is no namespace {wanted.namespace} yet") from None
    try:
        there: dict[str, Any] = editor.get(f"{namespace}/secrets/{wanted.name}")
    except kube.Missing:
        editor.create(f"{namespace}/secrets", content)
        return "created"
    if there.get("data") == content["data"]:
        return ""
    editor.replace(f"{namespace}/secrets/{wanted.name}", {**there, "data": content["data"]})
    return "replaced"
