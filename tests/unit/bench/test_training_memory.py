"""bench/gpu/training_memory.py: the check's memory estimate and its hang limit against recorded trainings."""

from __future__ import annotations

import itertools
import re
import statistics
from pathlib import Path

import pytest
from verl_node.supervision.hang import HangPolicy, Progress

from bench.gpu import training_memory, training_result
from tests.support.paths import CHECKOUT, DATA

TRAININGS = sorted(path.parent for path in (DATA / "trainings").glob("*/launch.json"))
MEASURED = [run for run in TRAININGS if re.fullmatch(r"(grpo|ppo)-[\d.]+b-\dgpu", run.name)]
# The highest allocation has activations and logits, the growth over the first step the buffers of several GPUs' NCCL.
UNCOUNTED = {
    1: {"training, highest allocation"},
    2: {"training, highest allocation", "Adam's moments, all models"},
}
# With a large model and a small share: 1.6 GiB that vLLM has not for its cache, and what it uses beyond its share.
UNCOUNTED_7B = {"rollout, room of the cache": 1.17, "GPU: rollout's share, idle models": 1}


def ids(run: Path) -> str:
    return run.name


def title(job: training_result.Trained) -> str:
    """Return the run's name in the docs."""
    kind, gpus = job.launch["kind"].upper(), job.launch["gpus"]
    shape = "" if is_small(job) else " 7B"
    return f"{kind}{shape}" if gpus == 1 else f"{kind}{shape}, {gpus} GPUs"


def is_small(job: training_result.Trained) -> bool:
    return str(job.launch["model"]).endswith("/0.5b")


def test_there_is_a_recorded_run_of_each_kind() -> None:
    assert {training_result.read(run, 0).launch["kind"] for run in MEASURED} == {"grpo", "ppo"}


@pytest.mark.parametrize("run", MEASURED, ids=ids)
def test_estimate_is_within_15_percent_but_for_activations(run: Path) -> None:
    job = training_result.read(run, 0)
    parts = training_memory.parts(job)

    engine_logged = any("Available KV cache memory" in line for _, line in job.lines)
    assert len(parts) == (7 if engine_logged else 3)
    for part in parts:
        most = {**dict.fromkeys(UNCOUNTED[job.launch["gpus"]], 1), **({} if is_small(job) else UNCOUNTED_7B)}
        assert part.ratio == pytest.approx(1, abs=0.15) or part.ratio < most.get(part.name, 0), part


@pytest.mark.parametrize("run", MEASURED, ids=ids)
def test_memory_figures_in_the_docs_are_those_of_the_recorded_run(run: Path) -> None:
    job = training_result.read(run, 0)
    page = (CHECKOUT / "docs" / "configuration.md").read_text(encoding="utf-8")

    for part in training_memory.parts(job):
        assert f"| {' | '.join([title(job), *part.cells()])} |" in page


@pytest.mark.parametrize("run", MEASURED, ids=ids)
def test_hang_limit_in_the_docs_is_that_of_the_recorded_steps(run: Path) -> None:
    job = training_result.read(run, 0)
    times = [row["time"] for row in job.rows]
    clock = itertools.chain(times[:1], times)  # also read at the start
    progress = Progress(HangPolicy(), lambda: next(clock))
    for number in range(1, len(times) + 1):
        progress.step(number)
    seconds = [end - begin for begin, end in zip(times, times[1:])]
    page = " ".join((CHECKOUT / "docs" / "resume.md").read_text(encoding="utf-8").split())

    limit_s = progress.limit_s()
    assert limit_s is not None
    assert (
        f"{title(job)} {min(seconds):.1f} to {max(seconds):.1f} s "
        f"(median {statistics.median(seconds):.1f}, the first {job.per_step('step')[0]:.1f}), limit {limit_s:.0f} s"
    ) in page
    assert limit_s > 3 * max(seconds)
