"""Finds the first failure of a job in its logs: what, where, and the fix.

A job's logs are full of consequences: a watchdog's line for each rank, Ray's wrapper around the exception, an engine
that says its core failed. `explain` reads them all and names what came first and was nobody's consequence.
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
    """Return what the logs in these files and folders tell.

    :param failed: it is known that the job failed, so that a log which does not say so has an answer too.
    :param beside: logs that are asked where those tell no cause, such as Ray's own.
    :param limit_s: after this long what is left is not read, and the explanation says so; None reads everything.
    :param processes: how many read at once, 0 for one a CPU and at most four.
    :raises NothingToRead: none of the paths has a log.
    """
    deadline = None if limit_s is None else time.monotonic() + limit_s
    logs = [*sources.collect(paths), *sources.beside(beside)]
    verdict = outcome.find_verdict(paths, logs)
    table = rules.load()
    scanned = scan.files(logs, table, deadline=deadline, processes=processes)
    return choice.explanation(scanned, verdict, table, outcome.hosts(paths), failed=failed)
