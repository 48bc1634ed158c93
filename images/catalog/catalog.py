"""Reading catalog.toml, the one place of versions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from images.catalog.spec import ImageSpec
from images.errors import CatalogError, UnknownVariant
from images.host.paths import CATALOG

if TYPE_CHECKING:
    from images.catalog.base_digests import Base


class Catalog:
    """The variants by name, and the default of each platform."""

    def __init__(self, variants: dict[str, ImageSpec], defaults: dict[str, str]) -> None:
        self.variants, self.defaults = variants, defaults
        for platform, variant in defaults.items():
            if variant not in variants or variants[variant].platform != platform:
                raise CatalogError(f"defaults.{platform} = {variant!r} is no variant of that platform")
        tags = [f"{spec.name}:{spec.tag}" for spec in variants.values()]
        if twice := sorted({tag for tag in tags if tags.count(tag) > 1}):
            raise CatalogError(f"two variants have the tag {', '.join(twice)}")

    @classmethod
    def read(cls, path: Path = CATALOG) -> Catalog:
        """The catalog of a file; CatalogError where it is not one."""
        # What a build recalls needs neither this nor what _specs makes variants with.
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
        return cls(dict(_specs(tables, base_digests.read())), tables["defaults"])

    def find(self, platform: str = "", variant: str = "", rollout: str = "") -> ImageSpec:
        """The variant by name, else the platform's default, else the platform's newest for another rollout engine."""
        if variant:
            return self._named(variant, platform)
        if platform not in self.defaults:
            raise UnknownVariant(platform or "without --platform and --variant", self.defaults)
        default = self.variants[self.defaults[platform]]
        if rollout in ("", default.rollout):
            return default
        from packaging.version import Version  # most ask for a default

        there = [spec for spec in self.variants.values() if spec.platform == platform]
        if fits := [spec for spec in there if spec.rollout == rollout]:
            return max(fits, key=lambda spec: Version(spec.installs["verl"]))  # the first of the newest release
        raise UnknownVariant(
            f"{platform} with rollout {rollout}", {f"{platform} with {spec.rollout}" for spec in there}
        )

    def of(self, platform: str = "") -> list[ImageSpec]:
        """All variants, or all of a platform."""
        if platform and platform not in self.defaults:
            raise UnknownVariant(platform, self.defaults)
        return [spec for spec in self.variants.values() if platform in ("", spec.platform)]

    def is_default(self, spec: ImageSpec) -> bool:
        """Whether the platform's ``latest`` is this variant."""
        return self.defaults.get(spec.platform) == spec.variant

    def names(self, spec: ImageSpec, tag: str = "") -> list[str]:
        """The references that a build gives its image: its own tag, and ``latest`` for a platform's default variant."""
        if tag:
            return [tag if ":" in tag else f"{spec.name}:{tag}"]
        latest = [f"{spec.name}:latest"] if self.is_default(spec) and not spec.source else []
        return [f"{spec.name}:{spec.tag}", *latest]

    def _named(self, variant: str, platform: str) -> ImageSpec:
        spec = self.variants.get(variant)
        if spec is None or platform not in ("", spec.platform):
            there = {name: spec for name, spec in self.variants.items() if platform in ("", spec.platform)}
            from difflib import get_close_matches  # all of them would be a page

            raise UnknownVariant(variant, get_close_matches(variant, there) or {spec.family for spec in there.values()})
        return spec


def _specs(tables: dict[str, Any], known: dict[str, Base]) -> Iterator[tuple[str, ImageSpec]]:
    from images.catalog import base_digests, matrix

    seen = set()
    for name, table in matrix.variants(tables):
        if name in seen:
            raise CatalogError(f"two variants are named {name}")
        seen.add(name)
        spec = ImageSpec.from_table(name, table)
        base = known.get(spec.base, base_digests.Base())
        yield name, replace(spec, base_digest=base.digest, base_layers=base.layers)
