"""`python3 -IS deferred_exec.py NICENESS LOCK COMMAND…`: waits until LOCK is free or gone, then runs COMMAND.

Run as a file and with next to no imports: a node starts five of it, and each counts as its CPU seconds do.
"""

import fcntl
import os
import sys


def main(niceness: str, lock: str, *command: str) -> None:
    """Wait, and become the command. Raises OSError if there is no such command."""
    os.nice(int(niceness))
    try:
        with open(lock, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_SH)
    except FileNotFoundError:
        pass
    os.execvp(command[0], command)  # noqa: S606  the command of Ray's own that it stands before


if __name__ == "__main__":
    main(*sys.argv[1:])
