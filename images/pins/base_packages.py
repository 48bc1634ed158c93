"""Descriptions of base images, so that a variant can be checked against a base that is not on this machine.

images/pins/bases/ has for each base

<base>.toml        typed: Python, prefix, ENV, user, and the installing steps of its public Dockerfile, with sources
<base>.txt         written by `invoke image.pins --update`: every package that these steps leave, `name==version`; the
                   mark `# dated` means that no source names the version: pip would have installed it on that date

requirements.json and outside_index.toml have the Requires-Dist of these packages (images/pins/requirements.py).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from images.catalog.catalog import Catalog
from images.errors import CatalogError
from images.host.paths import BASES
from images.pins import requirements, resolver
from images.pins.requirements import Distribution

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DATED = "# dated"


@dataclass(frozen=True)
class Step:
    """One installing step of a Dockerfile, in this order."""

    removes: Sequence[str] = ()  # pip uninstall
    pip: Sequence[str] = ()  # from the index, with dependencies
    no_deps: Sequence[str] = ()  # from the index, without
    needs: Sequence[str] = ()  # requirements of packages of outside_index.toml
    made: Sequence[str] = ()  # packages of outside_index.toml, without dependencies


@dataclass(frozen=True)
class Base:
    """A base image, as far as public sources describe it. Its fields are the keys of its file."""

    name: str
    image: str
    system: str
    python: str
    prefix: str
    glibc: str
    date: str  # of the base; packages without a pinned version are those of that day
    sources: Sequence[str]
    steps: Sequence[Step]
    user: str = "root"
    below: str = ""  # description whose steps come first
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)  # local version labels of packages from another index
    uploaded_again: Sequence[str] = ()  # packages whose files in the index are newer than the base
    unknown: Sequence[str] = ()  # parts of the base that no source at hand describes

    @property
    def platform(self) -> str:
        """The base's machine and C library, as uv names them."""
        return f"x86_64-manylinux_{self.glibc}"


@cache
def read(folder: Path = BASES) -> dict[str, Base]:
    """Read the descriptions by base image; raise CatalogError for one that is not valid."""
    files = sorted(path for path in folder.glob("*.toml") if path.name != requirements.OUTSIDE_INDEX.name)
    found: dict[str, Base] = {}
    for path in files:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        try:
            steps = [Step(**step) for step in table.pop("steps")]
            base = Base(name=path.stem, steps=steps, **table)
        except (KeyError, TypeError) as error:
            keys = ", ".join(each.name for each in fields(Base))
            raise CatalogError(f"{path}: {error}; the keys of a description are {keys}") from error
        found[base.image] = base
    return found


def packages(base: Base, folder: Path = BASES) -> dict[str, Distribution]:
    """The packages of a base with their Requires-Dist, by canonical name."""
    pins = [line.split("==") for line in _lines(base, folder)]
    return {name: requirements.distribution(name, version.split()[0]) for name, version in pins}


def dated(base: Base, folder: Path = BASES) -> list[str]:
    """Packages of a base whose version no source names."""
    return [line.split("==")[0] for line in _lines(base, folder) if line.endswith(DATED)]


def summary(base: Base) -> str:
    """Report what is known of a base, in one line."""
    found, guessed = packages(base), dated(base)
    silent = sorted(name for name, each in found.items() if each.requires is None)
    parts = [f"{len(found)} packages", f"{len(found) - len(guessed)} versions by a source"]
    parts.append(f"{len(guessed)} guessed: those of {base.date}")
    if silent:
        parts.append(f"requirements unknown: {', '.join(silent)}")
    if base.unknown:
        parts.append(f"nothing known of {'; '.join(base.unknown)}")
    return f"{base.name}: {'incomplete' if base.unknown else 'complete'}: {', '.join(parts)}"


def report(catalog: Catalog) -> Iterator[str]:
    """Yield a line for each base of the GPU variants: what its description has, or that it has none."""
    described = read()
    for image in dict.fromkeys(each.base for each in catalog.variants.values() if not each.base_made):
        yield summary(described[image]) if image in described else f"{image}: not described in images/pins/bases/"


def indexed(image: str) -> dict[str, str]:
    """Name → version of a base's packages of which the index has a wheel; none of a base that is not described."""
    if image not in read():
        return {}
    pins, wheels = _indexed(_lines(read()[image], BASES)), requirements.stored()
    return {name: version for name, version in pins.items() if wheels.get(f"{name}=={version}") is not None}


def digest(image: str) -> str:
    """Digest of what is known of a base's packages, on which a lock depends; empty of a base that is not described."""
    return hashlib.sha256(repr(indexed(image)).encode()).hexdigest()[:12] if image in read() else ""


def environments(folder: Path = BASES) -> list[requirements.Environment]:
    """The packages of each base that the index has."""
    found = [(base, _indexed(_lines(base, folder))) for base in read(folder).values()]
    return [(base.python, base.platform, [f"{n}=={v}" for n, v in pins.items()]) for base, pins in found]


def update(folder: Path = BASES) -> Iterator[Path]:
    """Resolve each description again; yield the files."""
    described = read(folder)
    for base in described.values():
        yield write(base, {each.name: each for each in described.values()}, folder)


def write(base: Base, named: Mapping[str, Base], folder: Path = BASES) -> Path:
    """Carry out the steps of a description, each with the versions of its base's date; write the packages they leave."""
    versions: dict[str, str] = {}
    pinned: set[str] = set()
    for owner, step in _steps(base, named):
        _carry_out(step, owner, versions, pinned)
    for name, label in base.labels.items():
        versions[name] += label
    lines = [f"{name}=={version}{'' if name in pinned else f'  {DATED}'}" for name, version in sorted(versions.items())]
    path = folder / f"{base.name}.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _steps(base: Base, named: Mapping[str, Base]) -> Iterator[tuple[Base, Step]]:
    """Yield the steps with their base: one below was built on its own date."""
    if base.below:
        yield from _steps(named[base.below], named)
    yield from ((base, step) for step in base.steps)


def _carry_out(step: Step, base: Base, versions: dict[str, str], pinned: set[str]) -> None:
    for name in step.removes:
        versions.pop(canonicalize_name(name), None)
        pinned.discard(canonicalize_name(name))
    needed = [line for pin in step.needs for line in requirements.outside_index()[pin]["requires"]]
    for wanted, flags in (([*step.pip, *needed], []), (step.no_deps, ["--no-deps"])):
        if wanted:
            found = _resolve(base, wanted, versions, flags)
            pinned -= {name for name, version in found.items() if versions.get(name) != version}
            pinned |= {canonicalize_name(each.name) for each in map(Requirement, wanted) if "==" in str(each.specifier)}
            versions.update(found)
    for pin in step.made:
        name, version = pin.split("==")
        versions[canonicalize_name(name)] = version
        pinned.add(canonicalize_name(name))


def _resolve(base: Base, wanted: Sequence[str], versions: Mapping[str, str], flags: Sequence[str]) -> dict[str, str]:
    """Return the versions that pip would install: present ones are kept if they fit, others are of the base's date."""
    # Packages from elsewhere are present; pip does not resolve their requirements here.
    elsewhere = [name for name, version in versions.items() if f"{name}=={version}" in requirements.outside_index()]
    again = [flag for name in base.uploaded_again for flag in ("--exclude-newer-package", f"{name}=false")]
    return resolver.versions(
        (base.python, base.platform),
        wanted,
        {name: version for name, version in versions.items() if name not in elsewhere},
        overrides=[f"{name}; sys_platform == 'never'" for name in elsewhere],
        flags=["--exclude-newer", base.date, *again, *flags],
    )


def _lines(base: Base, folder: Path) -> list[str]:
    return (folder / f"{base.name}.txt").read_text(encoding="utf-8").splitlines()


def _indexed(lines: Iterable[str]) -> dict[str, str]:
    """Name → version of the packages that the index has, without local labels."""
    pins = [line.split()[0] for line in lines]
    return dict(pin.partition("+")[0].split("==") for pin in pins if pin not in requirements.outside_index())
