"""Requires-Dist of distributions by name and version, and the conflicts between distributions.

images/pins/bases/requirements.json has them for every package of a described base and of a lock, from the METADATA of the
wheels in the package index; outside_index.toml, which is typed, those of packages that no index has. A line with an `extra`
marker is left out, as `pip check` ignores it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cache
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from images.errors import ImageError
from images.host.paths import BASES
from images.pins import locks

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REQUIREMENTS = BASES / "requirements.json"
OUTSIDE_INDEX = BASES / "outside_index.toml"
TIMEOUT_S = 60
DOWNLOADS = 16


@dataclass(frozen=True)
class Distribution:
    """An installed package; ``requires`` is None if no source has its Requires-Dist."""

    name: str
    version: str
    requires: Sequence[str] | None = ()


@cache
def outside_index() -> dict[str, dict[str, Any]]:
    """Requires-Dist and source of packages that no index has, by `name==version`."""
    return tomllib.loads(OUTSIDE_INDEX.read_text(encoding="utf-8"))


@cache
def stored(path: Path = REQUIREMENTS) -> dict[str, list[str] | None]:
    """Requires-Dist by `name==version`, as the package index had it; None for a package that has only a source."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def distribution(name: str, version: str) -> Distribution:
    """Return a distribution with its Requires-Dist; a local version label has those of the public version."""
    name = canonicalize_name(name)
    for key in (f"{name}=={version}", f"{name}=={version.partition('+')[0]}"):
        if key in outside_index():
            return Distribution(name, version, outside_index()[key].get("requires"))
        if key in stored():
            return Distribution(name, version, stored()[key])
    raise ImageError(
        f"images/pins/bases/ has no Requires-Dist of {name}=={version}: `invoke image.pins --update` fetches those of "
        "described bases and of locks; a package that is in no index needs a table in outside_index.toml"
    )


def conflicts(installed: Mapping[str, Distribution], python: str, machine: str = "x86_64") -> list[str]:
    """Return the lines that `pip check` prints for these distributions, on Linux with this Python."""
    lines = []
    for each in installed.values():
        for text in each.requires or ():
            name, specifier = _parsed(text, python, machine)
            if not name:
                continue
            found = installed.get(name)
            if found is None:
                lines.append(f"{each.name} {each.version} requires {_bare_name(text)}, which is not installed.")
            elif not _fits(specifier, found.version):
                lines.append(
                    f"{each.name} {each.version} has requirement {_without_marker(text)}, "
                    f"but you have {found.name} {found.version}."
                )
    return lines


@cache
def _parsed(text: str, python: str, machine: str) -> tuple[str, str]:
    """Name and version range of a requirement; an empty name if it does not apply to this Python and machine."""
    requirement = Requirement(text)
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.20",
        "implementation_version": f"{python}.20",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": machine,
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "extra": "",
    }
    if requirement.marker and not requirement.marker.evaluate(environment):
        return "", ""
    return canonicalize_name(requirement.name), str(requirement.specifier)


@cache
def _fits(specifier: str, version: str) -> bool:
    return Requirement(f"x{specifier}").specifier.contains(version, prereleases=True)


@cache
def _bare_name(text: str) -> str:
    return Requirement(text).name


@cache
def _without_marker(text: str) -> str:
    requirement = Requirement(text)
    requirement.marker = None
    return str(requirement)


def update(pins: Mapping[tuple[str, str], Iterable[str]], path: Path = REQUIREMENTS) -> Path:
    """Fetch what is not stored of ``pins``: `name==version` lines by Python and platform; remove all others."""
    known = stored(path) if path.is_file() else {}
    kept: dict[str, list[str] | None] = {}
    for (python, platform), lines in pins.items():
        wanted = sorted(set(lines))
        missing = [line for line in wanted if line not in known and line not in kept]
        kept.update({line: known[line] for line in wanted if line in known})
        packages = locks.resolve({"python": python, "platform": platform, "override": []}, missing, [], ["--no-deps"])
        with ThreadPoolExecutor(DOWNLOADS) as pool:
            for package, found in zip(packages, pool.map(_fetch, packages)):
                kept[f"{canonicalize_name(package['name'])}=={package['version']}"] = found
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(kept.items())]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    stored.cache_clear()
    return path


def _fetch(package: Mapping[str, Any]) -> list[str] | None:
    """Fetch Requires-Dist of a package of a resolved lock from the METADATA beside its wheel (PEP 658)."""
    import requests  # which the other tasks do not load

    wheels = package.get("wheels")
    if not wheels:
        return None
    answer = requests.get(f"{wheels[0]['url']}.metadata", timeout=TIMEOUT_S)
    if not answer.ok:
        raise ImageError(f"{wheels[0]['url']}.metadata: {answer.status_code} {answer.reason}")
    return [line for line in HeaderParser().parsestr(answer.text).get_all("Requires-Dist", []) if _counts(line)]


def _counts(line: str) -> bool:
    """Whether `pip check` considers a line of METADATA."""
    try:
        marker = Requirement(line).marker
    except InvalidRequirement:
        return False
    return "extra" not in str(marker)
