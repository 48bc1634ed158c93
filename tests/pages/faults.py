"""The tables of docs/faults.md: the matrix and its measured times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tests.faults.kinds import KINDS, Kind
from tests.faults.outages import OUTAGES, Outage
from tests.pages import fill
from tests.support.paths import CHECKOUT

PAGE = CHECKOUT / "docs" / "faults.md"
SEEN = CHECKOUT / "tests" / "faults" / "seen.txt"
"""Output of `invoke dev.chaos` for each runtime."""
RUNTIMES = ("docker", "podman", "bare")


def markdown(kinds: Iterable[Kind]) -> str:
    """Format the table of faults."""
    lines = [
        "| name | fault | code, stage | within | detected by | reported in | state |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in kinds:
        stage, state = kind.stage.replace("|", " or "), kind.state.replace("|", " or ")
        if kind.job_code and kind.state == "FAILED":
            state += f" {kind.job_code}"
        limit = f"{kind.patience} + {kind.limit_s:.0f} s".removeprefix(" + ")
        cells = (kind.name, kind.fault, f"{kind.code}, {stage}", limit, kind.seen_by, kind.reported_in, state)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def survived(outages: Iterable[Outage]) -> str:
    """Format the table of outages."""
    lines = ["| name | outage | lasts | runtimes |", "|---|---|---|---|"]
    for outage in outages:
        lines.append(
            f"| {outage.name} | {outage.description} | {outage.lasts_s:.0f} s | {', '.join(outage.runtimes)} |"
        )
    return "\n".join(lines) + "\n"


def rows(printed: str) -> dict[tuple[str, str], str]:
    """Parse the times of faults and outages that passed, by name and runtime. Raises ValueError for duplicates."""
    fault = re.compile(r"(\S+) +(\S+) +\d+/\d+ +[A-Z_]+ +([\d.]+) +\d+ +([\d.]+)  pass")
    outage = re.compile(r"(\S+) +(\S+) +\S+ +\d+ s, \d more steps +([\d.]+) s later  pass")
    times_by_name: dict[tuple[str, str], str] = {}
    for line in printed.splitlines():
        matched = fault.fullmatch(line) or outage.fullmatch(line)
        if matched is None:
            continue
        name, runtime, *times = matched.groups()
        if (name, runtime) in times_by_name:
            raise ValueError(f"{SEEN.name} has {name} twice for {runtime}")
        times_by_name[name, runtime] = " + ".join(times)
    return times_by_name


def seen(measured: Mapping[tuple[str, str], str]) -> str:
    """Format the table of measured times of every fault and outage."""
    lines = [f"| name | {' | '.join(RUNTIMES)} |", "|---|---|---|---|"]
    runtimes = {kind.name: kind.runtimes for kind in KINDS} | {outage.name: outage.runtimes for outage in OUTAGES}
    for name, supported in runtimes.items():
        times = [measured[name, runtime] if runtime in supported else "" for runtime in RUNTIMES]
        lines.append(f"| {name} | {' | '.join(times)} |")
    return "\n".join(lines) + "\n"


def updated(page: str) -> str:
    """Return the page with current tables."""
    tables = {"faults": markdown(KINDS), "seen": seen(rows(SEEN.read_text())), "outages": survived(OUTAGES)}
    for name, table in tables.items():
        page = fill(page, name, table)
    return page
