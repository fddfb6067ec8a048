#!/usr/bin/env bash
# What one node knows about its own state, as a tar archive on standard output. The bootstrap node sends this script
# to the control plane's nodes through SSH, so it must stand alone; whatever cannot be read is said in its own file.
set -uo pipefail

collected=$(mktemp --directory)
trap 'rm --recursive --force "${collected}"' EXIT

# keep FILE COMMAND...: its output, errors included.
keep() {
    mkdir --parents "$(dirname "${collected}/$1")"
    timeout 60 "${@:2}" >"${collected}/$1" 2>&1 </dev/null
}

gather_units() {
    local unit
    keep failed-units.txt systemctl list-units --state=failed --no-legend --plain --no-pager
    while read -r unit _; do
        keep "unit-status/${unit}.txt" systemctl status --full --no-pager "${unit}"
        keep "unit-status/${unit}.log" journalctl --no-pager --unit="${unit}"
    done <"${collected}/failed-units.txt"
}

gather_journals() {
    local unit
    for unit in release-image node-image-pull node-image-overlay crio-configure crio kubelet bootkube approve-csr \
        progress machine-config-daemon-firstboot machine-config-daemon-host NetworkManager sssd; do
        keep "journals/${unit}.log" journalctl --boot --no-pager --output=short-iso --unit="${unit}"
    done
    keep journals/journal.log journalctl --no-pager --output=with-unit
    gzip --quiet "${collected}/journals/journal.log"
}

gather_network() {
    keep network/ip-addr.txt ip address
    keep network/ip-route.txt ip route show table all
    keep network/ip6-route.txt ip -6 route show table all
    keep network/sockets.txt ss --all --numeric --processes
    keep network/hostname.txt hostname
    keep network/resolv.conf cat /etc/resolv.conf
    keep network/hosts cat /etc/hosts
}

# Inspecting a container shows its environment, which may hold credentials: only its log and state are kept.
gather_containers() {
    local id name
    keep containers/crictl-ps.txt crictl ps --all
    keep containers/podman-ps.txt podman ps --all
    while read -r id name; do
        keep "containers/${name//\//_}-${id}.log" crictl logs "${id}"
    done < <(crictl ps --all --output=json 2>/dev/null | jq --raw-output '.containers[]? | "\(.id) \(.metadata.name)"')
    while read -r id name; do
        keep "containers/${name}-${id}.log" podman logs "${id}"
    done < <(podman ps --all --format '{{.ID}} {{.Names}}' 2>/dev/null)
}

gather_system() {
    keep system/rpm-ostree.txt rpm-ostree status --verbose
    keep system/disks.txt df --human-readable
    keep system/memory.txt free --mebi
    keep system/time.txt timedatectl show
    keep system/uptime.txt uptime
}

gather_units
gather_journals
gather_network
gather_containers
gather_system
tar --create --gzip --directory="${collected}" .
