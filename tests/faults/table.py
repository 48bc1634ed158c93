"""`python -m tests.faults.table`: writes the matrix and what came of it into docs/faults.md, between their marks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.faults.kinds import KINDS, Kind
from tests.faults.outages import OUTAGES, Outage
from tests.support.paths import CHECKOUT

PAGE = CHECKOUT / "docs" / "faults.md"
BEGIN, END = "<!-- faults: begin -->\n", "<!-- faults: end -->\n"
SEEN = Path(__file__).with_name("seen.txt")
"""What `invoke dev.chaos` printed, of each runtime."""
RUNTIMES = ("docker", "podman", "bare")
SEEN_BEGIN, SEEN_END = "<!-- seen: begin -->\n", "<!-- seen: end -->\n"
OUTAGES_BEGIN, OUTAGES_END = "<!-- outages: begin -->\n", "<!-- outages: end -->\n"


def markdown(kinds: Iterable[Kind]) -> str:
    """Return the table of the matrix."""
    lines = [
        "| name | fault | code, stage | in | who sees it, by what | its line is in | state |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in kinds:
        stage, state = kind.stage.replace("|", " or "), kind.state.replace("|", " or ")
        if kind.job_code and kind.state == "FAILED":
            state += f" {kind.job_code}"
        limit = f"{kind.patience} + {kind.limit_s:.0f} s".removeprefix(" + ")
        words = (kind.name, kind.fault, f"{kind.code}, {stage}", limit, kind.seen_by, kind.told, state)
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines) + "\n"


def survived(outages: Iterable[Outage]) -> str:
    """Return the table of what a training has to survive."""
    lines = ["| name | what comes and goes again | for | runtimes |", "|---|---|---|---|"]
    for outage in outages:
        lines.append(f"| {outage.name} | {outage.what} | {outage.lasts_s:.0f} s | {', '.join(outage.runtimes)} |")
    return "\n".join(lines) + "\n"


def rows(printed: str) -> dict[tuple[str, str], str]:
    """Return the times of what passed, by name and runtime. Raises ValueError for one that is there twice."""
    fault = re.compile(r"(\S+) +(\S+) +\d+/\d+ +[A-Z_]+ +([\d.]+) +\d+ +([\d.]+)  pass")
    outage = re.compile(r"(\S+) +(\S+) +\S+ +\d+ s, \d more steps +([\d.]+) s later  pass")
    found: dict[tuple[str, str], str] = {}
    for line in printed.splitlines():
        matched = fault.fullmatch(line) or outage.fullmatch(line)
        if matched is None:
            continue
        name, runtime, *times = matched.groups()
        if (name, runtime) in found:
            raise ValueError(f"{name} is there twice for {runtime}")
        found[name, runtime] = " + ".join(times)
    return found


def seen(found: Mapping[tuple[str, str], str]) -> str:
    """Return the table of what came of every fault and outage."""
    lines = [f"| name | {' | '.join(RUNTIMES)} |", "|---|---|---|---|"]
    runtimes = {each.name: each.runtimes for each in KINDS} | {each.name: each.runtimes for each in OUTAGES}
    for name, its in runtimes.items():
        times = [found[name, runtime] if runtime in its else "" for runtime in RUNTIMES]
        lines.append(f"| {name} | {' | '.join(times)} |")
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """Return the page with the tables as they are now."""
    page = _between(page, BEGIN, END, markdown(KINDS))
    page = _between(page, SEEN_BEGIN, SEEN_END, seen(rows(SEEN.read_text())))
    return _between(page, OUTAGES_BEGIN, OUTAGES_END, survived(OUTAGES))


def _between(page: str, begin: str, end: str, text: str) -> str:
    before, _, rest = page.partition(begin)
    return before + begin + text + end + rest.partition(end)[2]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
