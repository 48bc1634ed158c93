"""`python -m tests.faults.table`: writes the matrix into docs/faults.md, between its two marks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.faults.kinds import KINDS, Kind
from tests.faults.outages import OUTAGES, Outage

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
BEGIN, END = "<!-- faults: begin -->\n", "<!-- faults: end -->\n"
OUTAGES_BEGIN, OUTAGES_END = "<!-- outages: begin -->\n", "<!-- outages: end -->\n"


def markdown(kinds: Iterable[Kind]) -> str:
    """Return the table of the matrix."""
    lines = [
        "| fault | code, stage | in | who sees it, by what | its line is in | state |",
        "|---|---|---|---|---|---|",
    ]
    for kind in kinds:
        stage, state = kind.stage.replace("|", " or "), kind.state.replace("|", " or ")
        if kind.job_code and kind.state == "FAILED":
            state += f" {kind.job_code}"
        limit = f"{kind.patience} + {kind.limit_s:.0f} s".removeprefix(" + ")
        lines.append(f"| {kind.fault} | {kind.code}, {stage} | {limit} | {kind.seen_by} | {kind.told} | {state} |")
    return "\n".join(lines) + "\n"


def survived(outages: Iterable[Outage]) -> str:
    """Return the table of what a training has to survive."""
    lines = ["| name | what comes and goes again | for | runtimes |", "|---|---|---|---|"]
    for outage in outages:
        lines.append(f"| {outage.name} | {outage.what} | {outage.lasts_s:.0f} s | {', '.join(outage.runtimes)} |")
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """Return the page with the tables as they are now."""
    page = _between(page, BEGIN, END, markdown(KINDS))
    return _between(page, OUTAGES_BEGIN, OUTAGES_END, survived(OUTAGES))


def _between(page: str, begin: str, end: str, text: str) -> str:
    before, _, rest = page.partition(begin)
    return before + begin + text + end + rest.partition(end)[2]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
