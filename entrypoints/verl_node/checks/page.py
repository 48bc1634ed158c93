"""`python3 -m verl_node.checks.page FILE`: writes the tables of docs/checks.md, between its markers."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from verl_node.checks import CHECKS, __main__, cluster
from verl_node.checks.check import Check

_HEADINGS = ("| check | finds | class | limit | threshold |", "|---|---|---|---|---|")


def updated(page: str) -> str:
    """Return the page with the tables generated again."""
    login = [check for check in __main__.LOGIN if check.name.startswith("login.")]
    for name, table in {"node": _table(CHECKS), "login": _table(login), "nodes": _cluster_table()}.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        before, _, rest = page.partition(begin)
        page = before + begin + table + end + rest.partition(end)[2]
    return page


def _table(checks: Iterable[Check]) -> str:
    rows = [
        f"| {check.name}{' (deep)' if check.deep else ''} | {check.about} | {check.topic} | {check.limit_s:g} s | "
        f"{'' if check.threshold is None else f'{check.threshold:g}'} |"
        for check in checks
    ]
    return "\n".join([*_HEADINGS, *rows]) + "\n"


def _cluster_table() -> str:
    rows = [f"| nodes.{check.__name__} | {(check.__doc__ or '').splitlines()[0]} |" for check in cluster.COMPARISONS]
    return "\n".join(["| check | finds |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(updated(file.read_text()))
