"""`python3 -m verl_node.explain PATH… [--failed] [--json]`: finds the first failure in logs.

Exits with 0 whatever the logs tell, and with 64 where there is none to read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from verl_node.errors import BadSettings
from verl_node.explain import explain
from verl_node.explain.logs.sources import NothingToRead


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the explanation; return the exit code."""
    options = _parse(arguments)
    try:
        told = explain(
            options.path,
            failed=options.failed,
            beside=options.beside,
            limit_s=options.limit_s,
            processes=options.processes,
        )
    except NothingToRead as error:
        print(error, file=sys.stderr)  # noqa: T201
        return BadSettings.code
    print(told.json() if options.json else told.text())  # noqa: T201
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m verl_node.explain", description=__doc__)
    parser.add_argument("path", nargs="+", type=Path, help="a log, a job's run directory, or a folder with logs")
    parser.add_argument("--failed", action="store_true", help="the job failed: say what may be why, never that none is")
    parser.add_argument(
        "--beside", action="append", default=[], type=Path, help="logs to ask where those tell no cause"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--limit-s", type=float, help="read for at most so many seconds")
    parser.add_argument("--processes", type=int, default=0, help="how many read at once; 0: one a CPU, at most four")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
