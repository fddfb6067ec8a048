#!/usr/bin/env bash
# Brings up the cluster's first control plane on this node and hands over to the real one, stage by stage.
# It may be stopped and started anywhere: see stages.sh.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail

LIBRARY="${MOORAGE_ROOT:-}/usr/local/lib/moorage"
# shellcheck source=common.sh
source "${LIBRARY}/common.sh"
# shellcheck source=stages.sh
source "${LIBRARY}/stages.sh"
# shellcheck source=release.sh
source "${LIBRARY}/release.sh"
# shellcheck source=renders.sh
source "${LIBRARY}/renders.sh"

etcd_is_healthy() {
    payload --env=ETCDCTL_API=3 --entrypoint=etcdctl etcdctl etcd \
        --dial-timeout=10m \
        --cacert=/assets/tls/etcd-ca-bundle.crt \
        --cert=/assets/tls/etcd-client.crt \
        --key=/assets/tls/etcd-client.key \
        --endpoints=https://localhost:2379 \
        endpoint health
}

wait_for_etcd() {
    retry 5 etcd_is_healthy
}

# Starts the static pods of the temporary control plane, creates every manifest, and waits for the pods of the real one.
start_cluster() {
    local status=0
    payload --volume="${KUBERNETES}:/etc/kubernetes:z" cluster-bootstrap cluster-bootstrap start \
        --tear-down-early=false \
        --asset-dir=/assets \
        --required-pods="${MOORAGE_REQUIRED_PODS}" || status=$?
    if [[ "${status}" -ne 0 ]]; then
        # The API that could explain the failure goes away with this service: keep what it knows for the log bundle.
        "${MOORAGE_ROOT}/usr/local/bin/installer-gather.sh" --snapshot "${RECORDS}/resources" || true
        return "${status}"
    fi
}

patch_overrides() {
    oc patch clusterversion.config.openshift.io version \
        --kubeconfig="${OPENSHIFT}/auth/kubeconfig" \
        --type=merge \
        --patch-file="${OPENSHIFT}/original_cvo_overrides.patch"
}

# While bootkube created them, the manifests were none of the version operator's business; now they are.
restore_overrides() {
    retry 10 patch_overrides
}

# From here on nodes get their config from the cluster's own server.
stop_machine_config_server() {
    rm --force "${KUBERNETES}/manifests/machineconfigoperator-bootstrap-pod.yaml"
}

# The etcd operator takes this node's member out once the control plane's own are enough.
wait_for_etcd_operator() {
    payload wait-for-ceo cluster-etcd-operator /usr/bin/cluster-etcd-operator wait-for-ceo \
        --kubeconfig=/assets/auth/kubeconfig
}

resolve() {
    getent ahosts "$1" || fail "$1 does not resolve on this node: check the cluster's DNS records"
}

reach() {
    curl --silent --show-error --insecure --fail --max-time 30 --output /dev/null "https://$1:6443/readyz" ||
        fail "https://$1:6443/readyz does not answer: check the load balancer or virtual IP behind it"
}

resolve_api() { resolve "${MOORAGE_API_HOST}"; }
resolve_api_int() { resolve "${MOORAGE_API_INT_HOST}"; }
reach_api() { reach "${MOORAGE_API_HOST}"; }
reach_api_int() { reach "${MOORAGE_API_INT_HOST}"; }

main() {
    load_environment
    begin_service bootkube
    cd "${OPENSHIFT}"
    say "bootstrapping ${MOORAGE_CLUSTER_DOMAIN} from ${MOORAGE_RELEASE_IMAGE}, installed by ${MOORAGE_INVOKER}"

    stage openshift-manifests collect_manifests
    stage release-info read_release

    stage api-bootstrap render_api
    stage auth-api-bootstrap render_auth_api
    stage config-bootstrap render_config
    stage cvo-bootstrap render_cvo
    stage etcd-bootstrap render_etcd
    stage kube-apiserver-bootstrap render_kube_apiserver
    stage kube-controller-manager-bootstrap render_kube_controller_manager
    stage kube-scheduler-bootstrap render_kube_scheduler
    stage ingress-operator-bootstrap render_ingress
    stage node-tuning-bootstrap render_node_tuning
    stage mco-bootstrap render_machine_config

    check resolve-api-url resolve_api
    check resolve-api-int-url resolve_api_int

    stage cco-bootstrap render_cloud_credential

    gate wait-for-etcd wait_for_etcd cb-bootstrap
    stage cb-bootstrap start_cluster
    stage cvo-overrides restore_overrides
    stage stop-machine-config-server stop_machine_config_server
    stage wait-for-ceo wait_for_etcd_operator

    check check-api-url reach_api
    check check-api-int-url reach_api_int

    write_file "${COMPLETE}" </dev/null
    say "the bootstrap control plane has done its work"
}

main "$@"
