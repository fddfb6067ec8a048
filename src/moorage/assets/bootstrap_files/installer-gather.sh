#!/usr/bin/env bash
# Writes everything that helps to understand a failed bootstrap to log-bundle-ID.tar.gz in the home directory.
#
#   installer-gather.sh [--id ID] [ADDRESS...]   the bundle, with the control-plane nodes at these addresses
#   installer-gather.sh --snapshot FOLDER        only what the API knows, for the time when it is gone
#
# No private key, password or token leaves the node: files that may hold one are left out, Secrets are only listed.
# shellcheck source-path=SCRIPTDIR
set -uo pipefail

# shellcheck source=common.sh
source "${MOORAGE_ROOT:-}/usr/local/lib/moorage/common.sh"

RESOURCES=(
    apiservices certificatesigningrequests clusteroperators clusterversions configmaps endpoints events
    infrastructures kubeapiservers.operator.openshift.io kubecontrollermanagers.operator.openshift.io
    machineconfigpools machines.machine.openshift.io machinesets.machine.openshift.io namespaces nodes
    openshiftapiservers.operator.openshift.io pods rolebindings roles services
)
SSH_OPTIONS=(
    -o BatchMode=yes -o ConnectTimeout=15 -o PreferredAuthentications=publickey
    -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR
)

privileged() {
    if [[ "${EUID}" -eq 0 ]]; then
        "$@"
    else
        sudo "$@"
    fi
}

cluster() {
    privileged oc --kubeconfig="${OPENSHIFT}/auth/kubeconfig-loopback" --request-timeout=10s "$@"
}

# snapshot FOLDER: what the API knows. Nothing, quickly, where it does not answer.
snapshot() {
    local resource
    cluster get --raw=/readyz >/dev/null 2>&1 || return 1
    mkdir --parents "$1"
    for resource in "${RESOURCES[@]}"; do
        cluster get "${resource}" --all-namespaces --output=json >"$1/${resource%%.*}.json" 2>"$1/${resource%%.*}.err" &
    done
    cluster get secrets --all-namespaces >"$1/secrets-names.txt" 2>&1 &
    # Among the files of a MachineConfig is the pull secret.
    cluster get machineconfigs --output=json 2>"$1/machineconfigs.err" |
        jq 'del(.items[].spec.config.storage.files[]?.contents)' >"$1/machineconfigs.json" &
    wait
    find "$1" -name '*.err' -empty -delete
}

# gather_assets FOLDER: /opt/openshift without anything secret.
gather_assets() {
    local secret
    mkdir --parents "$1"
    privileged tar --create --directory="${OPENSHIFT}" --exclude='*.key' --exclude='*kubeconfig*' --exclude='*secret*' \
        --exclude='.kube' --exclude='./auth' . | tar --extract --no-same-owner --no-same-permissions --directory="$1"
    while IFS= read -r -d '' secret; do
        rm --force "${secret}"
    done < <(grep --recursive --files-with-matches --null --extended-regexp \
        '"?kind"?: *"?Secret"?|PRIVATE KEY-----|"auths"' "$1")
}

# masters BUNDLE: where the control plane's nodes are, as the cluster says.
masters() {
    jq --raw-output '
        .items[]
        | select(.metadata.labels | has("node-role.kubernetes.io/master") or has("node-role.kubernetes.io/control-plane"))
        | first(.status.addresses[] | select(.type == "InternalIP") | .address)
    ' "$1/resources/nodes.json" 2>/dev/null
}

# gather_master ADDRESS FOLDER: one script there, one archive back.
gather_master() {
    mkdir --parents "$2"
    timeout 600 ssh "${SSH_OPTIONS[@]}" "core@$1" sudo bash -s <"${MOORAGE_ROOT}/usr/local/bin/node-gather.sh" |
        tar --extract --gzip --directory="$2" || say "could not gather from $1"
}

gather() {
    local bundle="$1" address
    shift
    say "gathering from this node"
    mkdir --parents "${bundle}/bootstrap/services"
    privileged "${MOORAGE_ROOT}/usr/local/bin/node-gather.sh" |
        tar --extract --gzip --directory="${bundle}/bootstrap" || say "could not gather from this node"
    privileged tar --create --directory="${RECORDS}" . |
        tar --extract --no-same-owner --directory="${bundle}/bootstrap/services" || say "no service has left a record"
    gather_assets "${bundle}/rendered-assets"
    say "gathering from the API"
    if ! snapshot "${bundle}/resources"; then
        say "the API does not answer; using what was kept when it last failed, if anything"
        if [[ -d "${bundle}/bootstrap/services/resources" ]]; then
            mv "${bundle}/bootstrap/services/resources" "${bundle}/resources"
        fi
    fi
    if [[ "$#" -eq 0 ]]; then
        mapfile -t addresses < <(masters "${bundle}")
        set -- "${addresses[@]}"
    fi
    for address in "$@"; do
        say "gathering from ${address}"
        gather_master "${address}" "${bundle}/control-plane/${address}" &
    done
    wait
}

main() {
    local id archive workspace
    if [[ "${1-}" == --snapshot ]]; then
        snapshot "$2"
        return
    fi
    id=$(date --utc +%Y%m%d%H%M%S)
    if [[ "${1-}" == --id ]]; then
        id="$2"
        shift 2
    fi
    archive="${HOME}/log-bundle-${id}.tar.gz"
    workspace=$(mktemp --directory)
    # shellcheck disable=SC2064  # the folder of now, not of the time when the script ends
    trap "rm --recursive --force '${workspace}'" EXIT
    mkdir "${workspace}/log-bundle-${id}"
    gather "${workspace}/log-bundle-${id}" "$@" 2>&1 | tee "${workspace}/gather.log"
    mv "${workspace}/gather.log" "${workspace}/log-bundle-${id}/gather.log"
    tar --create --gzip --directory="${workspace}" "log-bundle-${id}" | write_file "${archive}" 0600
    say "Log bundle written to ${archive}"
}

main "$@"
