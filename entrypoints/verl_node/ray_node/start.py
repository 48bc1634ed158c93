"""`python3 -m verl_node.ray_node.start`: imports Ray early, then runs `ray start`.

The import takes a second of a core or more, and passes while the nodes still look for each other. Then one line of JSON
on standard input brings its command line and the whole environment; without one it ends.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Be `ray`; ends with its exit code."""
    from ray.scripts import scripts

    line = sys.stdin.readline()
    if line:
        order = json.loads(line)
        os.environ.clear()
        os.environ.update(order["env"])
        scripts.cli.main(args=order["argv"][1:], prog_name="ray")


if __name__ == "__main__":
    main()
