"""Reads catalog.toml, the one file with the versions of all images."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from images.catalog.variant import Variant
from images.errors import CatalogError, UnknownVariant
from images.host.paths import CATALOG

if TYPE_CHECKING:
    from images.catalog.base_digests import Base


class Catalog:
    """The variants by name, and the default of each platform."""

    def __init__(self, variants: dict[str, Variant], defaults: dict[str, str]) -> None:
        self.variants, self.defaults = variants, defaults
        for platform, variant in defaults.items():
            if variant not in variants or variants[variant].platform != platform:
                raise CatalogError(f"defaults.{platform} = {variant!r} is no variant of that platform")
        tags = [f"{each.repository}:{each.tag}" for each in variants.values()]
        if twice := sorted({tag for tag in tags if tags.count(tag) > 1}):
            raise CatalogError(f"two variants have the tag {', '.join(twice)}")

    @classmethod
    def read(cls, path: Path = CATALOG) -> Catalog:
        """The catalog of a file; CatalogError where it is not one."""
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib

        from images.catalog import base_digests

        try:
            tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as mistake:
            raise CatalogError(f"{path}: {mistake}") from mistake
        if missing := {"defaults", "kinds", "releases", "families"} - set(tables):
            raise CatalogError(f"{path} lacks {', '.join(sorted(missing))}")
        return cls(dict(_variants(tables, base_digests.read())), tables["defaults"])

    def find(self, platform: str = "", variant: str = "", rollout: str = "") -> Variant:
        """The variant by name, else the platform's default, else the platform's newest for another rollout engine."""
        if variant:
            return self._named(variant, platform)
        if platform not in self.defaults:
            raise UnknownVariant(platform or "without --platform and --variant", self.defaults)
        default = self.variants[self.defaults[platform]]
        if rollout in ("", default.rollout):
            return default
        from packaging.version import Version  # most ask for a default

        there = [each for each in self.variants.values() if each.platform == platform]
        if fits := [each for each in there if each.rollout == rollout]:
            return max(fits, key=lambda each: Version(each.installs["verl"]))  # the first of the newest release
        raise UnknownVariant(
            f"{platform} with rollout {rollout}", {f"{platform} with {each.rollout}" for each in there}
        )

    def of_platform(self, platform: str = "") -> list[Variant]:
        """All variants, or all of a platform."""
        if platform and platform not in self.defaults:
            raise UnknownVariant(platform, self.defaults)
        return [variant for variant in self.variants.values() if platform in ("", variant.platform)]

    def is_default(self, variant: Variant) -> bool:
        """Whether the platform's ``latest`` is this variant."""
        return self.defaults.get(variant.platform) == variant.name

    def names(self, variant: Variant, tag: str = "") -> list[str]:
        """The references that a build gives its image: its own tag, and ``latest`` for a platform's default variant."""
        if tag:
            return [tag if ":" in tag else f"{variant.repository}:{tag}"]
        latest = [f"{variant.repository}:latest"] if self.is_default(variant) and not variant.source else []
        return [f"{variant.repository}:{variant.tag}", *latest]

    def _named(self, variant: str, platform: str) -> Variant:
        named = self.variants.get(variant)
        if named is None or platform not in ("", named.platform):
            there = {name: each for name, each in self.variants.items() if platform in ("", each.platform)}
            from difflib import get_close_matches  # all of them would be a page

            raise UnknownVariant(variant, get_close_matches(variant, there) or {each.family for each in there.values()})
        return named


def _variants(tables: dict[str, Any], known: dict[str, Base]) -> Iterator[tuple[str, Variant]]:
    from images.catalog import base_digests, matrix

    seen = set()
    for name, table in matrix.variants(tables):
        if name in seen:
            raise CatalogError(f"two variants are named {name}")
        seen.add(name)
        variant = Variant.from_table(name, table)
        base = known.get(variant.base, base_digests.Base())
        yield name, replace(variant, base_digest=base.digest, base_layers=base.layers)
