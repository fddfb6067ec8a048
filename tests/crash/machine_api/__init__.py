"""kill -9 and SIGSTOP on machine controllers: the real command on the lab's engine, ended at any call to it."""
