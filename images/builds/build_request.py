"""A build request: variant, source of verl, tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from images.builds.build import build, show_plan
from images.builds.bundle import Bundle
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.context import verl_source
from images.report import progress as displays


@dataclass(frozen=True)
class BuildRequest:
    """A variant with its tags; ``verl`` replaces its release of verl, ``bundle`` its downloads."""

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
        """Read the flags of `invoke build`; a bundle without a variant is of its own variant."""
        catalog = Catalog.read()
        carried = Bundle.read(Path(bundle)) if bundle else None
        named = catalog.find(platform, variant or (carried.variant if carried else ""), rollout)
        chosen, source = verl_source.chosen(named, verl, editable, site.git_environment)
        return cls(chosen, catalog.names(chosen, tag), source, carried)

    def plan(self, site: Site, *, from_base: str) -> str:
        """The plan of the build as text."""
        return show_plan(self.variant, site, self.tags, from_base=from_base, verl=self.verl)

    def build(self, site: Site, *, from_base: str, force: bool, reproducible: bool, progress: str) -> str:
        """Build it where an input changed; the image's ID. ``progress`` names the display."""
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
