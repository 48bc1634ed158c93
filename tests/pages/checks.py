"""The tables of docs/checks.md."""

from __future__ import annotations

from collections.abc import Iterable

from verl_node.checks import CHECKS, __main__, cluster
from verl_node.checks.check import Check

from tests.pages import fill
from tests.support.paths import CHECKOUT

PAGE = CHECKOUT / "docs" / "checks.md"

_HEADINGS = ("| check | finds | class | limit | threshold |", "|---|---|---|---|---|")


def updated(page: str) -> str:
    """Return the page with the tables generated again."""
    login = [check for check in __main__.LOGIN if check.name.startswith("login.")]
    for name, table in {"node": _table(CHECKS), "login": _table(login), "nodes": _cluster_table()}.items():
        page = fill(page, name, table)
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
