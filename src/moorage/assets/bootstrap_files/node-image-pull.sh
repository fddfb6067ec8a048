#!/usr/bin/env bash
# Fetches the operating system image of the release, which has what boot images lack: kubelet, CRI-O, oc.
#
# The image is checked out next to the running system, without those files of /etc that are this machine's own. The
# service runs in its own mount namespace, so what is remounted here stays here.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail

LIBRARY="${MOORAGE_ROOT:-}/usr/local/lib/moorage"
# shellcheck source=common.sh
source "${LIBRARY}/common.sh"
# shellcheck source=release.sh
source "${LIBRARY}/release.sh"

# choose_place: on disk, the system's own repository, where unchanged files cost nothing; a live system cannot write
# there and gets a repository of its own in memory.
choose_place() {
    if [[ -e "${MOORAGE_ROOT}/run/ostree-live" ]]; then
        repository="${MOORAGE_ROOT}/var/nodeimage/repo"
        checkout="${MOORAGE_ROOT}/var/nodeimage/checkout"
        links=()
        mkdir --parents "${repository}"
        ostree init --mode=bare --repo="${repository}"
        if [[ -d "${MOORAGE_ROOT}/ostree/repo/refs/heads/ostree/container" ]]; then
            ostree pull-local --repo="${repository}" "${MOORAGE_ROOT}/ostree/repo"
        fi
    else
        repository="${MOORAGE_ROOT}/ostree/repo"
        checkout="${repository}/tmp/node-image"
        links=(--require-hardlinks)
        mount --options remount,rw /sysroot
    fi
}

pull_image() {
    ostree container image pull --authfile="${MOORAGE_ROOT}/root/.docker/config.json" \
        "${repository}" "ostree-unverified-image:docker://$1"
}

# image_ref: what the repository calls the image that was pulled, the only one from a registry.
image_ref() {
    local refs
    mapfile -t refs < <(ostree refs --repo="${repository}" | grep '^ostree/container/image/docker')
    [[ "${#refs[@]}" -eq 1 ]] || fail "expected one image in ${repository}, found ${#refs[@]}: ${refs[*]}"
    printf '%s\n' "${refs[0]}"
}

# own_files: files of /etc that differ from the running image's, named as in the image.
own_files() {
    if [[ -e "${MOORAGE_ROOT}/run/ostree-live" ]]; then
        # A live system has its /etc on another mount than the one that is compared.
        mount --options bind,ro /etc "${MOORAGE_ROOT}"/ostree/deploy/*/deploy/*/etc
    fi
    ostree admin config-diff | sed --regexp-extended 's,^[A-Z] +,/usr/etc/,'
}

load_environment
begin_service node-image-pull
until image=$(image_for "${MOORAGE_NODE_IMAGE}"); do
    say "the release image cannot be read; trying again in 10 s"
    sleep 10
done
choose_place
say "pulling ${image}"
retry 10 pull_image "${image}"
ref=$(image_ref)
ostree refs --repo="${repository}" "${ref}" --create=coreos/node-image --force
own=$(own_files)
rm --recursive --force "${checkout}"
ostree checkout --repo="${repository}" "${links[@]}" --skip-list=<(printf '%s\n' "${own}") \
    coreos/node-image "${checkout}"
if [[ -e "${MOORAGE_ROOT}/run/ostree-live" ]]; then
    rm --recursive --force "${repository}"
fi
