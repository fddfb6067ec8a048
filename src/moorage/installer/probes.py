"""Why machines keep silent: what they need before the cluster can hear of them, tried from here.

A new machine looks up a name, fetches its config from the machine-config server there, and asks the API for a
certificate with the credentials in that config. When none of this works the API shows nothing at all, so it is tried
the way a machine would, with what its own Ignition config holds. This machine may stand elsewhere in the network than
those: what does not answer here proves nothing and leaves the earlier finding as it was; what is wrong is told.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import ipaddress
import json
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from moorage.engine import clock as clocks
from moorage.installer import kube, kubeconfig, names

EVERY = 60.0
#: The answer to a question: a sentence on what is wrong, nothing if all is well, None if it cannot be told now.
Finding = str | None

_HEALTH = "/healthz"
_KUBELET = "/opt/openshift/auth/kubeconfig-kubelet"
_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests?limit=1"


@dataclasses.dataclass(frozen=True)
class Needs:
    """What a machine of a role is told to use: where its config is, and as whom it asks to be let in."""

    role: str
    config: kubeconfig.Access
    kubelet: kubeconfig.Access | None


def needs(directory: Path, role: str) -> Needs | None:
    """What the Ignition configs in ``directory`` tell the machines of a role; None if they do not tell."""
    try:
        pointer = json.loads((directory / f"{role}.ign").read_bytes())["ignition"]
        source = urllib.parse.urlsplit(pointer["config"]["merge"][0]["source"])
        authorities = pointer["security"]["tls"]["certificateAuthorities"]
        trusted = "\n".join(_carried(each["source"]) for each in authorities)
        host, port = source.hostname or "", source.port or 443
        config = kubeconfig.Access(f"https://{host}:{port}", host, port, host, trusted)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None
    kubelet = _kubelet(directory)
    if kubelet is not None and _is_address(host):
        # The nodes carry that address and bring their own names; what our name server knows of theirs means nothing.
        kubelet = dataclasses.replace(kubelet, host=host)
    return Needs(role, config, kubelet)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _kubelet(directory: Path) -> kubeconfig.Access | None:
    """The credentials that the machine-config server hands out, as the bootstrap machine was given them."""
    try:
        files = json.loads((directory / "bootstrap.ign").read_bytes())["storage"]["files"]
        found = next(file["contents"]["source"] for file in files if file["path"] == _KUBELET)
        return kubeconfig.access(Path(_KUBELET), yaml.safe_load(_carried(found)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None
    except (yaml.YAMLError, kubeconfig.KubeconfigError):
        return None


def _carried(url: str) -> str:
    head, _, data = url.partition(",")
    try:
        raw = base64.b64decode(data) if head.endswith(";base64") else urllib.parse.unquote_to_bytes(data)
    except binascii.Error as problem:
        raise ValueError(str(problem)) from problem
    return raw.decode()


def config_trouble(wanted: Needs, clock: clocks.Clock, environ: Mapping[str, str]) -> Finding:
    """What keeps a machine from getting its config."""
    where = f"{wanted.config.host}:{wanted.config.port}"
    server = f"the machine-config server at {where}"
    refuses = f"so {wanted.role}s refuse it"
    try:
        with kube.Reader(wanted.config, clock, environ) as reader:
            status, _ = reader.ask(_HEALTH)
    except kubeconfig.KubeconfigError:
        return f"the CA in {wanted.role}.ign cannot be used, so {wanted.role}s trust no machine-config server"
    except kube.Unresolved as problem:
        return _nameless(problem, f"{wanted.role}s get their config from there")
    except kube.Refused:
        return f"nothing listens at {where}, where {wanted.role}s get their config"
    except kube.UnknownAuthority:
        return f"{server} shows a certificate that the CA in {wanted.role}.ign has not signed, {refuses}"
    except kube.WrongName:
        return f"{server} shows a certificate that is not for {wanted.config.host}, {refuses}"
    except kube.Expired:
        return f"{server} shows a certificate that has expired or is not valid yet, {refuses}"
    except kube.HungUp:
        return f"{server} takes connections, but hangs up: the balancer has no healthy member behind that port"
    except kube.ApiProblem:
        return None
    return f"{server} is not well: it answers {status} to {_HEALTH}" if status >= 400 else ""


def kubelet_trouble(wanted: Needs, clock: clocks.Clock, environ: Mapping[str, str]) -> Finding:
    """What keeps a machine that has its config from asking for a certificate."""
    if wanted.kubelet is None:
        return None
    where = f"{wanted.kubelet.host}:{wanted.kubelet.port}"
    refuses = "the API refuses the credentials that new machines are given (kubeconfig-kubelet)"
    try:
        _request(wanted.kubelet, clock, environ)
    except kubeconfig.KubeconfigError as problem:
        return f"the credentials that new machines are given cannot be used: {problem.message}"
    except (kube.ClientDistrusted, kube.Forbidden) as problem:
        return f"{refuses}: {problem.message}"
    except kube.Refused:
        return f"nothing listens at {where}, where new machines ask to be let in"
    except kube.Distrusted as problem:
        return f"new machines refuse the API at {where}: {problem.message}"
    except kube.Unresolved as problem:
        told_already = wanted.kubelet.host == wanted.config.host
        return "" if told_already else _nameless(problem, "new machines ask to be let in there")
    except kube.HungUp:
        # An API that restarts hangs up on everybody; one that minds these credentials does it to them alone.
        alone = _answers_strangers(wanted.kubelet, clock, environ) and _hangs_up(wanted.kubelet, clock, environ)
        return f"{refuses}: it hangs up on them, and answers without them" if alone else None
    except kube.ApiProblem:
        return None
    return ""


def _nameless(problem: kube.Unresolved, why: str) -> Finding:
    """A name that is not there is a finding; a name server that keeps silent is none."""
    return None if isinstance(problem.__cause__, names.NoAnswer) else f"{problem.message}: {why}"


def _request(access: kubeconfig.Access, clock: clocks.Clock, environ: Mapping[str, str]) -> None:
    with kube.Reader(access, clock, environ) as reader:
        reader.get(_REQUESTS)


def _hangs_up(access: kubeconfig.Access, clock: clocks.Clock, environ: Mapping[str, str]) -> bool:
    try:
        _request(access, clock, environ)
    except kube.ApiProblem as problem:
        return isinstance(problem, kube.HungUp)
    return False


def _answers_strangers(access: kubeconfig.Access, clock: clocks.Clock, environ: Mapping[str, str]) -> bool:
    """Whether the same API answers somebody who shows no certificate."""
    try:
        with kube.Reader(dataclasses.replace(access, client_certificate="", token=""), clock, environ) as reader:
            reader.ask("/version")
    except kube.ApiProblem:
        return False
    return True


QUESTIONS: tuple[Callable[[Needs, clocks.Clock, Mapping[str, str]], Finding], ...] = (config_trouble, kubelet_trouble)


class Prober:
    """Asks again from time to time, and keeps each answer until a better one is had."""

    def __init__(self, directory: Path, clock: clocks.Clock, environ: Mapping[str, str]) -> None:
        self._directory = directory
        self._clock = clock
        self._environ = environ
        self._asked: dict[str, float] = {}
        self._known: dict[str, list[str]] = {}

    def sentence(self, role: str) -> str:
        """What keeps the machines of a role from being heard of, as far as it can be told from here."""
        known = self._known.setdefault(role, [""] * len(QUESTIONS))
        if self._clock.now() - self._asked.get(role, float("-inf")) >= EVERY:
            self._ask(role, known)
            # Counted from the end: where nobody answers, asking takes its time.
            self._asked[role] = self._clock.now()
        return "; ".join(filter(None, known))

    def _ask(self, role: str, known: list[str]) -> None:
        wanted = needs(self._directory, role)
        if wanted is None:
            return
        for number, question in enumerate(QUESTIONS):
            found = question(wanted, self._clock, self._environ)
            known[number] = known[number] if found is None else found
