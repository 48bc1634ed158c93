"""Targets share downloads, run in a thread pool, and fail independently."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from images.builds.build_all import Outcome, Target, run, summary
from images.errors import ImageError


def done() -> None:
    """A download that succeeds."""


def failing(message: str) -> Callable[[], str]:
    def fail() -> str:
        raise ImageError(message)

    return fail


def test_a_shared_download_runs_once_and_before_the_builds() -> None:
    order: list[str] = []

    def base() -> None:
        time.sleep(0.05)
        order.append("base")

    def named(name: str) -> Callable[[], str]:
        def build() -> str:
            order.append(name)
            return name

        return build

    targets = [Target(name, named(name), {"base": base}) for name in "abc"]

    assert [each.image_id for each in run(targets, 3)] == ["a", "b", "c"]
    assert order[0] == "base"
    assert sorted(order) == ["a", "b", "base", "c"]


def test_a_failed_build_stops_no_other_and_a_failed_download_only_the_builds_that_need_it() -> None:
    targets = [
        Target("bad", failing("broken"), {"base": done}),
        Target("good", lambda: "id", {"base": done}),
        Target("orphan", lambda: pytest.fail("its base is missing"), {"gone": failing("no such base")}),
    ]
    reported: list[str] = []

    outcomes = run(targets, 1, on_outcome=lambda outcome: reported.append(outcome.name))

    assert [str(each.error or each.image_id) for each in outcomes] == ["broken", "id", "no such base"]
    assert sorted(reported) == ["bad", "good", "orphan"]


def test_downloads_run_first_then_the_longest_target() -> None:
    order: list[str] = []

    def named(name: str) -> Callable[[], str]:
        return lambda: order.append(name) or name  # type: ignore[func-returns-value]

    targets = [
        Target("short", named("short"), {"small base": named("small base")}, expected_s=1),
        Target("ready", named("ready"), {}, expected_s=2),
        Target("long", named("long"), {"base": named("base")}, expected_s=3),
        Target("middle", named("middle"), {"base": named("base")}, expected_s=1.5),
    ]

    assert [each.image_id for each in run(targets, 1)] == ["short", "ready", "long", "middle"]
    assert order == ["small base", "base", "long", "ready", "middle", "short"]


@pytest.mark.parametrize("jobs", [1, 3])
def test_no_more_than_jobs_run_at_a_time(jobs: int) -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def build() -> str:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1
        return "id"

    run([Target(str(number), build, {}) for number in range(8)], jobs)

    assert most[0] == jobs


def test_another_error_terminates_running_builds_and_is_raised() -> None:
    terminated = threading.Event()

    def interrupted() -> str:
        raise KeyboardInterrupt

    targets = [Target("long", lambda: str(terminated.wait(10)), {}), Target("ctrl-c", interrupted, {})]

    with pytest.raises(KeyboardInterrupt):
        run(targets, 2, terminate=terminated.set)
    assert terminated.is_set()


def test_less_than_one_job_is_refused() -> None:
    with pytest.raises(ImageError, match="--jobs=0"):
        run([], 0)


def test_the_summary_has_every_target_failures_last() -> None:
    outcomes = [Outcome("bad", "", ImageError("broken\nlog"), 1.0), Outcome("good", "sha256:1", None, 12.34)]

    assert summary(outcomes).splitlines() == [
        "good    12.3 s  sha256:1",
        "bad      1.0 s  FAILED: broken",
        "1 of 2 images are up to date",
    ]
