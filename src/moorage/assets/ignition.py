"""Ignition configs, spec 3.2: the pointers that masters and workers boot from, and the bootstrap node's whole world."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from moorage import errors
from moorage.assets import bootstrap, cvo, documents, values
from moorage.assets import platform as platforms
from moorage.assets.graph import asset
from moorage.config import model

SPEC = "3.2.0"
MCS_PORT = 22623
ROOT = "/opt/openshift"
Bundle = values.Bundle
CertKey = values.CertKey
KeyPair = values.KeyPair


def data_url(content: bytes) -> str:
    return f"data:text/plain;charset=utf-8;base64,{base64.b64encode(content).decode()}"


def pointer(host: str, role: str, ca: str) -> bytes:
    """A config that merges the role's real one, fetched from the machine-config server and trusted through ``ca``."""
    authority = f"[{host}]" if ":" in host else host
    source = f"https://{authority}:{MCS_PORT}/config/{role}"
    return _dump(
        {
            "ignition": {
                "version": SPEC,
                "config": {"merge": [{"source": source}]},
                "security": {"tls": {"certificateAuthorities": [{"source": data_url(ca.encode())}]}},
            }
        }
    )


@asset(files=("master.ign",))
def master_ign(endpoints: values.Endpoints, root_ca: CertKey) -> bytes:
    """What control-plane machines boot from."""
    return pointer(endpoints.internal_host, "master", root_ca.cert)


@asset(files=("worker.ign",))
def worker_ign(endpoints: values.Endpoints, root_ca: CertKey) -> bytes:
    """What compute machines boot from."""
    return pointer(endpoints.internal_host, "worker", root_ca.cert)


@asset()
def bootstrap_auth(
    admin_internal_kubeconfig: bytes, kubelet_kubeconfig: bytes, loopback_kubeconfig: bytes
) -> values.Files:
    """The kubeconfigs of the bootstrap node."""
    return {
        "auth/kubeconfig": admin_internal_kubeconfig,
        "auth/kubeconfig-kubelet": kubelet_kubeconfig,
        "auth/kubeconfig-loopback": loopback_kubeconfig,
    }


@asset()
def bootstrap_tls(
    root_ca: CertKey,
    admin_kubeconfig_ca_bundle: Bundle,
    aggregator_ca: CertKey,
    aggregator_ca_bundle: Bundle,
    aggregator_client: CertKey,
    aggregator_signer: CertKey,
    apiserver_proxy: CertKey,
    bound_service_account_signing_key: KeyPair,
    journal_gatewayd: CertKey,
    kube_apiserver_complete_client_ca_bundle: Bundle,
    kube_apiserver_complete_server_ca_bundle: Bundle,
    kube_apiserver_internal_lb_server: CertKey,
    kube_apiserver_lb_ca_bundle: Bundle,
    kube_apiserver_lb_server: CertKey,
    kube_apiserver_lb_signer: CertKey,
    kube_apiserver_localhost_ca_bundle: Bundle,
    kube_apiserver_localhost_server: CertKey,
    kube_apiserver_localhost_signer: CertKey,
    kube_apiserver_service_network_ca_bundle: Bundle,
    kube_apiserver_service_network_server: CertKey,
    kube_apiserver_service_network_signer: CertKey,
    kube_apiserver_to_kubelet_ca_bundle: Bundle,
    kube_apiserver_to_kubelet_client: CertKey,
    kube_apiserver_to_kubelet_signer: CertKey,
    kube_control_plane_ca_bundle: Bundle,
    kube_control_plane_kube_controller_manager_client: CertKey,
    kube_control_plane_kube_scheduler_client: CertKey,
    kube_control_plane_signer: CertKey,
    kubelet_bootstrap_kubeconfig_ca_bundle: Bundle,
    kubelet_client: CertKey,
    kubelet_client_ca_bundle: Bundle,
    kubelet_serving_ca_bundle: Bundle,
    kubelet_signer: CertKey,
    machine_config_server: CertKey,
    service_account: KeyPair,
) -> values.Files:
    """What the operators' render commands look for in tls/. The root CA's key and the kubelet-bootstrap and
    admin signers' keys stay at home: nothing on the node signs with them."""
    files = {"tls/root-ca.crt": root_ca.cert.encode()}
    for name, value in locals().copy().items():
        base = f"tls/{name.replace('_', '-')}"
        if isinstance(value, KeyPair):
            files |= {f"{base}.pub": value.public.encode(), f"{base}.key": value.private.encode()}
        elif isinstance(value, CertKey) and name != "root_ca":
            files |= {f"{base}.crt": value.cert.encode(), f"{base}.key": value.key.encode()}
        elif isinstance(value, Bundle):
            files[f"{base}.crt"] = value.cert.encode()
    return files


@asset(files=("bootstrap.ign",))
def bootstrap_ign(
    install_config: model.InstallConfig,
    endpoints: values.Endpoints,
    release: values.Release,
    platform: platforms.Manifests,
    context: platforms.Context,
    manifests: values.Files,
    openshift: values.Files,
    bootstrap_tls: values.Files,
    bootstrap_auth: values.Files,
    bootstrap_ssh: KeyPair,
    invoker: str,
    bootstrap_overrides: bootstrap.Overrides,
) -> bytes:
    """What the bootstrap node boots from: every manifest, certificate, script and unit it needs."""
    overrides, restore = cvo.ignore(manifests, openshift)
    below_root = {
        **documents.single_objects({**manifests, **openshift}),
        **bootstrap_tls,
        **bootstrap_auth,
        "manifests/cvo-overrides.yaml": overrides,
        "original_cvo_overrides.patch": restore,
    }
    files = [
        *bootstrap.node_files(install_config, endpoints, release, invoker, bootstrap_overrides),
        *platform.bootstrap_files(context),
        *(values.IgnitionFile(f"{ROOT}/{path}", content, 0o600) for path, content in sorted(below_root.items())),
    ]
    units = [*bootstrap.node_units(release), *platform.bootstrap_units(context)]
    authorized = [line for line in (install_config.ssh_key or "").splitlines() if line.strip()]
    return config(files, units, [*authorized, bootstrap_ssh.public])


def config(
    files: Iterable[values.IgnitionFile], units: Sequence[values.IgnitionUnit], authorized_keys: Sequence[str]
) -> bytes:
    """A complete config. A path named twice is the later one's: a platform may replace a common file."""
    by_path = {file.path: file for file in files}
    return _dump(
        {
            "ignition": {"version": SPEC},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": list(authorized_keys)}]},
            "storage": {"files": [_file(file) for file in by_path.values()]},
            "systemd": {"units": [_unit(unit) for unit in units]},
        }
    )


def expired(content: bytes, moment: datetime.datetime) -> list[str]:
    """Paths of certificates in an Ignition config that are over at ``moment``."""
    from cryptography import x509

    over = []
    for file in json.loads(content).get("storage", {}).get("files", []):
        source = file.get("contents", {}).get("source", "")
        if not file["path"].endswith(".crt") or not source.startswith("data:"):
            continue
        header, _, body = source.partition(",")
        pem = base64.b64decode(body) if header.endswith(";base64") else unquote_to_bytes(body)
        if any(certificate.not_valid_after_utc <= moment for certificate in x509.load_pem_x509_certificates(pem)):
            over.append(file["path"])
    return over


@asset()
def bootable(bootstrap_ign: bytes, moment: datetime.datetime) -> bool:
    """Whether a cluster can come up from bootstrap.ign: an edited one is the user's own and is not made again."""
    try:
        over = expired(bootstrap_ign, moment)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise errors.MoorageError(
            f"bootstrap.ign was edited and is no longer an Ignition config: {problem}",
            remedy="correct it, or move it away and run: moorage create ignition-configs",
        ) from problem
    if over:
        raise errors.MoorageError(
            f"bootstrap.ign was edited and holds {len(over)} expired certificates, first {over[0]}: "
            "no cluster comes up from it",
            remedy="move it away, run: moorage create ignition-configs, and repeat your edit in the fresh file",
        )
    return True


@asset()
def boot_configs(bootstrap_ign: bytes, master_ign: bytes, worker_ign: bytes) -> values.Files:
    """What machines boot from, by role: computed for those who make machines, written only if asked for by file."""
    return {"bootstrap": bootstrap_ign, "master": master_ign, "worker": worker_ign}


def _file(file: values.IgnitionFile) -> dict[str, Any]:
    contents = {"source": data_url(file.contents)}
    node: dict[str, Any] = {"path": file.path, "mode": file.mode}
    if file.append:
        return {**node, "append": [contents]}
    return {**node, "overwrite": True, "contents": contents}


def _unit(unit: values.IgnitionUnit) -> dict[str, Any]:
    node: dict[str, Any] = {"name": unit.name}
    if unit.contents is not None:
        node["contents"] = unit.contents
    if unit.enabled is not None:
        node["enabled"] = unit.enabled
    if unit.dropins:
        node["dropins"] = [{"name": name, "contents": contents} for name, contents in unit.dropins]
    return node


def _dump(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
