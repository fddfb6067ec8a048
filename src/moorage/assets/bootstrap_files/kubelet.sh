#!/usr/bin/env bash
# The kubelet of the bootstrap node: it belongs to no cluster and only runs static pods.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail

LIBRARY="${MOORAGE_ROOT:-}/usr/local/lib/moorage"
# shellcheck source=common.sh
source "${LIBRARY}/common.sh"
# shellcheck source=release.sh
source "${LIBRARY}/release.sh"

load_environment
plugins="${KUBERNETES}/kubelet-plugins/volume/exec"
mkdir --parents "${KUBERNETES}/manifests" "${plugins}"

flags=(
    --anonymous-auth=false
    --container-runtime-endpoint=unix:///var/run/crio/crio.sock
    --runtime-request-timeout="${KUBELET_RUNTIME_REQUEST_TIMEOUT:-10m}"
    --pod-manifest-path="${KUBERNETES}/manifests"
    --minimum-container-ttl-duration=6m0s
    --cluster-domain=cluster.local
    --cgroup-driver=systemd
    --serialize-image-pulls=false
    --volume-plugin-dir="${plugins}"
    --v=2
)
if [[ -n "${MOORAGE_NODE_IP}" ]]; then
    flags+=(--node-ip="${MOORAGE_NODE_IP}")
fi
if [[ -n "${MOORAGE_NODE_ADDRESS}" ]]; then
    flags+=(--address="${MOORAGE_NODE_ADDRESS}")
fi
if [[ -n "${MOORAGE_PAUSE_IMAGE_FLAG}" ]]; then
    pause_image=$(image_for pod)
    flags+=("${MOORAGE_PAUSE_IMAGE_FLAG}=${pause_image}")
fi

exec kubelet "${flags[@]}"
