"""What controllers stand on: a client, caches, queues, workers, an election and what tells about them.

Nothing here knows what a machine is. A controller is a function from a key to a `controller.Result`; informers say
which keys have changed, a queue when each is looked at, and the manager sees that only the elected process does it.
"""
