"""An oVirt engine: the REST API, version 4 in XML, over a datacentre of hosts, storage and networks that it plays.

The vendor's own SDK talks to it without knowing. What a user of a real engine meets is there: a login that runs out,
locks and jobs, names that are in use, storage that fills up, hosts that are too few; in the engine's own words, because
programs read those. Its virtual machines are machines of the lab's site, which boot what they are given.
"""
