"""The controller manager's part in certificates: it signs what was approved, and fills the tokens of service accounts.

During the bootstrap it signs with the signer that the installer made, which lasts a day; as soon as the bootstrap's own
controller manager is gone it signs with one that the cluster made for itself, and which everybody believes by then.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
from typing import Any

from moorage.lab.kube import certificates, store, tokens
from moorage.lab.nodes import cluster as clusters
from moorage.lab.nodes import credentials, renders, static_pods

Object = dict[str, Any]

LIFE = datetime.timedelta(days=30)
_SECONDS = LIFE.total_seconds()
_SECRETS = ("", "secrets")


class ControllerManager:
    """The signer at work in a cluster, if any."""

    def __init__(self, cluster: clusters.Cluster) -> None:
        self._cluster = cluster
        #: The cluster's own signers, the one in use last; those before it are believed as long as they last.
        self._own: list[credentials.Pair] = []
        self._at_work: credentials.Pair | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._secrets: store.Watch | None = None

    async def make_signer(self) -> None:
        """Make a signer if there is none, or the one there is has grown old; and let everybody believe it."""
        if self._own and not credentials.worn(self._own[-1].certificate):
            return
        made = credentials.authority("kube-csr-signer", LIFE)
        self._own = [*(pair for pair in self._own if not credentials.expiry(pair.certificate)), made]
        cluster, signers = self._cluster, [pair.certificate for pair in self._own]
        cluster.put(renders.tls_secret("openshift-kube-controller-manager", "csr-signer", made))
        kubelets = credentials.bundle(cluster.material.csr_signer.certificate, *signers)
        for namespace, name in (
            (renders.CONFIG_MANAGED, "csr-controller-ca"),
            (renders.CONFIG_MANAGED, "kubelet-serving-ca"),
            ("openshift-kube-apiserver", "kubelet-serving-ca"),
        ):
            cluster.put(renders.ca_bundle(namespace, name, kubelets))
        clients = credentials.bundle(cluster.material.client_authorities, *signers)
        cluster.put(renders.ca_bundle("openshift-kube-apiserver", "client-ca", clients))
        cluster.believe(*signers)
        await cluster.serve_anew()

    async def work(self) -> None:
        """Begin, change or cease to sign, as the cluster's state wants it."""
        wanted = self._signer()
        if wanted is not self._at_work:
            await self.rest()
            self._at_work = wanted
            if wanted is not None:
                signer = certificates.Signer(self._cluster.api, wanted.certificate, wanted.key, _SECONDS)
                for controller in (signer, certificates.Approver(self._cluster.api)):
                    self._tasks.append(self._cluster.spawn(controller.run(), type(controller).__name__.lower()))
        if wanted is not None:
            self._fill_tokens()

    async def rest(self) -> None:
        """Cease to sign."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _signer(self) -> credentials.Pair | None:
        cluster = self._cluster
        if not cluster.alive:
            return None
        if cluster.bootstrap is not None and static_pods.runs(static_pods.CONTROLLER_MANAGER, cluster.bootstrap):
            return cluster.material.csr_signer
        running = any(static_pods.runs(static_pods.CONTROLLER_MANAGER, machine) for _, machine in cluster.masters())
        return self._own[-1] if running and self._own else None

    def _fill_tokens(self) -> None:
        """Give every Secret that asks for a service account's token one."""
        api = self._cluster.api
        if self._secrets is None:
            self._secrets = api.store.watch(_SECRETS)
            found = [entry.object for entry in api.store.entries(_SECRETS)]
        else:
            try:
                found = [event.entry.object for event in self._secrets.ready() if event.type != store.DELETED]
            except store.Compacted:
                self._secrets = None
                return
        for secret in found:
            if secret.get("type") == tokens.SERVICE_ACCOUNT_TOKEN and "token" not in (secret.get("data") or {}):
                self._fill(secret)

    def _fill(self, secret: Object) -> None:
        cluster, metadata = self._cluster, secret["metadata"]
        name = (metadata.get("annotations") or {}).get("kubernetes.io/service-account.name", "")
        account = cluster.find("", "ServiceAccount", metadata["namespace"], name)
        current = cluster.find("", "Secret", metadata["namespace"], metadata["name"])
        if account is None or current is None:
            # Its account may still come: look at all Secrets again the next time.
            self._secrets = None
            return
        authorities = cluster.material.server_authorities
        data = tokens.secret_data(cluster.access, current, account, authorities)
        marks = {**(metadata.get("annotations") or {}), "kubernetes.io/service-account.uid": account["metadata"]["uid"]}
        cluster.put({**current, "data": data, "metadata": {**current["metadata"], "annotations": marks}})


def token_of(secret: Object | None) -> str:
    """The token in a Secret that has been filled, or nothing."""
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return base64.b64decode((secret or {})["data"]["token"]).decode()
    return ""
