#!/usr/bin/env bash
# Tells the installer that the bootstrap node is no longer needed: bootkube is done, and the API survives without us.
# The message is the ConfigMap kube-system/bootstrap with status: complete.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail

LIBRARY="${MOORAGE_ROOT:-}/usr/local/lib/moorage"
# shellcheck source=common.sh
source "${LIBRARY}/common.sh"
# shellcheck source=stages.sh
source "${LIBRARY}/stages.sh"

# Two, so that the API stays up without this node while one of them rolls to its next revision.
ENOUGH_SERVERS=2

cluster() {
    oc --kubeconfig="${OPENSHIFT}/auth/kubeconfig" --request-timeout=30s "$@"
}

wait_for_bootkube() {
    until [[ -e "${COMPLETE}" ]]; do
        sleep 5
    done
}

# topology: how the control plane is built, as the cluster says; fails while it does not say.
topology() {
    local found
    found=$(cluster get infrastructures.config.openshift.io cluster --output=json |
        jq --raw-output --exit-status '.status.controlPlaneTopology | select(. != null and . != "")') || return 1
    printf '%s\n' "${found}"
}

# servers: the number of nodes on which an API server of the real control plane has been rolled out.
servers() {
    cluster get kubeapiservers.operator.openshift.io cluster --output=json |
        jq '[.status.nodeStatuses[]? | select((.currentRevision // 0) > 0)] | length'
}

wait_for_api() {
    local built count
    until built=$(topology); do
        say "the cluster's topology is not known yet"
        sleep 5
    done
    if [[ "${built}" != HighlyAvailable ]]; then
        say "the control plane is ${built}: there is no second API server to wait for"
        return
    fi
    until count=$(servers) && [[ "${count}" -ge "${ENOUGH_SERVERS}" ]]; do
        say "API servers on ${count:-0} nodes, waiting for ${ENOUGH_SERVERS}"
        sleep 5
    done
}

is_reported() {
    [[ "$(cluster get configmap bootstrap --namespace=kube-system --output='jsonpath={.data.status}')" == complete ]]
}

report() {
    cluster apply --filename=- <<'MANIFEST'
apiVersion: v1
kind: ConfigMap
metadata:
  name: bootstrap
  namespace: kube-system
data:
  status: complete
MANIFEST
}

report_complete() {
    until is_reported; do
        report || say "could not report yet"
        is_reported && break
        sleep 5
    done
}

begin_service progress
must wait-for-bootstrap-complete wait_for_bootkube
must wait-for-api wait_for_api
must report-bootstrap-complete report_complete
