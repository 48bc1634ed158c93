"""Whether everything that a variant takes from elsewhere is pinned: read from files alone, in less than a second.

A base by digest, Python packages and torch's wheel by sha256, git sources by their whole commit, the distribution's
packages by version and sha256. What cannot be known before somebody is asked (a registry, a mirror) is told and is no
mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from images.catalog import verl_releases
from images.catalog.catalog import Catalog
from images.catalog.spec import ImageSpec
from images.errors import ImageError, NotPinned
from images.host.paths import BASE_DIGESTS, BUILD_TOOLS
from images.pins import apt, bases, torch_wheels
from images.pins import locks as pins_locks

LINE = re.compile(rf"[a-z0-9-]+==\S+( --hash=sha256:[0-9a-f]{{64}})+(  {pins_locks.SDIST})?$")
PIN = re.compile(r"[a-z0-9.+-]+ \S+ [0-9a-f]{64}$")
COMMIT = re.compile(r"[0-9a-f]{40}$")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}$")


def check(catalog: Catalog) -> str:
    """What is pinned, and what is not known yet; NotPinned with everything that should be and is not."""
    specs = list(catalog.variants.values())
    if wrong := sorted({*_wrong(specs), *_left_over(specs)}):
        raise NotPinned(wrong)
    locks = {pins_locks.path(spec) for spec in specs}
    lines = sum(len(_lines(path)) for path in locks)
    names = {spec.base: spec.base_digest for spec in specs}
    counted = [
        f"{len(specs)} variants, {len(locks)} locks, {lines} packages by hash, "
        f"{sum(map(bool, names.values()))} of {len(names)} bases by digest, "
        f"{len({new.commit for spec in specs for new in spec.replaces.values()})} git sources by commit"
    ]
    return "\n".join([*counted, *dict.fromkeys(line for spec in specs for line in unknown(spec))])


def unknown(spec: ImageSpec) -> Iterator[str]:
    """What of a variant nobody could be asked for yet."""
    if not spec.base_digest:
        yield f"{spec.base}: digest unknown: no registry asked yet"
    if not apt.text(spec):
        suite, names = spec.apt_suites[0].split()[0], " ".join(spec.apt_packages)
        yield f"{suite} on {spec.machine}: versions of {names} unknown: no mirror asked yet"
    torch = spec.installs.get("torch")
    if torch and not torch_wheels.pinned(torch, spec.python, spec.machine):
        yield f"torch {torch} for Python {spec.python} on {spec.machine}: wheel unknown: no index asked yet"


def update(catalog: Catalog) -> Iterator[str]:
    """Ask everybody again, and tell what was written and what could not be had. The diff of images/ is the review."""
    specs = list(catalog.variants.values())
    for verl in sorted({spec.installs["verl"] for spec in specs}):
        yield str(verl_releases.update(verl))
    for reference, reason in bases.update(spec.base for spec in specs).items():
        yield f"{reference}: {reason}"
    yield str(BASE_DIGESTS)
    for spec in {apt.path(spec): spec for spec in specs}.values():
        try:
            yield str(apt.update(spec))
        except ImageError as failure:
            yield f"{apt.path(spec).name}: {failure}"
    for torch in sorted(
        {(spec.installs["torch"], spec.python, spec.machine) for spec in specs if "torch" in spec.installs}
    ):
        try:
            yield str(torch_wheels.update(*torch))
        except ImageError as failure:
            yield str(failure)
    yield from map(str, pins_locks.write_all(catalog))


def _wrong(specs: Iterable[ImageSpec]) -> Iterator[str]:
    yield from _unpinned(BUILD_TOOLS)
    for spec in specs:
        if spec.base_digest and not DIGEST.match(spec.base_digest):
            yield f"{spec.base}: {spec.base_digest!r} is no digest"
        for name, new in spec.replaces.items():
            if not COMMIT.match(new.commit):
                yield f"{spec.variant}: {name} is built from {new.commit!r}, which is not a whole commit"
        path = pins_locks.path(spec)
        if not path.is_file():
            yield f"{spec.variant}: {path.name} is missing: `invoke lock --variant {spec.variant}`"
            continue
        yield from _unpinned(path)
        text = apt.text(spec)
        if text and not apt.covers(spec):
            yield f"{apt.path(spec).name} lacks a package of {' '.join(spec.apt_packages)}: `invoke pins --update`"
        pins = [line for line in text.splitlines() if line and not line.startswith("#")]
        yield from (f"{apt.path(spec).name}: not by version and sha256: {line}" for line in pins if not PIN.match(line))


def _left_over(specs: Iterable[ImageSpec]) -> Iterator[str]:
    wanted = {pins_locks.path(spec) for spec in specs}
    for path in set(pins_locks.LOCKS.iterdir()) - wanted:
        yield f"{path.name} is the lock of no variant: `invoke lock` removes it"


def _unpinned(path: Path) -> Iterator[str]:
    yield from (f"{path.name}: not by version and sha256: {line}" for line in _lines(path) if not LINE.match(line))


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
