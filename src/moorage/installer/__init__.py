"""The story of a cluster, told from the pieces below: assets now; plan, create, wait, destroy on top of them."""
