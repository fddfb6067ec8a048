"""A platform that is plugged in, on the far side of a socket: it outlives the controllers that call it."""
