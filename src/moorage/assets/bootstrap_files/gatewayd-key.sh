#!/usr/bin/env bash
# Lets the journal gateway read its own certificate. Some systems make its user only when it starts, which is too late.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail

# shellcheck source=common.sh
source "${MOORAGE_ROOT:-}/usr/local/lib/moorage/common.sh"

user=systemd-journal-gateway
getent passwd "${user}" >/dev/null || useradd --system "${user}"
chown "${user}:" "${OPENSHIFT}"/tls/journal-gatewayd.{crt,key}
