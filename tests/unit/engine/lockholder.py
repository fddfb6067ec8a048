"""Hold a directory's lock until told to let go. A program for the lock's tests: ``lockholder.py FOLDER --token X``."""

from __future__ import annotations

import pathlib
import sys

from moorage.engine import errors, lock

try:
    with lock.held(pathlib.Path(sys.argv[1])):
        print("held", flush=True)
        sys.stdin.readline()
except errors.Locked as locked:
    print(locked.message, flush=True)
    sys.exit(1)
