"""Machines that somebody else makes: Moorage computes what they boot from, and waits for them."""
