"""Building many variants at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from images.builds import scheduler
from images.builds.build import base_of, build, torch_of
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.catalog.spec import ImageSpec
from images.engine.client import Engine, choose
from images.engine.daemon import architecture
from images.errors import ImageError
from images.host.streams import Running
from images.report import progress as displays
from images.report import store

UNKNOWN_S = 150.0  # verl.cpu from its packages on, docs/benchmarks.md


def build_all(
    specs: Sequence[ImageSpec],
    site: Site,
    catalog: Catalog,
    *,
    jobs: int = scheduler.JOBS,
    anyway: bool = False,
    same_bytes: bool = False,
    progress: str = "auto",
) -> list[scheduler.Outcome]:
    """Build the variants, at most ``jobs`` at a time; what several of them need is fetched once.

    Equal steps of builds that go on at the same time are run once by BuildKit itself.
    """
    running, engine = Running(), choose()
    tags = {spec.variant: catalog.names(spec) for spec in specs}
    display = displays.choose(progress, [tags[spec.variant][0] for spec in specs])

    def target(spec: ImageSpec) -> scheduler.Target:
        make = partial(
            build,
            spec,
            site,
            tags[spec.variant],
            anyway=anyway,
            same_bytes=same_bytes,
            progress=display,
            running=running,
        )
        name = tags[spec.variant][0]
        return scheduler.Target(name, make, needs(spec, site, engine), expected_s(spec, name))

    def over(outcome: scheduler.Outcome) -> None:
        if outcome.error:
            display.end(outcome.name, f"FAILED: {outcome.error}")

    with display:
        return scheduler.run([target(spec) for spec in specs], jobs, over=over, end=running.end)


def buildable(specs: Sequence[ImageSpec]) -> list[ImageSpec]:
    """Those for the processor for which the engine builds."""
    return [spec for spec in specs if spec.architecture == architecture()]


def needs(spec: ImageSpec, site: Site, engine: Engine) -> dict[str, Callable[[], object]]:
    """What a variant's build fetches before it begins, by a name that is the same for all that need the same."""
    found: dict[str, Callable[[], object]] = {f"base {spec.base}": partial(base_of, spec, engine, "", site)}
    if "torch" in spec.installs:
        found[f"torch {spec.installs['torch']} for Python {spec.python}"] = partial(torch_of, spec, site)
    return found


def expected_s(spec: ImageSpec, name: str) -> float:
    """What the last build of a name took; where there was none, a guess that compiling takes longer than all else."""
    last = store.read(name)
    return float(last["seconds"]) if last else math.inf if spec.replaces else UNKNOWN_S


def refuse_alone(**flags: object) -> None:
    """ImageError where a flag is given that means one image."""
    if given := [name for name, value in flags.items() if value]:
        raise ImageError(f"--{given[0]} is for one image: leave it out, or name the image in place of --all")
