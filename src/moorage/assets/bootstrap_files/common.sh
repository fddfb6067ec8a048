# shellcheck shell=bash
# What all scripts of the bootstrap node share: where things are, how they speak, and the record of what happened.
#
# Every path starts with MOORAGE_ROOT, which is empty on a node; a test sets it to run the very same files elsewhere.

MOORAGE_ROOT="${MOORAGE_ROOT:-}"
# shellcheck disable=SC2034  # read by the scripts that source this file
{
    OPENSHIFT="${MOORAGE_ROOT}/opt/openshift"
    KUBERNETES="${MOORAGE_ROOT}/etc/kubernetes"
    RECORDS="${MOORAGE_ROOT}/var/log/openshift"
    COMPLETE="${OPENSHIFT}/.bootkube.done"
}
SERVICE=""

say() {
    printf '%s\n' "$*"
}

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# load_environment: the cluster's own values, written by the installer.
load_environment() {
    # shellcheck disable=SC1091  # generated for each cluster
    source "${MOORAGE_ROOT}/etc/moorage/bootstrap.env"
}

# begin_service NAME: from here on, the service's life is recorded under NAME, its end included.
begin_service() {
    SERVICE="$1"
    mkdir --parents "${RECORDS}"
    record service start
    trap 'end_service $?' EXIT
}

end_service() {
    if [[ "$1" -eq 0 ]]; then
        record service end "" success
    else
        record service end "" failure "exit status $1"
    fi
}

# record SUBJECT EVENT [STAGE [RESULT [MESSAGE]]]: one line of JSON, whole or not at all, for the log bundle.
record() {
    local timestamp line key
    TZ=UTC printf -v timestamp '%(%Y-%m-%dT%H:%M:%SZ)T' -1
    line="{\"timestamp\":\"${timestamp}\",\"service\":\"${SERVICE}\""
    for key in subject event stage result message; do
        if [[ -n "${1-}" ]]; then
            line+=",\"${key}\":$(json_string "$1")"
        fi
        shift || true
    done
    printf '%s}\n' "${line}" >>"${RECORDS}/${SERVICE}.jsonl"
}

json_string() {
    local text="$1"
    text="${text//\\/\\\\}"
    text="${text//\"/\\\"}"
    text="${text//$'\n'/\\n}"
    text="${text//$'\t'/\\t}"
    printf '"%s"' "${text//[[:cntrl:]]/}"
}

# write_file PATH [MODE]: standard input becomes the file, in one step: a reader sees the old or the new, never half.
write_file() {
    local folder="${1%/*}" temporary
    mkdir --parents "${folder}"
    temporary=$(mktemp "${folder}/.${1##*/}.XXXXXX")
    cat >"${temporary}"
    chmod "${2:-0644}" "${temporary}"
    mv --force "${temporary}" "$1"
}

# retry SECONDS COMMAND...: until it succeeds.
retry() {
    local pause="$1"
    shift
    until "$@"; do
        say "failed: $1 ${2-}; trying again in ${pause} s"
        sleep "${pause}"
    done
}
