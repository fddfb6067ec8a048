# shellcheck shell=bash
# The release payload: which images it consists of, and how they are run.

# release_image: the payload's pull spec, by digest where podman knows it, so that all services mean the same bytes.
release_image() {
    # A payload for several architectures has two digests: its list's and its image's. Ours is the image's.
    local digest
    digest=$(
        podman image inspect "${MOORAGE_RELEASE_IMAGE}" |
            jq --raw-output '.[0] | .Digest as $digest | first(.RepoDigests[]? | select(endswith($digest)))'
    ) || digest=""
    printf '%s\n' "${digest:-${MOORAGE_RELEASE_IMAGE}}"
}

# Callers may try these again in a loop, where bash does not stop at errors by itself: hence each `|| return`.

# image_for NAME: the pull spec of the payload's image NAME.
image_for() {
    save_image_references || return 1
    jq --raw-output --exit-status --arg name "$1" \
        'first(.spec.tags[] | select(.name == $name and .from.kind == "DockerImage") | .from.name)' \
        "${OPENSHIFT}/image-references" || fail "the release payload has no image named $1"
}

# save_image_references: the payload's own list of its images, asked for once.
save_image_references() {
    local references="${OPENSHIFT}/image-references" image content
    if [[ -s "${references}" ]]; then
        return
    fi
    image=$(release_image)
    content=$(podman run --quiet --rm --net=none --entrypoint=cat "${image}" /release-manifests/image-references) ||
        return 1
    write_file "${references}" <<<"${content}"
}

# payload [--PODMAN-OPTION...] CONTAINER IMAGE ARGUMENT...: run an image of the payload over /opt/openshift, in the
# host's network because a bridge's addresses may clash with the user's. IMAGE is a name, or "release" for the payload.
payload() {
    local options=() flags image container
    while [[ "$1" == --* ]]; do
        options+=("$1")
        shift
    done
    container="$1"
    if [[ "$2" == release ]]; then
        image=$(release_image)
    else
        image=$(image_for "$2") || return 1
    fi
    shift 2
    read -r -a flags <<<"${MOORAGE_PODMAN_FLAGS}"
    # A service that was killed leaves its container behind: --replace keeps its name from blocking the next try.
    # Root, because everything below /opt/openshift may be read by root only.
    podman run --quiet --rm --replace --user=0 --net=host "${flags[@]}" --name="${container}" \
        --volume="${OPENSHIFT}:/assets:z" "${options[@]}" "${image}" "$@"
}
