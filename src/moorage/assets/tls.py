"""Every CA, certificate, bundle and key pair of the cluster.

Each signer has one job, so that a leaked key opens one door only. Who signs what, and for how long, is all that is said
here; how, is in `certificates`. A CA (or the bound service-account key) that the user puts into ``tls/`` is used
instead of ours.
"""

from __future__ import annotations

from moorage.assets import certificates, cluster, keys, provided, values
from moorage.assets.certificates import CLIENT, SERVER, Leaf
from moorage.assets.graph import asset

Ring = keys.Keyring
Issued = cluster.Issued
CertKey = values.CertKey
Bundle = values.Bundle
Files = values.Files

_API_SERVER = "system:kube-apiserver"
_KUBE_MASTER = ("kube-master",)
_SERVICE_NAMES = tuple(
    f"{service}{suffix}"
    for service in ("kubernetes", "openshift")
    for suffix in ("", ".default", ".default.svc", ".default.svc.cluster.local")
)


@asset(files=("tls/*.crt", "tls/*.key", "tls/*.pub"))
def provided_tls() -> Files:
    """CAs and keys the user brings, in tls/."""
    return {}


# --- signers -----------------------------------------------------------------------------------------------------


def _signer(
    name: str, ring: Ring, issued: Issued, given: Files, unit: str = "openshift", common_name: str = ""
) -> CertKey:
    theirs = provided.signer(name, given)
    if theirs is not None:
        return theirs
    cert = certificates.authority(common_name or name, unit, ring.private(name), issued.start, issued.end)
    return CertKey(cert, ring.pem(name))


@asset()
def root_ca(keyring: Ring, issued_decade: Issued, provided_tls: Files) -> CertKey:
    """Signs what nodes talk to before they know the cluster: the machine-config server and the journal gateway."""
    return _signer("root-ca", keyring, issued_decade, provided_tls)


@asset()
def admin_kubeconfig_signer(keyring: Ring, issued_decade: Issued, provided_tls: Files) -> CertKey:
    """Signs the administrator's client certificate."""
    return _signer("admin-kubeconfig-signer", keyring, issued_decade, provided_tls)


@asset()
def kube_apiserver_localhost_signer(keyring: Ring, issued_decade: Issued, provided_tls: Files) -> CertKey:
    """Signs the API server's certificate for localhost."""
    return _signer("kube-apiserver-localhost-signer", keyring, issued_decade, provided_tls)


@asset()
def kube_apiserver_service_network_signer(keyring: Ring, issued_decade: Issued, provided_tls: Files) -> CertKey:
    """Signs the API server's certificate for the service network."""
    return _signer("kube-apiserver-service-network-signer", keyring, issued_decade, provided_tls)


@asset()
def kube_apiserver_lb_signer(keyring: Ring, issued_decade: Issued, provided_tls: Files) -> CertKey:
    """Signs the API server's certificates for the load balancers."""
    return _signer("kube-apiserver-lb-signer", keyring, issued_decade, provided_tls)


@asset()
def kubelet_bootstrap_kubeconfig_signer(keyring: Ring, issued_decade: Issued, provided_tls: Files) -> CertKey:
    """Signs the credential with which new nodes ask for their first certificate."""
    return _signer("kubelet-bootstrap-kubeconfig-signer", keyring, issued_decade, provided_tls)


@asset()
def kube_apiserver_to_kubelet_signer(keyring: Ring, issued_year: Issued, provided_tls: Files) -> CertKey:
    """Signs what the API server shows to kubelets."""
    return _signer("kube-apiserver-to-kubelet-signer", keyring, issued_year, provided_tls)


@asset()
def kube_control_plane_signer(keyring: Ring, issued_year: Issued, provided_tls: Files) -> CertKey:
    """Signs the clients of controller manager and scheduler."""
    return _signer("kube-control-plane-signer", keyring, issued_year, provided_tls)


@asset()
def aggregator_ca(keyring: Ring, issued_day: Issued, provided_tls: Files) -> CertKey:
    """Signs the API server's proxy client of the bootstrap."""
    return _signer("aggregator-ca", keyring, issued_day, provided_tls, unit="bootkube", common_name="aggregator")


@asset()
def aggregator_signer(keyring: Ring, issued_day: Issued, provided_tls: Files) -> CertKey:
    """Signs the client with which the API server calls aggregated APIs."""
    return _signer("aggregator-signer", keyring, issued_day, provided_tls)


@asset()
def kubelet_signer(keyring: Ring, issued_day: Issued, provided_tls: Files) -> CertKey:
    """Signs the certificates that kubelets request."""
    return _signer("kubelet-signer", keyring, issued_day, provided_tls)


# --- certificates ------------------------------------------------------------------------------------------------


def _leaf(name: str, shape: Leaf, ring: Ring, issuer: CertKey, issued: Issued, *, chain: bool = False) -> CertKey:
    cert = certificates.leaf(shape, ring.private(name), issuer, issued.end)
    return CertKey(cert + issuer.cert if chain else cert, ring.pem(name))


@asset()
def admin_kubeconfig_client(keyring: Ring, admin_kubeconfig_signer: CertKey, issued_decade: Issued) -> CertKey:
    """The administrator."""
    shape = Leaf("system:admin", (SERVER, CLIENT), ("system:masters",))
    return _leaf("admin-kubeconfig-client", shape, keyring, admin_kubeconfig_signer, issued_decade)


@asset()
def kube_apiserver_to_kubelet_client(
    keyring: Ring, kube_apiserver_to_kubelet_signer: CertKey, issued_year: Issued
) -> CertKey:
    """The API server, to kubelets."""
    shape = Leaf(_API_SERVER, (CLIENT,), _KUBE_MASTER)
    return _leaf("kube-apiserver-to-kubelet-client", shape, keyring, kube_apiserver_to_kubelet_signer, issued_year)


@asset()
def kube_apiserver_localhost_server(
    keyring: Ring, kube_apiserver_localhost_signer: CertKey, issued_day: Issued
) -> CertKey:
    """The API server on localhost."""
    shape = Leaf(_API_SERVER, (SERVER,), _KUBE_MASTER, ("localhost",), ("127.0.0.1", "::1"))
    name = "kube-apiserver-localhost-server"
    return _leaf(name, shape, keyring, kube_apiserver_localhost_signer, issued_day, chain=True)


@asset()
def kube_apiserver_service_network_server(
    keyring: Ring,
    kube_apiserver_service_network_signer: CertKey,
    issued_day: Issued,
    endpoints: values.Endpoints,
) -> CertKey:
    """The API server as the service `kubernetes`."""
    shape = Leaf(_API_SERVER, (SERVER,), _KUBE_MASTER, _SERVICE_NAMES, endpoints.service_addresses)
    name = "kube-apiserver-service-network-server"
    return _leaf(name, shape, keyring, kube_apiserver_service_network_signer, issued_day, chain=True)


@asset()
def kube_apiserver_lb_server(
    keyring: Ring, kube_apiserver_lb_signer: CertKey, issued_day: Issued, endpoints: values.Endpoints
) -> CertKey:
    """The API server behind the external balancer."""
    shape = Leaf(_API_SERVER, (SERVER,), _KUBE_MASTER, (endpoints.api,))
    return _leaf("kube-apiserver-lb-server", shape, keyring, kube_apiserver_lb_signer, issued_day, chain=True)


@asset()
def kube_apiserver_internal_lb_server(
    keyring: Ring, kube_apiserver_lb_signer: CertKey, issued_day: Issued, endpoints: values.Endpoints
) -> CertKey:
    """The API server behind the internal balancer."""
    shape = Leaf(_API_SERVER, (SERVER,), _KUBE_MASTER, (endpoints.api_int,), endpoints.api_vips)
    return _leaf("kube-apiserver-internal-lb-server", shape, keyring, kube_apiserver_lb_signer, issued_day, chain=True)


@asset()
def kube_control_plane_kube_controller_manager_client(
    keyring: Ring, kube_control_plane_signer: CertKey, issued_year: Issued
) -> CertKey:
    """The bootstrap's controller manager."""
    shape = Leaf("system:admin", (CLIENT,), ("system:masters",))
    name = "kube-control-plane-kube-controller-manager-client"
    return _leaf(name, shape, keyring, kube_control_plane_signer, issued_year)


@asset()
def kube_control_plane_kube_scheduler_client(
    keyring: Ring, kube_control_plane_signer: CertKey, issued_year: Issued
) -> CertKey:
    """The bootstrap's scheduler."""
    shape = Leaf("system:admin", (CLIENT,), ("system:masters",))
    return _leaf("kube-control-plane-kube-scheduler-client", shape, keyring, kube_control_plane_signer, issued_year)


@asset()
def kubelet_client(keyring: Ring, kubelet_bootstrap_kubeconfig_signer: CertKey, issued_decade: Issued) -> CertKey:
    """New nodes, until they have a certificate of their own: may do nothing but ask for one."""
    namespace = "openshift-machine-config-operator"
    shape = Leaf(
        f"system:serviceaccount:{namespace}:node-bootstrapper",
        (CLIENT,),
        (f"system:serviceaccounts:{namespace}", "system:serviceaccounts"),
    )
    return _leaf("kubelet-client", shape, keyring, kubelet_bootstrap_kubeconfig_signer, issued_decade)


@asset()
def aggregator_client(keyring: Ring, aggregator_signer: CertKey, issued_day: Issued) -> CertKey:
    """The API server, to aggregated APIs."""
    shape = Leaf("system:kube-apiserver-proxy", (CLIENT,), _KUBE_MASTER)
    return _leaf("aggregator-client", shape, keyring, aggregator_signer, issued_day)


@asset()
def apiserver_proxy(keyring: Ring, aggregator_ca: CertKey, issued_day: Issued) -> CertKey:
    """The bootstrap's API server, as a proxy."""
    shape = Leaf("system:kube-apiserver-proxy", (CLIENT,), _KUBE_MASTER)
    return _leaf("apiserver-proxy", shape, keyring, aggregator_ca, issued_day)


@asset()
def machine_config_server(
    keyring: Ring, root_ca: CertKey, issued_decade: Issued, endpoints: values.Endpoints
) -> CertKey:
    """The server from which every node fetches its configuration: by name, and by VIP where there is one."""
    shape = Leaf("system:machine-config-server", (SERVER,), (), (endpoints.api_int,), endpoints.api_vips)
    return _leaf("machine-config-server", shape, keyring, root_ca, issued_decade)


@asset()
def journal_gatewayd(keyring: Ring, root_ca: CertKey, issued_decade: Issued) -> CertKey:
    """The bootstrap's journal gateway, and the client that may read it."""
    shape = Leaf("journal-gatewayd", (SERVER, CLIENT), ("OpenShift Bootstrap",))
    return _leaf("journal-gatewayd", shape, keyring, root_ca, issued_decade)


# --- bundles -----------------------------------------------------------------------------------------------------


def _bundle(*members: CertKey | Bundle) -> Bundle:
    """The members' certificates, each once."""
    blocks: dict[str, None] = {}
    for member in members:
        for block in member.cert.split("-----END CERTIFICATE-----\n"):
            if block.strip():
                blocks[f"{block}-----END CERTIFICATE-----\n"] = None
    return Bundle("".join(blocks))


@asset()
def admin_kubeconfig_ca_bundle(admin_kubeconfig_signer: CertKey) -> Bundle:
    """Who may sign administrators."""
    return _bundle(admin_kubeconfig_signer)


@asset()
def aggregator_ca_bundle(aggregator_signer: CertKey) -> Bundle:
    """Who may sign the API server's calls to aggregated APIs."""
    return _bundle(aggregator_signer)


@asset()
def kube_apiserver_lb_ca_bundle(kube_apiserver_lb_signer: CertKey) -> Bundle:
    """Who signs the API behind the balancers."""
    return _bundle(kube_apiserver_lb_signer)


@asset()
def kube_apiserver_localhost_ca_bundle(kube_apiserver_localhost_signer: CertKey) -> Bundle:
    """Who signs the API on localhost."""
    return _bundle(kube_apiserver_localhost_signer)


@asset()
def kube_apiserver_service_network_ca_bundle(kube_apiserver_service_network_signer: CertKey) -> Bundle:
    """Who signs the API on the service network."""
    return _bundle(kube_apiserver_service_network_signer)


@asset()
def kube_apiserver_to_kubelet_ca_bundle(kube_apiserver_to_kubelet_signer: CertKey) -> Bundle:
    """Whom kubelets believe to be the API server."""
    return _bundle(kube_apiserver_to_kubelet_signer)


@asset()
def kube_control_plane_ca_bundle(
    kube_control_plane_signer: CertKey,
    kube_apiserver_lb_signer: CertKey,
    kube_apiserver_localhost_signer: CertKey,
    kube_apiserver_service_network_signer: CertKey,
) -> Bundle:
    """Who signs the control plane's own clients."""
    return _bundle(
        kube_control_plane_signer,
        kube_apiserver_lb_signer,
        kube_apiserver_localhost_signer,
        kube_apiserver_service_network_signer,
    )


@asset()
def kubelet_client_ca_bundle(kubelet_signer: CertKey) -> Bundle:
    """Who signs kubelets as clients."""
    return _bundle(kubelet_signer)


@asset()
def kubelet_serving_ca_bundle(kubelet_signer: CertKey) -> Bundle:
    """Who signs kubelets as servers."""
    return _bundle(kubelet_signer)


@asset()
def kubelet_bootstrap_kubeconfig_ca_bundle(kubelet_bootstrap_kubeconfig_signer: CertKey) -> Bundle:
    """Who signs nodes that have no certificate yet."""
    return _bundle(kubelet_bootstrap_kubeconfig_signer)


@asset()
def kube_apiserver_complete_server_ca_bundle(
    kube_apiserver_localhost_ca_bundle: Bundle,
    kube_apiserver_service_network_ca_bundle: Bundle,
    kube_apiserver_lb_ca_bundle: Bundle,
) -> Bundle:
    """Everybody who may sign the API server."""
    return _bundle(
        kube_apiserver_localhost_ca_bundle, kube_apiserver_service_network_ca_bundle, kube_apiserver_lb_ca_bundle
    )


@asset()
def kube_apiserver_complete_client_ca_bundle(
    admin_kubeconfig_ca_bundle: Bundle,
    kubelet_client_ca_bundle: Bundle,
    kube_control_plane_ca_bundle: Bundle,
    kube_apiserver_to_kubelet_ca_bundle: Bundle,
    kubelet_bootstrap_kubeconfig_ca_bundle: Bundle,
) -> Bundle:
    """Everybody who may sign a client of the API server."""
    return _bundle(
        admin_kubeconfig_ca_bundle,
        kubelet_client_ca_bundle,
        kube_control_plane_ca_bundle,
        kube_apiserver_to_kubelet_ca_bundle,
        kubelet_bootstrap_kubeconfig_ca_bundle,
    )


# --- key pairs ---------------------------------------------------------------------------------------------------


@asset()
def service_account(keyring: Ring) -> values.KeyPair:
    """Signs service-account tokens during the bootstrap."""
    return values.KeyPair(certificates.public_pem(keyring.private("service-account")), keyring.pem("service-account"))


@asset()
def bound_service_account_signing_key(keyring: Ring, provided_tls: Files) -> values.KeyPair:
    """Signs bound service-account tokens: the user's own, where an identity provider must know it beforehand."""
    name = "bound-service-account-signing-key"
    theirs = provided.key_pair(name, provided_tls)
    return theirs or values.KeyPair(certificates.public_pem(keyring.private(name)), keyring.pem(name))


@asset()
def bootstrap_ssh(keyring: Ring) -> values.KeyPair:
    """The installer's own way into the bootstrap node, to gather logs."""
    return values.KeyPair(certificates.public_ssh(keyring.private("bootstrap-ssh")), keyring.pem("bootstrap-ssh"))
