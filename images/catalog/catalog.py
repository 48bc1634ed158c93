"""Reads catalog.toml, which has the versions of all images, and expands its families into variants.

A family is one base, a variant one image on it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any

from packaging.version import Version

from images.catalog.variant import Variant
from images.errors import CatalogError, UnknownVariant
from images.host.paths import BASE_DIGESTS, CATALOG

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AXES = ("kind", "verl", "rollouts", "machines", "for")
WITH_GPU = re.compile(r"(?P<variant>.+?)-(?P<gpu>gfx[0-9a-f]+)(-verl.+)?")  # names of before the flag --gpus
Table = Mapping[str, Any]


@dataclass(frozen=True)
class PinnedBase:
    """Digest of a base image, compression of its layers, and where both were read."""

    digest: str = ""
    layers: str = ""
    source: str = ""


class Catalog:
    """The variants by name, and the default of each platform."""

    def __init__(self, variants: dict[str, Variant], defaults: dict[str, str]) -> None:
        self.variants, self.defaults = variants, defaults
        for platform, variant in defaults.items():
            if variant not in variants or variants[variant].platform != platform:
                raise CatalogError(f"defaults.{platform} = {variant!r} is not a variant of that platform")
        tags = [f"{each.repository}:{each.tag}" for each in variants.values()]
        if twice := sorted({tag for tag in tags if tags.count(tag) > 1}):
            raise CatalogError(f"two variants have the tag {', '.join(twice)}")

    @classmethod
    def read(cls, path: Path = CATALOG) -> Catalog:
        """Read the catalog of a file; raise CatalogError if it is not valid."""
        try:
            tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise CatalogError(f"{path}: {error}") from error
        if missing := {"defaults", "kinds", "releases", "families"} - set(tables):
            raise CatalogError(f"{path} has no {', '.join(sorted(missing))}")
        bases, variants = read_bases(), dict[str, Variant]()
        for name, table in _expand(tables):
            if name in variants:
                raise CatalogError(f"two variants are named {name}")
            variant = Variant.from_table(name, table)
            base = bases.get(variant.base, PinnedBase())
            variants[name] = replace(variant, base_digest=base.digest, base_layers=base.layers)
        return cls(variants, tables["defaults"])

    def find(self, platform: str = "", variant: str = "", rollout: str = "", gpus: str = "") -> Variant:
        """Find a variant by name; else the platform's default; else its newest with another rollout engine.

        ``gpus`` are the GPU architectures to compile for, by comma; without it all that the base has code for.
        """
        found = self._find(platform, variant, rollout)
        return found.for_gpus([name.strip() for name in gpus.split(",")]) if gpus else found

    def _find(self, platform: str, variant: str, rollout: str) -> Variant:
        candidates = self.of_platform(platform)
        if variant:
            named = {each.name: each for each in candidates}
            if variant not in named and (old := WITH_GPU.fullmatch(variant)):
                fix = f"The GPU architecture is a flag: --variant {old['variant']} --gpus {old['gpu']}"
                raise UnknownVariant(variant, get_close_matches(old["variant"], named) or named, fix)
            if variant not in named:
                raise UnknownVariant(variant, get_close_matches(variant, named) or {each.family for each in candidates})
            return named[variant]
        if not platform:
            raise UnknownVariant("without --platform and --variant", self.defaults)
        default = self.variants[self.defaults[platform]]
        if rollout in ("", default.rollout):
            return default
        if fits := [each for each in candidates if each.rollout == rollout]:
            return max(fits, key=lambda each: Version(each.installs["verl"]))  # the first of the newest release
        known = {f"{platform} with {each.rollout}" for each in candidates}
        raise UnknownVariant(f"{platform} with rollout {rollout}", known)

    def of_platform(self, platform: str = "") -> list[Variant]:
        """All variants, or all of a platform."""
        if platform and platform not in self.defaults:
            raise UnknownVariant(platform, self.defaults)
        return [variant for variant in self.variants.values() if platform in ("", variant.platform)]

    def is_default(self, variant: Variant) -> bool:
        """Whether the platform's ``latest`` is this variant."""
        return self.defaults.get(variant.platform) == variant.name

    def names(self, variant: Variant, tag: str = "") -> list[str]:
        """Names that a build gives its image: with its own tag, and ``latest`` for a platform's default variant."""
        if tag:
            return [tag if ":" in tag else f"{variant.repository}:{tag}"]
        is_whole = not (variant.source or variant.compiled_for)
        latest = [f"{variant.repository}:latest"] if self.is_default(variant) and is_whole else []
        return [f"{variant.repository}:{variant.tag}", *latest]


def read_bases(path: Path = BASE_DIGESTS) -> dict[str, PinnedBase]:
    """Read the pins of base images by reference; empty if no registry has been queried yet."""
    if not path.is_file():
        return {}
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return {reference: PinnedBase(**base) for reference, base in facts.items()}
    except (ValueError, TypeError) as error:
        raise CatalogError(f"{path}: {error}") from error


def _expand(tables: Table) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and table of every variant; the first of a family has the family's name."""
    for family, own in tables["families"].items():
        kind = own.get("kind", "")
        if kind not in tables["kinds"]:
            raise CatalogError(f"families.{family} has kind {kind!r}; known are: {', '.join(tables['kinds'])}")
        shared = _merge(tables["kinds"][kind], own)
        for axis in ("verl", "rollouts"):
            if not shared.get(axis):
                raise CatalogError(f"families.{family} has no {axis}")
        machines = shared.get("machines", ["x86_64"])
        if unknown := set(shared.get("for", {})) - {*shared["verl"], *machines}:
            raise CatalogError(
                f"families.{family}.for names releases or machines that the family does not have: {sorted(unknown)}"
            )
        for verl, rollout, machine in product(shared["verl"], shared["rollouts"], machines):
            suffixes = [
                rollout if rollout != shared["rollouts"][0] else "",
                machine if machine != machines[0] else "",
                f"verl{verl}" if verl != shared["verl"][0] else "",
            ]
            if verl not in tables["releases"]:
                raise CatalogError(f"families.{family} has verl {verl}, which has no table under releases")
            only = [own.get("for", {}).get(key, {}) for key in (verl, machine)]
            layers = [tables["kinds"][kind], tables["releases"][verl], own, *only]
            axes = {"family": family, "rollout": rollout, "machine": machine, "gpus": shared.get("gpus", [])}
            yield "-".join(filter(None, [family, *suffixes])), {**_variant_table(layers, verl), **axes}


def _merge(first: Table, second: Table) -> dict[str, Any]:
    """Merge two tables, recursively; the second's values win, and its `state` replaces the first's as a whole."""
    both = dict(first)
    for key, value in second.items():
        inner = both.get(key)
        is_whole = key == "state" or not (isinstance(inner, Mapping) and isinstance(value, Mapping))
        both[key] = value if is_whole else _merge(inner or {}, value)
    return both


def _variant_table(layers: Sequence[Table], verl: str) -> dict[str, Any]:
    """Merge the layers of a variant; verl is added to what it installs, after torch, which is installed first."""
    table: dict[str, Any] = {}
    for layer in layers:
        table = _merge(table, layer)
    for key in ("installs", "outside"):
        table[key] = {name: value for name, value in table.get(key, {}).items() if value}
    first = {name: version for name, version in table["installs"].items() if name == "torch"}
    table["installs"] = {**first, "verl": verl, **table["installs"]}
    return {key: value for key, value in table.items() if key not in AXES}
