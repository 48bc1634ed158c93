"""Many builds at once: what they share is made once, and one that fails stops only those that need it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from images.errors import ImageError

JOBS = 2


@dataclass(frozen=True)
class Target:
    """One thing to make, and what must be there before; the same name of a need is the same need to every target."""

    name: str
    make: Callable[[], str]
    needs: Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Outcome:
    """What became of a target: an image's ID, or why there is none."""

    name: str
    image_id: str
    error: ImageError | None
    seconds: float


def run(
    targets: Sequence[Target],
    jobs: int = JOBS,
    *,
    over: Callable[[Outcome], None] = lambda _: None,
    end: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Make all targets, at most ``jobs`` things at a time, and return what became of each, in their order.

    ``over`` hears of each outcome as it comes. Only ImageError is an outcome: with anything else, KeyboardInterrupt
    too, ``end`` is asked to end what is under way, nothing more begins, and it is raised.
    """
    if jobs < 1:
        raise ImageError(f"--jobs={jobs}: at least one build must go on at a time.")
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="build")
    made: dict[str, Outcome] = {}
    try:
        for outcome in _outcomes(targets, pool):
            made[outcome.name] = outcome
            over(outcome)
    except BaseException:
        end()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return [made[target.name] for target in targets]


def _outcomes(targets: Sequence[Target], pool: ThreadPoolExecutor) -> Iterator[Outcome]:
    """Each outcome as it comes; a target is begun once all that it needs is there."""
    needed = {name: need for target in targets for name, need in target.needs.items()}
    fetched = {name: pool.submit(_failure, need) for name, need in needed.items()}
    waiting, making = list(targets), set[Future[Outcome]]()
    while waiting or making:
        ready = [each for each in waiting if all(fetched[name].done() for name in each.needs)]
        waiting = [each for each in waiting if each not in ready]
        for target in ready:
            if failure := next(filter(None, (fetched[name].result() for name in target.needs)), None):
                yield Outcome(target.name, "", failure, 0.0)
            else:
                making.add(pool.submit(_made, target))
        fetching = {fetched[name] for target in waiting for name in target.needs if not fetched[name].done()}
        under_way: set[Future[Any]] = {*making, *fetching}
        wait(under_way, return_when=FIRST_COMPLETED)
        for future in [each for each in making if each.done()]:
            making.remove(future)
            yield future.result()


def summary(outcomes: Sequence[Outcome]) -> str:
    """A line for each target, those that failed last."""
    width = max((len(each.name) for each in outcomes), default=0)
    lines = []
    for each in sorted(outcomes, key=lambda outcome: outcome.error is not None):
        told = f"FAILED: {str(each.error).splitlines()[0][:160]}" if each.error else each.image_id
        lines.append(f"{each.name:{width}}  {each.seconds:6.1f} s  {told}")
    there = sum(each.error is None for each in outcomes)
    return "\n".join([*lines, f"{there} of {len(outcomes)} images are there"])


def _failure(need: Callable[[], object]) -> ImageError | None:
    try:
        need()
    except ImageError as error:
        return error
    return None


def _made(target: Target) -> Outcome:
    begun = time.monotonic()
    try:
        image_id, failure = target.make(), None
    except ImageError as error:
        image_id, failure = "", error
    return Outcome(target.name, image_id, failure, time.monotonic() - begun)
