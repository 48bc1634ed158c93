"""Reading catalog.toml, the one place of versions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from images.errors import CatalogError, UnknownVariant
from images.spec import ImageSpec

CATALOG = Path(__file__).with_name("catalog.toml")


class Catalog:
    """The variants by name, and the default of each platform."""

    def __init__(self, variants: dict[str, ImageSpec], defaults: dict[str, str]) -> None:
        self.variants, self.defaults = variants, defaults
        for platform, variant in defaults.items():
            if variant not in variants or variants[variant].platform != platform:
                raise CatalogError(f"defaults.{platform} = {variant!r} is no variant of that platform")

    @classmethod
    def read(cls, path: Path = CATALOG) -> Catalog:
        """The catalog of a file; CatalogError where it is not one."""
        try:
            tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as mistake:
            raise CatalogError(f"{path}: {mistake}") from mistake
        variants = {name: ImageSpec.from_table(name, table) for name, table in tables["variants"].items()}
        return cls(variants, tables["defaults"])

    def find(self, platform: str = "", variant: str = "", rollout: str = "") -> ImageSpec:
        """The variant by name, else the platform's default, else the platform's variant for a rollout engine."""
        if variant:
            return self._named(variant, platform)
        if platform not in self.defaults:
            raise UnknownVariant(platform or "without --platform and --variant", self.defaults)
        default = self.variants[self.defaults[platform]]
        if rollout in ("", default.rollout):
            return default
        for spec in self.variants.values():
            if spec.platform == platform and spec.rollout == rollout:
                return spec
        engines = {spec.rollout for spec in self.variants.values() if spec.platform == platform}
        raise UnknownVariant(f"{platform} with rollout {rollout}", (f"{platform} with {each}" for each in engines))

    def of(self, platform: str = "") -> list[ImageSpec]:
        """All variants, or all of a platform."""
        if platform and platform not in self.defaults:
            raise UnknownVariant(platform, self.defaults)
        return [spec for spec in self.variants.values() if platform in ("", spec.platform)]

    def is_default(self, spec: ImageSpec) -> bool:
        """Whether the platform's ``latest`` is this variant."""
        return self.defaults.get(spec.platform) == spec.variant

    def _named(self, variant: str, platform: str) -> ImageSpec:
        spec = self.variants.get(variant)
        if spec is None or platform not in ("", spec.platform):
            raise UnknownVariant(variant, (n for n, s in self.variants.items() if platform in ("", s.platform)))
        return spec
