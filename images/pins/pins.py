"""Checks that everything a build downloads is pinned; reads files only.

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
from images.catalog.variant import Variant
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
    variants = list(catalog.variants.values())
    if wrong := sorted({*_wrong(variants), *_left_over(variants)}):
        raise NotPinned(wrong)
    locks = {pins_locks.path(variant) for variant in variants}
    lines = sum(len(_lines(path)) for path in locks)
    names = {variant.base: variant.base_digest for variant in variants}
    counted = [
        f"{len(variants)} variants, {len(locks)} locks, {lines} packages by hash, "
        f"{sum(map(bool, names.values()))} of {len(names)} bases by digest, "
        f"{len({new.commit for variant in variants for new in variant.replaces.values()})} git sources by commit"
    ]
    return "\n".join([*counted, *dict.fromkeys(line for variant in variants for line in unknown(variant))])


def unknown(variant: Variant) -> Iterator[str]:
    """What of a variant nobody could be asked for yet."""
    if not variant.base_digest:
        yield f"{variant.base}: digest unknown: no registry asked yet"
    if not apt.text(variant):
        suite, names = variant.apt_suites[0].split()[0], " ".join(variant.apt_packages)
        yield f"{suite} on {variant.machine}: versions of {names} unknown: no mirror asked yet"
    torch = variant.installs.get("torch")
    if torch and not torch_wheels.pinned(torch, variant.python, variant.machine):
        yield f"torch {torch} for Python {variant.python} on {variant.machine}: wheel unknown: no index asked yet"


def update(catalog: Catalog) -> Iterator[str]:
    """Ask everybody again, and tell what was written and what could not be had. The diff of images/ is the review."""
    variants = list(catalog.variants.values())
    for verl in sorted({variant.installs["verl"] for variant in variants}):
        yield str(verl_releases.update(verl))
    for reference, reason in bases.update(variant.base for variant in variants).items():
        yield f"{reference}: {reason}"
    yield str(BASE_DIGESTS)
    for variant in {apt.path(variant): variant for variant in variants}.values():
        try:
            yield str(apt.update(variant))
        except ImageError as failure:
            yield f"{apt.path(variant).name}: {failure}"
    for torch in sorted(
        {
            (variant.installs["torch"], variant.python, variant.machine)
            for variant in variants
            if "torch" in variant.installs
        }
    ):
        try:
            yield str(torch_wheels.update(*torch))
        except ImageError as failure:
            yield str(failure)
    yield from map(str, pins_locks.write_all(catalog))


def _wrong(variants: Iterable[Variant]) -> Iterator[str]:
    yield from _unpinned(BUILD_TOOLS)
    for variant in variants:
        if variant.base_digest and not DIGEST.match(variant.base_digest):
            yield f"{variant.base}: {variant.base_digest!r} is no digest"
        for name, new in variant.replaces.items():
            if not COMMIT.match(new.commit):
                yield f"{variant.name}: {name} is built from {new.commit!r}, which is not a whole commit"
        path = pins_locks.path(variant)
        if not path.is_file():
            yield f"{variant.name}: {path.name} is missing: `invoke image.lock --variant {variant.name}`"
            continue
        yield from _unpinned(path)
        text = apt.text(variant)
        if text and not apt.covers(variant):
            wanted = " ".join(variant.apt_packages)
            yield f"{apt.path(variant).name} lacks a package of {wanted}: `invoke image.pins --update`"
        pins = [line for line in text.splitlines() if line and not line.startswith("#")]
        yield from (
            f"{apt.path(variant).name}: not by version and sha256: {line}" for line in pins if not PIN.match(line)
        )


def _left_over(variants: Iterable[Variant]) -> Iterator[str]:
    wanted = {pins_locks.path(variant) for variant in variants}
    for path in set(pins_locks.LOCKS.iterdir()) - wanted:
        yield f"{path.name} is the lock of no variant: `invoke image.lock` removes it"


def _unpinned(path: Path) -> Iterator[str]:
    yield from (f"{path.name}: not by version and sha256: {line}" for line in _lines(path) if not LINE.match(line))


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
