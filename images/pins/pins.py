"""Checks that everything a build downloads is pinned, and updates the pins; the check only reads files.

Bases are pinned by digest, Python packages and torch's wheel by sha256, git sources by their full commit, the
distribution's packages by version and sha256. Pins that need a registry or mirror that was never queried are listed,
and are no error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from images.catalog import verl_releases
from images.catalog.catalog import Catalog, PinnedBase, read_bases
from images.catalog.variant import Variant
from images.errors import ImageError, NotPinned, RegistryFailed
from images.host.paths import BASE_DIGESTS, BUILD_TOOLS
from images.pins import apt, base_packages, locks, requirements, torch_wheels, verl_python

LOCK_LINE = re.compile(rf"[a-z0-9-]+==\S+( --hash=sha256:[0-9a-f]{{64}})+(  {locks.SDIST})?$")
APT_LINE = re.compile(r"[a-z0-9.+-]+ \S+ [0-9a-f]{64}$")
COMMIT = re.compile(r"[0-9a-f]{40}$")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}$")


def check(catalog: Catalog) -> str:
    """Return a summary and the unknown pins; raise NotPinned with everything that has to be pinned and is not."""
    variants = list(catalog.variants.values())
    if wrong := sorted({*_unpinned(variants), *_stale_locks(variants)}):
        raise NotPinned(wrong)
    paths = {locks.path(variant) for variant in variants}
    lines = sum(len(_lines(path)) for path in paths)
    bases = {variant.base: variant.base_digest for variant in variants}
    summary = (
        f"{len(variants)} variants, {len(paths)} locks, {lines} packages by hash, "
        f"{sum(map(bool, bases.values()))} of {len(bases)} bases by digest, "
        f"{len({new.commit for variant in variants for new in variant.replaces.values()})} git sources by commit"
    )
    unknown = dict.fromkeys(line for variant in variants for line in _unknown(variant))
    return "\n".join([summary, *unknown, *base_packages.report(catalog)])


def _unknown(variant: Variant) -> Iterator[str]:
    """Name the pins of a variant that nothing was queried for yet."""
    if not variant.base_digest:
        yield f"{variant.base}: digest unknown: registry not queried yet"
    if not apt.text(variant):
        suite, names = variant.apt_suites[0].split()[0], " ".join(variant.apt_packages)
        yield f"{suite} on {variant.machine}: versions of {names} unknown: mirror not queried yet"
    torch = variant.cpu_torch
    if torch and not torch_wheels.pinned(torch, variant.python, variant.machine):
        yield f"torch {torch} for Python {variant.python} on {variant.machine}: wheel unknown: index not queried yet"


def update(catalog: Catalog) -> Iterator[str]:
    """Query every index, registry and mirror; yield the written files and the failures. Review the diff of images/."""
    variants = list(catalog.variants.values())
    for verl in sorted({variant.installs["verl"] for variant in variants}):
        yield str(verl_releases.update(verl))
    yield str(verl_python.update({variant.python for variant in variants}))
    for reference, reason in update_bases(variant.base for variant in variants).items():
        yield f"{reference}: {reason}"
    yield str(BASE_DIGESTS)
    for variant in {apt.path(variant): variant for variant in variants}.values():
        try:
            yield str(apt.update(variant))
        except ImageError as failure:
            yield f"{apt.path(variant).name}: {failure}"
    with_torch = [variant for variant in variants if variant.cpu_torch]
    for torch in sorted({(each.cpu_torch, each.python, each.machine) for each in with_torch}):
        try:
            yield str(torch_wheels.update(*torch))
        except ImageError as failure:
            yield str(failure)
    yield from map(str, base_packages.update())
    requirements.update(base_packages.environments())
    yield from map(str, locks.write_all(catalog))
    yield str(locks.update_requirements(catalog))


def update_bases(references: Iterable[str], path: Path = BASE_DIGESTS) -> dict[str, str]:
    """Write the digests of base images; return the failures by reference. A silent registry is queried only once."""
    bases, failed, silent = read_bases(path), dict[str, str](), dict[str, str]()
    for reference in sorted(set(references)):
        host = reference.partition("/")[0]
        try:
            if host in silent:
                raise RegistryFailed(silent[host])
            bases[reference] = query_base(reference)
        except RegistryFailed as failure:
            failed[reference] = str(failure)
            if "does not answer" in str(failure):
                silent[host] = str(failure)
    text = json.dumps({reference: asdict(base) for reference, base in sorted(bases.items())}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    return failed


def query_base(reference: str) -> PinnedBase:
    """Return a base's digest (the index's, if it has several machines) and compression, from its registry."""
    from images.registry.client import Repository  # docker-py and requests, which the other tasks do not load

    repository, tag = Repository.parse(reference)
    with repository:
        manifest = repository.manifest(tag)
        if manifest is None:
            raise RegistryFailed(f"{reference}: the registry has no such tag")
        image = repository.image_manifest(manifest.digest) or manifest
    media_types = {layer.get("mediaType", "") for layer in image.parsed.get("layers", [])}
    compression = "zstd" if any(media_type.endswith("zstd") for media_type in media_types) else "gzip"
    return PinnedBase(manifest.digest, compression, f"{repository.host}, queried by invoke image.pins --update")


def _unpinned(variants: Iterable[Variant]) -> Iterator[str]:
    yield from _unhashed(BUILD_TOOLS)
    for variant in variants:
        if variant.base_digest and not DIGEST.match(variant.base_digest):
            yield f"{variant.base}: {variant.base_digest!r} is not a digest"
        for name, new in variant.replaces.items():
            if not COMMIT.match(new.commit):
                yield f"{variant.name}: {name} is built from {new.commit!r}, which is not a full commit hash"
        path = locks.path(variant)
        if not path.is_file():
            yield f"{variant.name}: {path.name} is missing: `invoke image.lock --variant {variant.name}`"
            continue
        yield from _unhashed(path)
        pins = apt.text(variant)
        if pins and not apt.covers(variant):
            packages = " ".join(variant.apt_packages)
            yield f"{apt.path(variant).name} does not pin every package of {packages}: `invoke image.pins --update`"
        lines = [line for line in pins.splitlines() if line and not line.startswith("#")]
        for line in lines:
            if not APT_LINE.match(line):
                yield f"{apt.path(variant).name}: not by version and sha256: {line}"


def _stale_locks(variants: Iterable[Variant]) -> Iterator[str]:
    for path in set(locks.LOCKS.iterdir()) - {locks.path(variant) for variant in variants}:
        yield f"{path.name} is the lock of no variant: `invoke image.lock` removes it"


def _unhashed(path: Path) -> Iterator[str]:
    yield from (f"{path.name}: not by version and sha256: {line}" for line in _lines(path) if not LOCK_LINE.match(line))


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
