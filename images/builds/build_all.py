"""Builds many variants: downloads bases and wheels once, then builds in a thread pool, longest first."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

from images.builds.build import BuildRequest, build
from images.builds.fetch import fetch_base, fetch_torch
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.engine.client import Engine, choose
from images.engine.daemon import architecture
from images.errors import ImageError
from images.host.process import Commands
from images.report import progress as displays
from images.report import store

JOBS = 2
UNKNOWN_S = 150.0  # verl.cpu from its packages on, docs/benchmarks.md


@dataclass(frozen=True)
class Target:
    """One build and its downloads; targets with a download of the same name share it.

    The target with the largest ``expected_s`` (seconds) starts first: started last, it would run alone at the end.
    """

    name: str
    build: Callable[[], str]
    downloads: Mapping[str, Callable[[], object]]
    expected_s: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The ID of a target's image, or the error."""

    name: str
    image_id: str
    error: ImageError | None
    seconds: float


def build_all(
    variants: Sequence[Variant],
    site: Site,
    catalog: Catalog,
    *,
    jobs: int = JOBS,
    force: bool = False,
    reproducible: bool = False,
    progress: str = "auto",
) -> list[Outcome]:
    """Build the variants, at most ``jobs`` at a time.

    BuildKit runs equal steps of simultaneous builds once.
    """
    commands, engine = Commands(), choose()
    tags = {variant.name: catalog.names(variant) for variant in variants}
    display = displays.choose(progress, [tags[variant.name][0] for variant in variants])

    def target(variant: Variant) -> Target:
        names = tags[variant.name]
        request = BuildRequest(variant, names, reproducible=reproducible)
        run_build = partial(build, request, site, force=force, progress=display, commands=commands)
        return Target(names[0], run_build, downloads(variant, site, engine), expected_s(variant, names[0]))

    def report_failure(outcome: Outcome) -> None:
        if outcome.error:
            display.end(outcome.name, f"FAILED: {outcome.error}")

    with display:
        targets = [target(variant) for variant in variants]
        return run(targets, jobs, on_outcome=report_failure, terminate=commands.terminate)


def run(
    targets: Sequence[Target],
    jobs: int = JOBS,
    *,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
    terminate: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Download and build, at most ``jobs`` at a time; return the outcomes in the order of ``targets``.

    A failed download fails only the targets that need it. ``on_outcome`` is called with each outcome, from any thread.
    An ImageError is an outcome. On any other exception, KeyboardInterrupt included, no further build starts,
    ``terminate`` is called to end the running ones, and the exception is raised.
    """
    if jobs < 1:
        raise ImageError(f"--jobs={jobs} is too small: pass 1 or more.")
    all_downloads = {name: fetch for target in targets for name, fetch in target.downloads.items()}
    longest_first = sorted(targets, key=lambda target: -target.expected_s)
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="build")
    try:
        fetched = zip(all_downloads, pool.map(_attempt, all_downloads.values()))
        failures = {name: error for name, (_, error) in fetched}
        futures = {target.name: pool.submit(_outcome, target, failures, on_outcome) for target in longest_first}
        wait(futures.values(), return_when=FIRST_EXCEPTION)
        for future in futures.values():
            if future.done():
                future.result()  # raises any exception that is not an outcome
        return [futures[target.name].result() for target in targets]
    except BaseException:
        terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _attempt(call: Callable[[], object]) -> tuple[str, ImageError | None]:
    """Return the result of a download or a build, or its ImageError."""
    try:
        return str(call()), None
    except ImageError as error:
        return "", error


def _outcome(
    target: Target, failures: Mapping[str, ImageError | None], on_outcome: Callable[[Outcome], None]
) -> Outcome:
    started_s = time.monotonic()
    failure = next(filter(None, (failures[name] for name in target.downloads)), None)
    image_id, error = ("", failure) if failure else _attempt(target.build)
    outcome = Outcome(target.name, image_id, error, time.monotonic() - started_s)
    on_outcome(outcome)
    return outcome


def summary(outcomes: Sequence[Outcome]) -> str:
    """One line per target, failures last."""
    width = max((len(each.name) for each in outcomes), default=0)
    lines = []
    for each in sorted(outcomes, key=lambda outcome: outcome.error is not None):
        result = f"FAILED: {str(each.error).splitlines()[0][:160]}" if each.error else each.image_id
        lines.append(f"{each.name:{width}}  {each.seconds:6.1f} s  {result}")
    built = sum(each.error is None for each in outcomes)
    return "\n".join([*lines, f"{built} of {len(outcomes)} images are up to date"])


def buildable(variants: Sequence[Variant]) -> list[Variant]:
    """The variants for the architecture for which the engine builds."""
    return [variant for variant in variants if variant.architecture == architecture()]


def downloads(variant: Variant, site: Site, engine: Engine) -> dict[str, Callable[[], object]]:
    """The downloads of a variant's build by name; equal names are the same download."""
    found: dict[str, Callable[[], object]] = {f"base {variant.base}": partial(fetch_base, variant, engine, "", site)}
    if variant.cpu_torch:
        found[f"torch {variant.cpu_torch} for Python {variant.python}"] = partial(fetch_torch, variant, site)
    return found


def expected_s(variant: Variant, name: str) -> float:
    """Seconds of the last build of this name; without one, a variant that compiles a package counts as the longest."""
    last = store.read(name)
    return float(last["seconds"]) if last else math.inf if variant.replaces else UNKNOWN_S


def refuse_single_image_flags(**flags: object) -> None:
    """Raise ImageError if a flag applies to a single image only."""
    if given := [name.replace("_", "-") for name, value in flags.items() if value]:
        raise ImageError(f"--{given[0]} applies to one image: leave it out, or name the image instead of --all")
