"""`invoke profile`: what a site's profile passes to sbatch and to a job, each with its source, date and condition."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta

from slurm.jobs.profile import ORIGIN, Profile, Setting
from slurm.jobs.profile_check import applying_limits
from slurm.jobs.profile_flags import Flag, Request, flags

SCRIPT = "slurm/launch.sh"
OLD_DAYS = 365
WIDTH = 40


def text(profile: Profile, why: str, request: Request, today: date) -> str:
    """Return what would be passed to sbatch and to the job, the reasons, and the two lines to type."""
    passed = flags(profile, request, today)
    lines = [f"profile {profile.name} ({why}): {profile.get('', 'about')}", "", "to sbatch"]
    lines += _columns((flag.text, flag.why) for flag in passed)
    lines += _longest(profile, passed, request.nodes)
    lines += ["", "to the job"]
    lines += _columns(_settings(profile, request)) or ["  nothing"]
    lines = _number(lines, {profile.origin(table) for table in profile.tables if profile.sources(table)})
    if old := sorted({table.partition(".")[0] for table in profile.tables if _is_old(profile, table, today)}):
        lines += ["", f"older than a year: {', '.join(old)}; compare with the site's pages"]
    return "\n".join([*lines, "", f"export VERLJOB_PROFILE={shlex.quote(profile.name)}", command(passed)])


def command(passed: Iterable[Flag], recipe: str = "RECIPE") -> str:
    """Return the sbatch line, quoted for a shell; a value to fill in stays <name>."""
    words = [flag.text if "<" in flag.text else shlex.quote(flag.text) for flag in passed]
    return f"sbatch {' '.join(words)} {SCRIPT} {recipe}"


def _longest(profile: Profile, passed: Sequence[Flag], nodes: int) -> list[str]:
    for limit in applying_limits(profile, passed):
        if limit.nodes >= nodes:
            return [f"  {nodes} nodes: at most --time={limit.time} with {limit.flag}: {limit.origin}"]
    return []


def _settings(profile: Profile, request: Request) -> Iterator[tuple[str, str]]:
    for setting in profile.settings():
        yield (
            f"{setting.name}={setting.value}",
            f"{_state(setting, request)}; {setting.table}: {profile.origin(setting.table)}",
        )
    for key, value in profile.tables.get("container", {}).items():
        if key not in ORIGIN:
            yield f"{key}={value}", f"the container's start: {profile.origin('container')}"


def _state(setting: Setting, request: Request) -> str:
    if setting.name in request.environ:
        return f"your export wins, {shlex.quote(request.environ[setting.name])}"
    holds = setting.holds(request.nodes)
    return {"yes": "set", "no": f"not set, as {' and '.join(setting.when)} does not hold"}.get(holds, f"set {holds}")


def _columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    rows = list(rows)
    width = min(max((len(row[0]) for row in rows), default=0), WIDTH)
    return [f"  {first:{width}}  {second}" for first, second in rows]


def _number(lines: Sequence[str], origins: set[str]) -> list[str]:
    """Replace the origins in the lines by numbers, and list them at the end."""
    listed: list[str] = []
    numbered = []
    for line in lines:
        shown = line
        for origin in sorted(origins, key=len, reverse=True):
            if origin in shown:
                listed += [] if origin in listed else [origin]
                shown = shown.replace(origin, f"[{listed.index(origin) + 1}]")
        numbered.append(shown)
    return [*numbered, "", *(f"[{number}] {origin}" for number, origin in enumerate(listed, start=1))]


def _is_old(profile: Profile, table: str, today: date) -> bool:
    noted = profile.get(table, "date", None)
    return isinstance(noted, date) and today - noted > timedelta(days=OLD_DAYS)
