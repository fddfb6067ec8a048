"""A cluster's own network services, for places that have no balancer and no DNS of their own.

Every node runs one static pod: keepalived carries the virtual addresses, HAProxy (on masters) spreads the API's load,
CoreDNS answers for the cluster's names, and a small agent, `moorage node-network`, keeps their configs in step with the
cluster. What computes those configs is pure (`rendering`), so that a test, the lab and a node get the same bytes.
"""

from __future__ import annotations

import moorage

IMAGE = f"quay.io/moorage/moorage:{moorage.__version__}"
"""The image of all containers of the pod; see the Containerfile."""
