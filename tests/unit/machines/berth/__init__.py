"""A platform that is plugged in: the berths of a test, for whoever knows the password of the moment."""
