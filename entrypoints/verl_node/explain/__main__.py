"""`python3 -m verl_node.explain PATH… [--failed] [--json]`: finds the first failure in logs.

Exits with 0 whatever it finds, and with 64 without a log.
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
        explanation = explain(
            options.path,
            failed=options.failed,
            beside=options.beside,
            limit_s=options.limit_s,
            processes=options.processes,
        )
    except NothingToRead as error:
        print(error, file=sys.stderr)  # noqa: T201
        return BadSettings.code
    print(explanation.json() if options.json else explanation.text())  # noqa: T201
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m verl_node.explain", description=__doc__)
    parser.add_argument("path", nargs="+", type=Path, help="a log, a job's run directory, or a folder with logs")
    parser.add_argument("--failed", action="store_true", help="the job failed: always report a possible cause")
    parser.add_argument("--beside", action="append", default=[], type=Path, help="logs to use if those have no cause")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--limit-s", type=float, help="read for at most this many seconds")
    parser.add_argument(
        "--processes", type=int, default=0, help="number of reading processes; 0: one per CPU, at most four"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
