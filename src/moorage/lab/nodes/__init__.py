"""The machines of the lab: what happens on a computer from the power switch to a node of a cluster.

`instance` is the computer and `network` its wire. `ignition` reads user data as the real engine does (`specs` knows the
format, `validation` its rules, `merging` how configs are laid over each other, `resources` and `fetching` how contents
are had), `mcs` and `machine_configs` are the server that nodes fetch their configuration from. What a machine becomes
is decided by the files and units that these steps left on its disk, never by what the lab knows about it.
"""
