"""Clusters on oVirt: virtual machines of an engine, with the addresses of API and routers carried by the nodes."""
