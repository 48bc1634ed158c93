"""Lock files: every package that a variant installs, by version and sha256, for its Python and machine.

A lock has no protected package and nothing that only those need (nvidia-*): both come with the base, or with torch's
CPU wheel. Only a variant of wheels alone (`Variant.from_wheels`) has them all in its lock.
Other packages of the base keep the base's version if that fits (dockerfiles/guard.py), so on a GPU base most lines have
no effect; on a bare base they are the whole environment. Variants with the same inputs share a lock, whose
name has a digest of the inputs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.host.paths import LOCKS
from images.pins import base_packages, requirements, resolver

SDIST = "# sdist"  # ends the line of a package without a wheel: dockerfiles/guard.py builds nothing else
RESOLVERS = 8  # they mostly wait for the index
CUDA_NAMES = ("nvidia-", "cuda-", "triton")
# The last one, which is built for one torch, has a file build_backend.py beside its package, and so has
# flashinfer-python: the guard would report that it was overwritten if it came first.
TORCH_NAMES = ("torch", "torchvision", "torchaudio", "torch-c-dlpack-ext")
# glibc of a distribution, which limits the wheels that it can load, for uv's --python-platform.
GLIBC = {"focal": "2_31", "jammy": "2_35", "bookworm": "2_36", "noble": "2_39"}


def inputs(variant: Variant) -> dict[str, Any]:
    """Return all that a lock depends on, except for the content of the package index."""
    of_base = [] if variant.from_wheels else ["torch", *variant.guarded]
    engine = [variant.rollout] if variant.platform == "cuda" else []  # an index only has engines for CUDA
    described = base_packages.digest(variant.base)
    given = {
        "python": variant.python,
        "platform": f"{variant.machine}-manylinux_{GLIBC[variant.apt_suites[0].split()[0]]}",
        "requested": sorted(
            [variant.requirement(name) for name in variant.installs if name != "torch"]
            + [requirement for new in variant.replaces.values() for requirement in new.requires]
        ),
        "resolved with": sorted(
            [f"{name}=={variant.has[name]}" for name in engine if name in variant.has] + [*variant.lock.with_]
        ),
        "base": [
            f"{name}=={variant.pins[name]}" for name in ("torch", "transformers") if name in {*variant.has, "torch"}
        ],
        "override": sorted(variant.lock.override),
        "left to the base": sorted({*of_base, *map(canonicalize_name, variant.lock.omit), *variant.replaces}),
    }
    return {**given, "described base": described} if described else given


def path(variant: Variant, folder: Path | None = None) -> Path:
    """Return the file of a variant's lock."""
    digest = hashlib.sha256(json.dumps(inputs(variant), sort_keys=True).encode()).hexdigest()[:6]
    verl, torch = variant.installs["verl"], variant.pins["torch"]
    return (folder or LOCKS) / f"verl{verl}-py{variant.python}-torch{torch}-{variant.machine}-{digest}.txt"


def write(variant: Variant, folder: Path = LOCKS) -> Path:
    """Resolve and write a variant's lock; needs uv and a package index."""
    given = inputs(variant)
    target, overrides = (given["python"], given["platform"]), given["override"]
    # First with all packages of the base, so that the versions fit it; then without, so that only ours are listed. The
    # base's versions are preferred: newer ones would move others of the base with them (OpenTelemetry's do).
    wanted = [*given["requested"], *given["resolved with"], *given["base"]]
    together = resolver.versions(target, wanted, base_packages.indexed(variant.base), overrides=overrides)
    constraints = [f"{name}=={version}" for name, version in together.items()]
    ours = resolver.packages(
        target, [*given["requested"], *given["base"][:1]], constraints=constraints, overrides=overrides
    )
    file = path(variant, folder)
    head = [f"# {key}: {value if isinstance(value, str) else ' '.join(value)}" for key, value in given.items()]
    file.write_text("\n".join([*head, *_lines(given, ours)]) + "\n", encoding="utf-8")
    return file


def write_all(catalog: Catalog, folder: Path = LOCKS) -> list[Path]:
    """Resolve every lock, and remove those of no variant."""
    variants = list({path(variant, folder): variant for variant in catalog.variants.values()}.values())
    with ThreadPoolExecutor(RESOLVERS) as pool:
        written = list(pool.map(lambda variant: write(variant, folder), variants))
    for stale in set(folder.glob("*.txt")) - set(written):
        stale.unlink()
    return written


def _lines(given: dict[str, Any], packages: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each package that the base does not provide: version, and hashes of the files that fit."""
    left = given["left to the base"]
    for package in packages:
        name = canonicalize_name(package["name"])
        if name in left or ("torch" in left and name.startswith(CUDA_NAMES)):
            continue
        wheels = package.get("wheels")
        hashes = sorted({file["hashes"]["sha256"] for file in wheels or [package["sdist"]]})
        mark = [] if wheels else [f" {SDIST}"]
        yield " ".join([f"{name}=={package['version']}", *(f"--hash=sha256:{value}" for value in hashes), *mark])


def update_requirements(catalog: Catalog) -> Path:
    """Fetch the Requires-Dist of packages of described bases and of locks that is not stored yet."""
    variants = {path(each): each for each in catalog.variants.values() if not each.base_made}
    inputs_of = [(inputs(each), locked(each)) for each in variants.values()]
    ours = [(given["python"], given["platform"], [f"{n}=={v}" for n, v in pins.items()]) for given, pins in inputs_of]
    return requirements.update([*base_packages.environments(), *ours])


def locked(variant: Variant) -> dict[str, str]:
    """Package → version of a variant's lock."""
    lines = path(variant).read_text(encoding="utf-8").splitlines()
    pins = (re.match(r"([a-z0-9-]+)==(\S+)", line) for line in lines)
    return {pin[1]: pin[2] for pin in pins if pin}


def split(text: str, name: str) -> tuple[str, str]:
    """Split a lock's lines, without comments, into those of other packages and the one of ``name``."""
    return select(text, lambda each: each != name), select(text, lambda each: each == name)


def select(text: str, wanted: Callable[[str], bool]) -> str:
    """Return a lock's lines, without comments, of the packages whose names are ``wanted``."""
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("#")]
    return "".join(line for line in lines if wanted(re.split(r"[\s=]", line, maxsplit=1)[0]))


def is_of_torch(name: str) -> bool:
    """Whether a package is torch, one of its companions, or a library of CUDA."""
    return name in TORCH_NAMES or name.startswith(CUDA_NAMES)
