"""The install-config: its model, defaults, rules, survey and explanations.

This is the lowest layer: it knows no platform. Platform stanzas (`platform.<name>` and the machine
pools' `platform.<name>`) are handed in as a mapping of `stanza.Stanza`.
"""
