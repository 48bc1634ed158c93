"""A build request: variant, source of verl, tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from images.builds.build import build
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.context import verl_source
from images.report import progress as displays

if TYPE_CHECKING:
    from images.builds.bundle import Bundle


@dataclass(frozen=True)
class BuildRequest:
    """A named, and what takes the place of its release of verl, of its downloads and of its usual names."""

    variant: Variant
    tags: Sequence[str]
    verl: verl_source.Source | None = None
    bundle: Bundle | None = None

    @classmethod
    def from_flags(
        cls,
        platform: str,
        variant: str,
        rollout: str,
        site: Site,
        *,
        tag: str = "",
        verl: str = "",
        editable: bool = False,
        bundle: str = "",
    ) -> BuildRequest:
        """From the flags; where a bundle is named and no named, it is the bundle's."""
        catalog = Catalog.read()
        carried = _bundle(Path(bundle)) if bundle else None
        named = catalog.find(platform, variant or (carried.variant if carried else ""), rollout)
        chosen, source = verl_source.chosen(named, verl, editable, site.git_environment)
        return cls(chosen, catalog.names(chosen, tag), source, carried)

    def build(self, site: Site, *, from_base: str, force: bool, reproducible: bool, progress: str) -> str:
        """Build it where anything changed, shown by the display of this name; the image's ID."""
        with displays.choose(progress, self.tags[:1]) as shown:
            return build(
                self.variant,
                site,
                self.tags,
                from_base=from_base,
                bundle=self.bundle,
                verl=self.verl,
                reproducible=reproducible,
                force=force,
                progress=shown,
            )


def _bundle(folder: Path) -> Bundle:
    from images.builds.bundle import Bundle  # not asked for by other builds

    return Bundle.read(folder)
