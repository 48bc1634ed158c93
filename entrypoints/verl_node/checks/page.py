"""`python3 -m verl_node.checks.page FILE`: writes the tables of docs/checks.md, between its markers."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from verl_node.checks import CHECKS, __main__, cluster
from verl_node.checks.check import Check

_HEADINGS = ("| check | finds | class | limit | threshold |", "|---|---|---|---|---|")


def written(page: str) -> str:
    """Return the page with the tables as they are now."""
    for name, text in {"node": _table(CHECKS), "login": _table(_login()), "nodes": _questions()}.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        before, _, rest = page.partition(begin)
        page = before + begin + text + end + rest.partition(end)[2]
    return page


def _login() -> list[Check]:
    return [check for check in __main__.LOGIN if check.name.startswith("login.")]


def _table(checks: Iterable[Check]) -> str:
    rows = [
        f"| {check.name}{' (deep)' if check.deep else ''} | {check.about} | {check.topic} | {check.limit_s:g} s | "
        f"{'' if check.threshold is None else f'{check.threshold:g}'} |"
        for check in checks
    ]
    return "\n".join([*_HEADINGS, *rows]) + "\n"


def _questions() -> str:
    rows = [
        f"| nodes.{question.__name__} | {(question.__doc__ or '').splitlines()[0]} |" for question in cluster.QUESTIONS
    ]
    return "\n".join(["| check | finds |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(written(file.read_text()))
