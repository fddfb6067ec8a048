"""Machines and the nodes they become, on whatever platform: who may join a cluster as which node."""
