"""``python -m moorage.lab FOLDER SPEED``: the lab's process, as `moorage lab start` starts it."""

import sys
from pathlib import Path

from moorage import errors
from moorage.lab import process

try:
    process.run(Path(sys.argv[1]), float(sys.argv[2]))
except errors.MoorageError as problem:
    # Whoever started us reads these two lines in the log.
    sys.stderr.write(f"error: {problem.message}\nnext: {problem.remedy}\n")
    sys.exit(problem.exit_code)
