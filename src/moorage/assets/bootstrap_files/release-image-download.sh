#!/usr/bin/env bash
# Fetches the release payload, for as long as it takes, and makes sure that it can run on this machine.
# It retries by itself because systemd restarts no oneshot service that others wait for.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail

LIBRARY="${MOORAGE_ROOT:-}/usr/local/lib/moorage"
# shellcheck source=common.sh
source "${LIBRARY}/common.sh"
# shellcheck source=stages.sh
source "${LIBRARY}/stages.sh"

ISSUE="${MOORAGE_ROOT}/etc/issue.d/50_release-image.issue"

# announce MESSAGE: put it on the console's login screen, where somebody without SSH access sees it; nothing clears it.
announce() {
    if [[ -n "$1" ]]; then
        printf '\n\\e{lightred}%s\\e{reset}\n' "$1" | write_file "${ISSUE}"
    else
        rm --force "${ISSUE}"
    fi
    agetty --reload || true
}

pull() {
    until podman image exists "${MOORAGE_RELEASE_IMAGE}" || podman pull --quiet "${MOORAGE_RELEASE_IMAGE}"; do
        announce "Cannot pull the release image ${MOORAGE_RELEASE_IMAGE}"
        say "trying again in 10 s"
        sleep 10
    done
    announce ""
}

machine_architecture() {
    case "$(uname --machine)" in
        x86_64) printf 'amd64\n' ;;
        aarch64) printf 'arm64\n' ;;
        *) uname --machine ;;
    esac
}

match_architecture() {
    local image machine
    image=$(podman image inspect --format '{{.Architecture}}' "${MOORAGE_RELEASE_IMAGE}")
    machine=$(machine_architecture)
    if [[ "${image}" != "${machine}" ]]; then
        announce "The release image is built for ${image}, this machine is ${machine}"
        fail "the release image ${MOORAGE_RELEASE_IMAGE} is built for ${image}, this machine is ${machine}"
    fi
}

load_environment
begin_service release-image
must pull-release-image pull
must match-architecture match_architecture
