#!/usr/bin/env bash
# Before CRI-O starts: pods on this node use the payload's pause image, as those of the cluster will.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail

LIBRARY="${MOORAGE_ROOT:-}/usr/local/lib/moorage"
# shellcheck source=common.sh
source "${LIBRARY}/common.sh"
# shellcheck source=release.sh
source "${LIBRARY}/release.sh"

load_environment
begin_service crio-configure
pause_image=$(image_for pod)
write_file "${MOORAGE_ROOT}/etc/crio/crio.conf.d/50-bootstrap-override.conf" <<CONFIG
[crio.runtime]
hooks_dir = [
    "/usr/share/containers/oci/hooks.d",
    "/etc/containers/oci/hooks.d",
]

[crio.image]
pause_image = "${pause_image}"
pause_command = "/usr/bin/pod"
CONFIG
