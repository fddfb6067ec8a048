# shellcheck shell=bash
# How bootkube gets through its work: stages that are done once, whatever interrupts them.
#
# A stage called NAME writes what it makes to the folder NAME and leaves the marker NAME.done when it has succeeded. A
# service that is killed anywhere starts again, skips what has a marker, and makes the interrupted stage anew.

# stage NAME FUNCTION: run it unless it was done before; a failure ends the service.
stage() {
    if is_done "$1"; then
        say "stage $1: done before"
        return
    fi
    rm --recursive --force "${OPENSHIFT:?}/$1"
    must "$1" "$2"
    mark "$1"
}

# gate NAME FUNCTION STAGE: a condition to hold whenever STAGE is about to start, so it leaves no marker of its own.
gate() {
    if ! is_done "$3"; then
        must "$1" "$2"
    fi
}

# check NAME FUNCTION: worth knowing when it fails, no reason to stop.
check() {
    if is_done "$1"; then
        return
    fi
    attempt "$1" "$2"
    if [[ "${ATTEMPT_STATUS}" -eq 0 ]]; then
        mark "$1"
    else
        say "warning: $1 failed; going on"
    fi
}

# must NAME FUNCTION: run it; a failure ends the service with the stage's name and its last words.
must() {
    attempt "$1" "$2"
    if [[ "${ATTEMPT_STATUS}" -ne 0 ]]; then
        say "stage $1 failed with status ${ATTEMPT_STATUS}; its last lines:"
        last_lines "$1" | sed 's/^/    /'
        exit "${ATTEMPT_STATUS}"
    fi
}

# attempt NAME FUNCTION: run it with its output kept and its outcome recorded; the status is in ATTEMPT_STATUS.
attempt() {
    local log="${RECORDS}/${SERVICE}/$1.log"
    mkdir --parents "${log%/*}"
    say "stage $1: start"
    record stage start "$1"
    # Errors must stop the function where they happen. Bash forgets that inside any condition, hence no `if` here.
    set +e
    (
        set -e
        "$2"
    ) 2>&1 | tee "${log}"
    ATTEMPT_STATUS=${PIPESTATUS[0]}
    set -e
    if [[ "${ATTEMPT_STATUS}" -eq 0 ]]; then
        record stage end "$1" success
    else
        record stage end "$1" failure "$(last_lines "$1")"
    fi
}

last_lines() {
    tail --lines=5 "${RECORDS}/${SERVICE}/$1.log"
}

is_done() {
    [[ -e "${OPENSHIFT}/$1.done" ]]
}

mark() {
    write_file "${OPENSHIFT}/$1.done" </dev/null
}
