#!/usr/bin/env bash
# Lets the first nodes into the cluster, and nobody else, until the cluster can decide for itself.
#
# A node asks twice: for a client certificate, with the credentials that the machine-config server hands out; then,
# under the name it was given, for a serving certificate. Any other request stays pending for the cluster's own
# approvers or an administrator, and is mentioned here once.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail

# shellcheck source=common.sh
source "${MOORAGE_ROOT:-}/usr/local/lib/moorage/common.sh"

BOOTSTRAPPER=system:serviceaccount:openshift-machine-config-operator:node-bootstrapper
NODE_NAME='^system:node:[a-z0-9]([-a-z0-9.]*[a-z0-9])?$'
PENDING='
    .items[]
    | select((.status.conditions // []) | length == 0)
    | [.metadata.name, .spec.signerName, .spec.username, .spec.request] | @tsv
'

declare -A MENTIONED=()

# requested_node REQUEST: the name of the node that a certificate request is for; fails unless it names just one.
requested_node() {
    local subject name
    subject=$(base64 --decode <<<"$1" | openssl req -noout -subject -nameopt RFC2253 2>/dev/null) || return 1
    subject="${subject#subject=}"
    subject="${subject# }"
    case "${subject}" in
        CN=*,O=system:nodes) name="${subject%,O=system:nodes}" ;;
        O=system:nodes,CN=*) name="${subject#O=system:nodes,}" ;;
        *) return 1 ;;
    esac
    name="${name#CN=}"
    [[ "${name}" =~ ${NODE_NAME} ]] || return 1
    printf '%s\n' "${name}"
}

# is_from_node SIGNER USER REQUEST: whether this is one of the two requests of a node that joins.
is_from_node() {
    local name
    name=$(requested_node "$3") || return 1
    case "$1" in
        kubernetes.io/kube-apiserver-client-kubelet) [[ "$2" == "${BOOTSTRAPPER}" ]] ;;
        kubernetes.io/kubelet-serving) [[ "$2" == "${name}" ]] ;;
        *) return 1 ;;
    esac
}

cluster() {
    oc --kubeconfig="${OPENSHIFT}/auth/kubeconfig-loopback" --request-timeout=30s "$@"
}

review() {
    local requests name signer user request
    if ! requests=$(cluster get certificatesigningrequests --output=json); then
        say "the cluster's API does not answer yet"
        return
    fi
    while IFS=$'\t' read -r name signer user request; do
        if is_from_node "${signer}" "${user}" "${request}"; then
            say "approving ${name}, requested by ${user} for ${signer}"
            cluster adm certificate approve "${name}" || say "could not approve ${name}; trying again"
        elif [[ -z "${MENTIONED[${name}]-}" ]]; then
            MENTIONED["${name}"]=yes
            say "leaving ${name} pending: ${user} asks ${signer}, which is not how a node joins"
        fi
    done < <(jq --raw-output "${PENDING}" <<<"${requests}")
}

begin_service approve-csr
until [[ -e "${COMPLETE}" ]]; do
    review
    sleep 10
done
say "the bootstrap is complete; the cluster approves from now on"
