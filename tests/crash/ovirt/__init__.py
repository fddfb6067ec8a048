"""kill -9 on oVirt: the real commands against the lab's engine, ended at any call and begun again."""
