from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from verl_node.errors import TrainingStuck
from verl_node.supervision import hang
from verl_node.supervision.hang import HangPolicy, Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def after(seconds: Iterable[float], policy: HangPolicy | None = None) -> tuple[Progress, Clock]:
    """A training whose steps 1, 2, … each took this long."""
    clock = Clock()
    pace = Progress(policy or HangPolicy(), clock)
    for number, duration in enumerate(seconds, 1):
        clock.now += duration
        pace.step(number)
    return pace, clock


def test_nothing_is_a_hang_before_two_steps_are_done() -> None:
    for seconds in ((), (900,)):
        pace, clock = after(seconds)
        clock.now += 1e6
        assert not pace.stalled()


def test_the_first_step_has_its_own_limit() -> None:
    pace, clock = after((), HangPolicy(first_step_s=600))
    clock.now += 600
    assert not pace.stalled()
    clock.now += 1
    assert pace.stalled()


def test_a_step_may_take_three_times_the_median_and_a_minute_more() -> None:
    pace, clock = after([900, 10, 12, 11])  # the first one, which loads and compiles, does not count

    assert pace.limit_s() == 3 * 11 + 60
    clock.now += 93
    assert not pace.stalled()
    clock.now += 1
    assert pace.stalled()


def test_factor_and_margin_are_settings() -> None:
    pace, _ = after([1, 10, 10], HangPolicy(factor=5, margin_s=7))

    assert pace.limit_s() == 57


def test_a_step_as_long_as_one_before_is_no_hang() -> None:
    pace, _ = after([1, 10, 10, 10, 500, 10])  # the fifth one validated

    assert pace.limit_s() == 500 + 60


def test_a_validation_before_the_training_is_no_step() -> None:
    pace, clock = after(())
    pace.step(0)
    clock.now += 50
    pace.step(1)

    assert pace.limit_s() is None


class Watched:
    """A training that hangs after two steps, and its hang detection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
        monkeypatch.setattr(hang, "_POLL_S", 0.01)
        self.pace, self.clock = after([1, 1], HangPolicy(action=action))
        self.clock.now += 1000
        self.said: list[str] = []
        self.hangs: list[int] = []

    async def take(self, number: int) -> str:
        self.hangs.append(number)
        return f"stacks: s{number}.txt"

    def watch(self) -> asyncio.Future[None]:
        return asyncio.ensure_future(hang.watch(self.pace, self.said.append, self.take))


def test_a_hang_and_its_end_are_each_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, hang.REPORT)

    async def scenario() -> None:
        watch = watched.watch()
        await asyncio.sleep(0.1)
        assert watched.hangs == [1]
        assert "no step for 1000 s, the limit is 63 s" in watched.said[0]
        watched.pace.step(3)
        await asyncio.sleep(0.1)
        assert "training continues" in watched.said[-1]
        watched.clock.now += 5000
        await asyncio.sleep(0.1)
        assert watched.hangs == [1, 2]
        watch.cancel()

    asyncio.run(scenario())


def test_a_hang_ends_the_job_with_76_if_so_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, hang.END)

    async def scenario() -> None:
        with pytest.raises(TrainingStuck, match=r"no step for 1000 s .* stacks: s1\.txt") as seen:
            await asyncio.wait_for(watched.watch(), 5)
        assert (seen.value.code, seen.value.stage) == (76, "hang")

    asyncio.run(scenario())


def test_hang_detection_that_is_off_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, hang.OFF)

    async def scenario() -> None:
        await asyncio.wait_for(watched.watch(), 5)

    asyncio.run(scenario())
    assert watched.said == []
