"""Moorage berths OpenShift and OKD clusters on infrastructure that mainstream installers left behind."""

__version__ = "0.1.0"
