"""Check definitions, and their adjustment by VERLJOB_CHECKS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from verl_node.checks.result import Result
from verl_node.errors import BadSettings
from verl_node.settings.settings import Settings

OFF, WARN, FAIL = "off", "warn", "fail"
QUICK_S = 15.0
"""Longest time limit of a quick check, and of a node, since checks run in parallel."""
_RENAMED = {"places.places_have_room": "folders.folders_have_room"}
_RENAMED_GROUPS = {"places": "folders", "work": "gpu_work"}


@dataclass(frozen=True)
class Check:
    """One check of a node. A profile may replace ``threshold`` and ``severity``.

    Without a ``severity`` the result of ``run`` decides.
    """

    name: str
    about: str
    topic: str
    run: Callable[..., Result]
    limit_s: float
    threshold: float | None = None
    severity: str = ""
    deep: bool = False

    def __call__(self, settings: Settings, gpus: int) -> Result:
        """Run the check, with its threshold if it has one."""
        arguments = () if self.threshold is None else (self.threshold,)
        result = self.run(settings, gpus, *arguments)
        raised = self.severity == FAIL and result.severity == WARN
        lowered = self.severity == WARN and result.severity in (FAIL, "permission")
        return replace(result, severity=self.severity) if raised or lowered else result


def check(
    topic: str,
    *,
    group: str = "",
    limit_s: float = 5.0,
    threshold: float | None = None,
    severity: str = "",
    deep: bool = False,
) -> Callable[[Callable[..., Result]], Check]:
    """Make a check of ``name(settings, gpus[, threshold]) -> Result``; the first line of its docstring describes it.

    ``topic`` is the class of failure in the output of `invoke job.explain`. The check's name is ``group.name``; the
    group is by default the module.
    """

    def make_check(run: Callable[..., Result]) -> Check:
        name = f"{group or run.__module__.rpartition('.')[2]}.{run.__name__}"
        about = (run.__doc__ or "").splitlines()[0]
        return Check(name, about, topic, run, limit_s, threshold, severity, deep)

    return make_check


def replace_old_names(adjustments: str) -> tuple[str, list[str]]:
    """Return VERLJOB_CHECKS with current names, and a note for each name from before 0.2."""
    entries, notes = [], []
    for entry in adjustments.split():
        name, equals, value = entry.partition("=")
        group, _, function = name.partition(".")
        new = _RENAMED.get(name) or f"{_RENAMED_GROUPS.get(group, group)}.{function}"
        if group in _RENAMED_GROUPS:
            notes.append(f"VERLJOB_CHECKS: {name} was renamed to {new}; the old name ends with the next release")
            name = new
        entries.append(f"{name}{equals}{value}")
    return " ".join(entries), notes


def adjusted(checks: Mapping[str, Check], adjustments: str) -> list[Check]:
    """Return the checks with VERLJOB_CHECKS applied: blank-separated ``name=off|warn|fail|number``.

    Raises BadSettings for an unknown name or value.
    """
    found = dict(checks)
    for entry in adjustments.split():
        name, _, value = entry.partition("=")
        if name not in found:
            raise _invalid(entry, f"There is no check {name!r}; docs/checks.md lists them")
        if value == OFF:
            del found[name]
        else:
            found[name] = replace(found[name], **_change(found[name], entry, value))
    return list(found.values())


def _change(check: Check, entry: str, value: str) -> dict[str, Any]:
    if value in (WARN, FAIL):
        return {"severity": value}
    try:
        number = float(value)
    except ValueError:
        raise _invalid(entry, "Write NAME=off, warn, fail or a number") from None
    if check.threshold is None:
        raise _invalid(entry, f"{check.name} has no threshold: write off, warn or fail")
    return {"threshold": number}


def _invalid(entry: str, fix: str) -> BadSettings:
    return BadSettings(f"VERLJOB_CHECKS has the invalid entry {entry!r}.", fix=f"{fix}.")
