"""A cluster as the stories see it, be it real or the lab's: an address, an authority, and ways to be somebody."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import kubernetes
import yaml

from tests import conftest
from tests.kube import calls, pki

ADMINS = ("system:masters",)

TOKENS = {
    "token-of-a-developer": ("dana", ("developers",)),
    "token-of-an-auditor": ("audrey", ("auditors", "staff")),
}
"""Static bearer tokens that every cluster of the tests knows: user and groups."""


@dataclasses.dataclass
class Cluster:
    """``kind`` is lab or real; ``folder`` is the cluster's own; ``program`` is the kubectl to use."""

    kind: str
    folder: Path
    url: str
    authority: pki.Authority
    program: str
    # Makes the server forget all history before this moment, as its store does by itself after some minutes.
    compact: Callable[[], None]

    def __post_init__(self) -> None:
        self.people = self.folder / "people"
        self.people.mkdir()
        self._callers: dict[tuple[object, ...], calls.Caller] = {}
        (self.folder / "ca.crt").write_text(self.authority.pair.certificate)

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def admin(self) -> calls.Caller:
        return self.caller("admin", ADMINS)

    def kubeconfig(self, user: str = "admin", groups: Sequence[str] = ADMINS, *, pair: pki.Pair | None = None) -> Path:
        """A kubeconfig with a client certificate of this user, or with the one given."""
        path = self.people / f"{_file_name(user, *groups)}.kubeconfig"
        if pair is not None or not path.exists():
            pair = pair or self.authority.client(user, groups)
            certificate, key = path.with_suffix(".crt"), path.with_suffix(".key")
            certificate.write_text(pair.certificate)
            key.write_text(pair.key)
            self._write(path, {"client-certificate": str(certificate), "client-key": str(key)})
        return path

    def token_kubeconfig(self, token: str, name: str) -> Path:
        """A kubeconfig with a bearer token; without any credential if that is empty."""
        path = self.people / f"{_file_name(name)}.token.kubeconfig"
        self._write(path, {"token": token} if token else {})
        return path

    def _write(self, path: Path, user: dict[str, str]) -> None:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url, "certificate-authority": str(self.ca)}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        path.write_text(yaml.safe_dump(content))

    def caller(self, user: str, groups: Sequence[str] = ()) -> calls.Caller:
        """Somebody with a client certificate."""
        who = (user, *groups)
        if who not in self._callers:
            client = kubernetes.config.new_client_from_config(str(self.kubeconfig(user, groups)))
            self._callers[who] = calls.Caller(client)
        return self._callers[who]

    def with_pair(self, user: str, pair: pki.Pair) -> calls.Caller:
        """Somebody with this client certificate."""
        return calls.Caller(kubernetes.config.new_client_from_config(str(self.kubeconfig(user, ("own",), pair=pair))))

    def with_token(self, token: str = "") -> calls.Caller:
        """Somebody with a bearer token, or, without one, nobody."""
        configuration = kubernetes.client.Configuration(host=self.url)
        configuration.ssl_ca_cert = str(self.ca)
        return calls.Caller(kubernetes.client.ApiClient(configuration), token)

    def kubectl(
        self, *words: str, stdin: str = "", kubeconfig: Path | None = None, code: int = 0, timeout: float = 60
    ) -> str:
        """What kubectl prints (on both outputs); it must end with ``code``."""
        process = subprocess.run(
            self.command(*words, kubeconfig=kubeconfig),
            input=stdin,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            env=self.environment(),
        )
        assert process.returncode == code, f"kubectl {' '.join(words)}: {process.returncode}\n{process.stdout}"
        return process.stdout

    def command(self, *words: str, kubeconfig: Path | None = None) -> list[str]:
        cache = f"--cache-dir={self.folder / 'cache'}"
        return [self.program, f"--kubeconfig={kubeconfig or self.kubeconfig()}", cache, *words]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.folder), "KUBECONFIG": ""}

    def json(self, *words: str, kubeconfig: Path | None = None) -> calls.Object:
        """What kubectl prints with -o json."""
        found: calls.Object = json.loads(self.kubectl(*words, "-o", "json", kubeconfig=kubeconfig))
        return found

    def needs_kubectl(self, minor: int) -> None:
        """End, by name, a story that an older kubectl cannot tell."""
        if (found := minor_version(self.program)) < minor:
            assert self.kind != "real", "the real cluster brings its own kubectl"
            conftest.lacking(f"needs kubectl 1.{minor} or newer; {self.program} is 1.{found}")


@functools.cache
def minor_version(program: str) -> int:
    """The y of kubectl 1.y.z."""
    words = [program, "version", "--client", "-o", "json"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return int(re.sub(r"\D.*", "", json.loads(said)["clientVersion"]["minor"]))


def _file_name(*words: str) -> str:
    return re.sub(r"[^a-zA-Z0-9-]", "_", "-".join(words))[:120]
