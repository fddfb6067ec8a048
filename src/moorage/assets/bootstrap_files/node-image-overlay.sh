#!/usr/bin/env bash
# Puts the fetched operating system image over the running one. The kernel stays, and so its modules must.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail

# shellcheck source=common.sh
source "${MOORAGE_ROOT:-}/usr/local/lib/moorage/common.sh"

begin_service node-image-overlay
checkout="${MOORAGE_ROOT}/ostree/repo/tmp/node-image"
if [[ ! -d "${checkout}" ]]; then
    checkout="${MOORAGE_ROOT}/var/nodeimage/checkout"
fi
mount --options bind,ro /usr/lib/modules "${checkout}/usr/lib/modules"
mount --options rbind,ro "${checkout}/usr" /usr
rsync --archive "${checkout}/usr/etc/" "${MOORAGE_ROOT}/etc"
semodule --reload
