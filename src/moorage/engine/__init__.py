"""Durable flows: what a platform declares as resources is brought up in order, journaled and resumed.

Start with `resource` (what to declare), `flow` (how it is run) and `steps` (what happens to one resource). TaskFlow is
loaded by `runner` and `logbook` alone, and only when a flow has work to do, so that `plan` and `status` stay quick.
"""
