"""Finds the first failure of a job in its logs: cause, location and fix.

A job's logs are full of consequences: a watchdog's line for each rank, Ray's wrapper around the exception, an engine
that reports a failed core. `explain` reads all of them and reports the first failure that is no consequence.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from verl_node.explain import choice, outcome, rules
from verl_node.explain.logs import scan, sources
from verl_node.explain.report import Explanation


def explain(
    paths: Sequence[Path],
    *,
    failed: bool = False,
    beside: Sequence[Path] = (),
    limit_s: float | None = None,
    processes: int = 0,
) -> Explanation:
    """Return the explanation of the logs in these files and folders.

    :param failed: the job is known to have failed, so a log without an obvious failure is explained, too.
    :param beside: logs that are used if those have no cause, such as Ray's.
    :param limit_s: time limit, after which the rest is not read, as the explanation then notes; None reads everything.
    :param processes: number of reading processes, 0 for one per CPU and at most four.
    :raises NothingToRead: none of the paths has a log.
    """
    deadline = None if limit_s is None else time.monotonic() + limit_s
    logs = [*sources.collect(paths), *sources.beside(beside)]
    verdict = outcome.find_verdict(paths, logs)
    table = rules.load()
    scanned = scan.scan_files(logs, table, deadline=deadline, processes=processes)
    return choice.choose(scanned, verdict, table, outcome.hosts(paths), failed=failed)
