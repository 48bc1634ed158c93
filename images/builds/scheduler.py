"""Many builds at once: what they share is made once, and one that fails stops only those that need it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from images.errors import ImageError

JOBS = 2


@dataclass(frozen=True)
class Target:
    """One thing to make, and what must be there before; the same name of a need is the same need to every target.

    ``expected_s`` decides who is first: the longest, since one that is begun last is waited for alone.
    """

    name: str
    make: Callable[[], str]
    needs: Mapping[str, Callable[[], object]]
    expected_s: float = 0.0


@dataclass(frozen=True)
class Need:
    """What targets wait for; it needs nothing itself."""

    name: str
    make: Callable[[], object]
    expected_s: float
    needs: Mapping[str, Callable[[], object]] = field(default_factory=dict)


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
        for outcome in _outcomes(targets, pool, jobs):
            made[outcome.name] = outcome
            over(outcome)
    except BaseException:
        end()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return [made[target.name] for target in targets]


def _outcomes(targets: Sequence[Target], pool: ThreadPoolExecutor, jobs: int) -> Iterator[Outcome]:
    """Each outcome as it comes; a target is begun once all that it needs is there.

    A need is as urgent as the longest target that waits for it.
    """
    waiting: list[Target | Need] = sorted([*_needs(targets), *targets], key=_urgency, reverse=True)
    failures: dict[str, ImageError | None] = {}
    under_way: dict[Future[Any], Target | Need] = {}
    while waiting or under_way:
        for each in [each for each in waiting if failures.keys() >= each.needs.keys()]:
            if failure := next(filter(None, (failures[name] for name in each.needs)), None):
                waiting.remove(each)
                yield Outcome(each.name, "", failure, 0.0)
            elif len(under_way) < jobs:
                waiting.remove(each)
                begun = pool.submit(_made, each) if isinstance(each, Target) else pool.submit(_failure, each)
                under_way[begun] = each
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            each = under_way.pop(future)
            if isinstance(each, Need):
                failures[each.name] = future.result()
            else:
                yield future.result()


def _needs(targets: Sequence[Target]) -> list[Need]:
    found: dict[str, Need] = {}
    for target in targets:
        for name, make in target.needs.items():
            longest_s = max(target.expected_s, found[name].expected_s if name in found else 0.0)
            found[name] = Need(name, make, longest_s)
    return list(found.values())


def _urgency(each: Target | Need) -> float:
    return each.expected_s


def summary(outcomes: Sequence[Outcome]) -> str:
    """A line for each target, those that failed last."""
    width = max((len(each.name) for each in outcomes), default=0)
    lines = []
    for each in sorted(outcomes, key=lambda outcome: outcome.error is not None):
        told = f"FAILED: {str(each.error).splitlines()[0][:160]}" if each.error else each.image_id
        lines.append(f"{each.name:{width}}  {each.seconds:6.1f} s  {told}")
    there = sum(each.error is None for each in outcomes)
    return "\n".join([*lines, f"{there} of {len(outcomes)} images are there"])


def _failure(need: Need) -> ImageError | None:
    try:
        need.make()
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
