"""Compares the complaints of `pip check` before and after a build, by package and requirement; guard.py uses it.

A line of `pip check` also has the version that does not meet the requirement. A build may change that version, and the
same conflict then has another line.

Needs Python 3.8.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

_COMPLAINT = re.compile(
    r"(\S+) (\S+) (?:has requirement (.+), but you have \S+ \S+|requires (.+), which is not installed)\.$"
)


def canonical(name: str) -> str:
    """Normalize a package name by PEP 503, so that two spellings are one package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    """Return the package of a requirement line."""
    return canonical(re.split(r"[=\[ ;<>!~]", requirement, maxsplit=1)[0])


class Conflict(NamedTuple):
    """A package, and its requirement that nothing installed meets; without a specifier if the package is missing."""

    package: str
    version: str
    requirement: str
    line: str

    @classmethod
    def parse(cls, line: str) -> Conflict | None:
        """Parse a line of `pip check`, None if it is no such complaint.

        `a 1.0 has requirement b>=2, but you have b 1.0.` and `a 1.0 requires b, which is not installed.`
        """
        found = _COMPLAINT.match(line)
        return cls(canonical(found[1]), found[2], found[3] or canonical(found[4]), line) if found else None

    @property
    def required(self) -> str:
        """The required package."""
        return name_of(self.requirement)


def is_complaint(line: str) -> bool:
    """Whether a line of `pip check` is a conflict."""
    return Conflict.parse(line) is not None


def required_by(line: str) -> str:
    """Return the required package of a complaint of `pip check`."""
    return _parsed([line])[0].required


def new(lines: Iterable[str], before: Iterable[str]) -> list[str]:
    """Return the lines of conflicts that are not in ``before``.

    If a package was missing before, no version of it makes a new conflict.
    """
    known = {(each.package, each.requirement) for each in _parsed(before)}
    return [
        each.line
        for each in _parsed(lines)
        if not {(each.package, each.requirement), (each.package, each.required)} & known
    ]


def tolerated(line: str, pairs: Iterable[str]) -> bool:
    """Whether one of the pairs `package:requirement` is this conflict; a pair may be a regular expression."""
    (each,) = _parsed([line])
    names = f"{each.package}:{each.required}"
    return any(re.fullmatch(pair.lower().replace("_", "-"), names) for pair in pairs)


def explain(line: str, before: Mapping[str, str], now: Mapping[str, str], protected: Container[str]) -> str:
    """Return a new conflict with the package that caused it and the pin that would mend it.

    ``before`` and ``now`` are the versions of all packages by name.
    """
    (each,) = _parsed([line])
    required = each.required
    changed = each.package if before.get(each.package) != now.get(each.package) else required
    is_now = f"{changed} {now[changed]}" if changed in now else f"the removal of {changed}"
    cause = f"{is_now}, which this build installed" + (f" in place of {before[changed]}" if changed in before else "")
    exact = re.search(r"==([^,;* ]+)$", each.requirement)
    if required in protected:
        mend = f"{required} is protected, so choose another version of {each.package}"
    elif exact:
        mend = f'add {required} = "{exact[1]}" to `installs`, then `invoke image.lock`'
    else:
        mend = f"add a version of {required} that meets `{each.requirement}` to `installs`, then `invoke image.lock`"
    return (
        f"pip check: {line} The cause is {cause}. Mend: {mend}. If a source says that the two work together: "
        f'tolerates = ["{each.package}:{required}"].'
    )


def _parsed(lines: Iterable[str]) -> list[Conflict]:
    return [each for each in map(Conflict.parse, lines) if each]
