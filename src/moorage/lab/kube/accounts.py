"""What every namespace gets: the default ServiceAccount, and the certificate authority by which pods know the API.

Both come back when somebody deletes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moorage.lab.kube import kinds, loop, problem, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

NAMESPACES: kinds.Key = ("", "namespaces")
ACCOUNTS: kinds.Key = ("", "serviceaccounts")
CONFIG_MAPS: kinds.Key = ("", "configmaps")
DEFAULT = "default"
ROOT_CA = "kube-root-ca.crt"

_PAUSE = 0.2
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the"
    " internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes"
    " clusters."
)


class Accounts:
    """Furnishes namespaces. ``root_ca`` is the PEM bundle for pods; without one no ConfigMap is made."""

    def __init__(self, api: apis.Api, root_ca: str = "") -> None:
        self._api = api
        self._root_ca = root_ca
        self.loop: loop.Loop[str] = loop.Loop(api, "accounts", self._reconcile, self._all, pause=_PAUSE)
        self.loop.follow(NAMESPACES, lambda event: [event.name[1]])
        self.loop.follow(ACCOUNTS, lambda event: [event.name[0]] if event.name[1] == DEFAULT else [])
        self.loop.follow(CONFIG_MAPS, lambda event: [event.name[0]] if event.name[1] == ROOT_CA else [])

    def trust(self, root_ca: str) -> None:
        """Tell all namespaces of another bundle."""
        self._root_ca = root_ca
        for namespace in self._all():
            self.loop.offer(namespace)

    def _all(self) -> Iterable[str]:
        return [name for _, name in self._api.store.names(NAMESPACES)]

    def _reconcile(self, namespace: str) -> None:
        found = self._api.store.get(NAMESPACES, ("", namespace))
        if found is None or found.object["metadata"].get("deletionTimestamp"):
            return
        if self._api.store.get(ACCOUNTS, (namespace, DEFAULT)) is None:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": DEFAULT}}
            self._create(self._api.kind("", "ServiceAccount"), namespace, account)
        self._publish(namespace)

    def _publish(self, namespace: str) -> None:
        if not self._root_ca:
            return
        data = {"ca.crt": self._root_ca}
        known = self._api.store.get(CONFIG_MAPS, (namespace, ROOT_CA))
        if known is not None and known.object.get("data") == data:
            return
        meta = {"name": ROOT_CA, "annotations": {"kubernetes.io/description": _DESCRIPTION}}
        wanted: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        if known is None:
            self._create(self._api.kind("", "ConfigMap"), namespace, wanted)
        else:
            self._api.update(self._api.kind("", "ConfigMap"), namespace, ROOT_CA, wanted)

    def _create(self, kind: kinds.Kind, namespace: str, content: Object) -> None:
        try:
            self._api.create(kind, namespace, content)
        except problem.Problem as refusal:
            # It came, or its namespace went, in between.
            if refusal.code not in (403, 404, 409):
                raise
