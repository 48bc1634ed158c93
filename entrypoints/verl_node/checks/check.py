"""The definition of a check, and VERLJOB_CHECKS, which adjusts checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from verl_node.checks.result import Result
from verl_node.errors import BadSettings
from verl_node.settings.settings import Settings

OFF, WARN, FAIL = "off", "warn", "fail"
QUICK_S = 15.0
"""The longest that a quick check may take: all run at once, so this is a node's time too."""
_RENAMED = {"places.places_have_room": "folders.folders_have_room"}
_RENAMED_MODULES = {"places": "folders", "work": "gpu_work"}


@dataclass(frozen=True)
class Check:
    """One question about this node. ``limit_s`` is its time; ``threshold`` and ``severity`` a profile may replace.

    Without a ``severity`` the answer itself says how much it weighs.
    """

    name: str
    about: str
    topic: str
    ask: Callable[..., Result]
    limit_s: float
    threshold: float | None = None
    severity: str = ""
    deep: bool = False

    def __call__(self, settings: Settings, gpus: int) -> Result:
        """Ask it, with its threshold where it has one."""
        more = () if self.threshold is None else (self.threshold,)
        result = self.ask(settings, gpus, *more)
        raised = self.severity == FAIL and result.severity == WARN
        lowered = self.severity == WARN and result.severity in (FAIL, "permission")
        return replace(result, severity=self.severity) if raised or lowered else result


def check(
    topic: str, *, limit_s: float = 5.0, threshold: float | None = None, severity: str = "", deep: bool = False
) -> Callable[[Callable[..., Result]], Check]:
    """Make a check of ``name(settings, gpus[, threshold]) -> Result``; its docstring's first line says what it is for.

    ``topic`` is the class of failure that it finds, in the words of `invoke job.explain`.
    """

    def declare(ask: Callable[..., Result]) -> Check:
        name = f"{ask.__module__.rpartition('.')[2]}.{ask.__name__}"
        about = (ask.__doc__ or "").splitlines()[0]
        return Check(name, about, topic, ask, limit_s, threshold, severity, deep)

    return declare


def renamed(words: str) -> tuple[str, list[str]]:
    """Return VERLJOB_CHECKS with the names that checks have now, and a line for each name of before 0.2."""
    now, notes = [], []
    for word in words.split():
        name, equals, value = word.partition("=")
        module, _, check_name = name.partition(".")
        new = _RENAMED.get(name) or f"{_RENAMED_MODULES.get(module, module)}.{check_name}"
        if module in _RENAMED_MODULES:
            notes.append(f"VERLJOB_CHECKS: {name} is called {new} now; the old name ends with the next release")
            name = new
        now.append(f"{name}{equals}{value}")
    return " ".join(now), notes


def adjusted(checks: Mapping[str, Check], words: str) -> list[Check]:
    """Return the checks as VERLJOB_CHECKS wants them: blank-separated ``name=off|warn|fail|number``.

    Raises BadSettings for a name or value that is none.
    """
    found = dict(checks)
    for word in words.split():
        name, _, value = word.partition("=")
        if name not in found:
            raise _bad(word, f"There is no check {name!r}; docs/checks.md lists them")
        if value == OFF:
            del found[name]
        else:
            found[name] = replace(found[name], **_change(found[name], word, value))
    return list(found.values())


def _change(of: Check, word: str, value: str) -> dict[str, Any]:
    if value in (WARN, FAIL):
        return {"severity": value}
    try:
        number = float(value)
    except ValueError:
        raise _bad(word, "Write NAME=off, warn, fail or a number") from None
    if of.threshold is None:
        raise _bad(word, f"{of.name} has no threshold: write off, warn or fail")
    return {"threshold": number}


def _bad(word: str, fix: str) -> BadSettings:
    return BadSettings(f"VERLJOB_CHECKS has {word!r}.", fix=f"{fix}.")
