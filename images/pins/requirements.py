"""Requires-Dist of distributions by name and version, and the conflicts between distributions.

images/pins/bases/requirements.json has them for every package of a described base and of a lock, from the METADATA of
the wheels in the package index; outside_index.toml, which is typed, those of packages that no index has. A line with an
`extra` marker is left out, as `pip check` ignores it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from images.errors import ImageError
from images.host.paths import BASES
from images.pins import resolver

if TYPE_CHECKING:
    from requests import Session

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REQUIREMENTS = BASES / "requirements.json"
OUTSIDE_INDEX = BASES / "outside_index.toml"
TIMEOUT_S = 60
ZIP_DIRECTORY_BYTES = 4 << 20
ZIP_HEADER_BYTES = 1 << 16
METADATA_BYTES = 4 << 20
ANSWER_BYTES = ZIP_DIRECTORY_BYTES + METADATA_BYTES
DOWNLOADS = 16
Environment = tuple[str, str, Sequence[str]]  # Python, platform, and the `name==version` of one environment


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


def update(environments: Iterable[Environment], path: Path = REQUIREMENTS) -> Path:
    """Fetch what is not stored of the packages of environments, and remove all others."""
    known = stored(path) if path.is_file() else {}
    kept: dict[str, list[str] | None] = {}
    for python, platform, pins in environments:
        kept.update({pin: known[pin] for pin in pins if pin in known})
        if missing := [pin for pin in pins if pin not in kept]:
            packages = resolver.packages((python, platform), missing, flags=["--no-deps"])
            with ThreadPoolExecutor(DOWNLOADS) as pool:
                found = list(pool.map(_fetch, packages))
            names = [f"{canonicalize_name(package['name'])}=={package['version']}" for package in packages]
            kept.update(zip(names, found))
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(kept.items())]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    stored.cache_clear()
    return path


def _fetch(package: Mapping[str, Any]) -> list[str] | None:
    """Fetch Requires-Dist of a package of a resolved lock; None if it has no wheel."""
    if not (wheels := package.get("wheels")):
        return None
    text = HeaderParser().parsestr(_metadata(wheels[0]["url"]))
    return [line for line in text.get_all("Requires-Dist", []) if _counts(line)]


@cache
def _session() -> Session:
    """Connections to the index, which all downloads share."""
    import requests  # which the other tasks do not load

    session = requests.Session()
    session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=DOWNLOADS))
    return session


def _metadata(url: str) -> str:
    """Fetch METADATA: the file beside the wheel (PEP 658), else out of the wheel by range requests."""
    if beside := _bytes(f"{url}.metadata", allowed=(404,)):
        return beside.decode("utf-8")
    answer = _session().head(url, timeout=TIMEOUT_S)
    size = int(answer.headers.get("Content-Length", 0)) if answer.ok else 0
    # A file with holes: zipfile reads the directory at the end, then the one member, which are fetched alone.
    with tempfile.TemporaryFile() as file:

        def fetch(start: int, stop: int) -> None:
            content = _bytes(url, {"Range": f"bytes={start}-{stop}"}, expected=206)
            file.seek(start)
            file.write(content)

        fetch(max(0, size - ZIP_DIRECTORY_BYTES), size - 1)
        try:
            with zipfile.ZipFile(file) as wheel:
                member = next(each for each in wheel.infolist() if each.filename.endswith(".dist-info/METADATA"))
                stop = member.header_offset + member.compress_size + ZIP_HEADER_BYTES
                fetch(member.header_offset, min(stop, size) - 1)
                with wheel.open(member) as content:
                    return content.read(METADATA_BYTES).decode("utf-8")
        except (zipfile.BadZipFile, StopIteration) as error:
            raise ImageError(f"{url} is no wheel with METADATA: {error}") from error


def _bytes(
    url: str, headers: Mapping[str, str] | None = None, expected: int = 200, allowed: Sequence[int] = ()
) -> bytes:
    """Fetch at most ANSWER_BYTES; nothing for a status that is ``allowed``, ImageError for any other one."""
    with _session().get(url, headers=headers, timeout=TIMEOUT_S, stream=True) as answer:
        if answer.status_code in allowed:
            return b""
        if answer.status_code != expected:
            raise ImageError(f"{url}: the index answered {answer.status_code}, expected {expected}")
        content = bytearray()
        for chunk in answer.iter_content(1 << 16):
            content += chunk
            if len(content) > ANSWER_BYTES:
                raise ImageError(f"{url}: the index sends more than {ANSWER_BYTES} bytes")
        return bytes(content)


def _counts(line: str) -> bool:
    """Whether `pip check` considers a line of METADATA."""
    try:
        marker = Requirement(line).marker
    except InvalidRequirement:
        return False
    return "extra" not in str(marker)
