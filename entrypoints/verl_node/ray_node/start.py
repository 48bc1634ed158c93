"""`python3 -m verl_node.ray_node.start`: imports Ray early, then runs `ray start`.

The import uses a second of a core or more, while the nodes still connect to each other. Then one line of JSON on
standard input has the command line and the whole environment; at end of file the process ends.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Run `ray`; exits with its exit code."""
    from ray.scripts import scripts

    line = sys.stdin.readline()
    if line:
        order = json.loads(line)
        os.environ.clear()
        os.environ.update(order["env"])
        scripts.cli.main(args=order["argv"][1:], prog_name="ray")


if __name__ == "__main__":
    main()
