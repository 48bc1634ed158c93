"""Progress and summary of a demo, from recordings of a real one (verl 0.9.1 on two rehearsal nodes)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import cast

import pytest

from slurm.testbed import Cluster, Job, demo
from tests.support.paths import RECORDED

RUN_DIR = RECORDED / "run_dir"
EVENTS = demo.parse((RUN_DIR / "events.jsonl").read_text())
STEPS = demo.parse((RUN_DIR / "metrics.jsonl").read_text())
JOB = Job(3, "COMPLETED", 0, 0, "n[1-2]", "/home/submitter/verljob/slurm-verl-3.out")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "attempt-1"
    shutil.copytree(RUN_DIR, folder)
    shard = folder.parent / "checkpoints/global_step_4/actor/model_world_size_2_rank_1.pt"
    shard.parent.mkdir(parents=True)
    shard.touch()
    return folder


def test_the_summary_has_nodes_phases_steps_checkpoint_and_paths(run_dir: Path) -> None:
    lines = demo.summary(run_dir, JOB).splitlines()

    assert lines[0] == "job 3      COMPLETED, exit code 0, on n[1-2]"
    assert "phases     checks 0 s, join 19 s, head 5 s, cluster 3 s, data 1 s, model 20 s, train 312 s" in lines
    assert [line.split(",")[0] for line in lines if line.startswith("training")] == [
        f"training   step {number}" for number in (1, 2, 3, 4)
    ]
    assert "checkpoint checkpoints/global_step_4/actor/model_world_size_2_rank_1.pt" in lines
    assert lines[-1] == f"output     {run_dir.parent}/slurm-verl-3.out"


def test_the_summary_of_a_failed_job_has_its_last_lines(run_dir: Path) -> None:
    (run_dir.parent / "slurm-verl-3.out").write_text("verdict: 66 (image on n2): no image\n")
    failed = Job(3, "FAILED", 66, 0, "n[1-2]", JOB.output)

    assert demo.summary(run_dir, failed).splitlines()[-1] == "verdict: 66 (image on n2): no image"


def test_a_job_without_files_has_a_summary(tmp_path: Path) -> None:
    lines = demo.summary(tmp_path / "attempt-1", Job(3, "FAILED", 64, 0, "n1", "/x/slurm-verl-3.out")).splitlines()

    assert lines[0] == "job 3      FAILED, exit code 64, on n1"


class FakeCluster:
    """A cluster with files of a test."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def read(self, path: str) -> str:
        return self.files.get(path, "")


def test_progress_prints_the_output_until_the_nodes_report_and_nothing_twice() -> None:
    cluster, printed = FakeCluster(), list[str]()
    progress = demo.Progress(cast("Cluster", cluster), "/run", printed.append)
    steps = (RUN_DIR / "metrics.jsonl").read_text().splitlines(keepends=True)

    cluster.files[JOB.output] = "n1: pulling the image\n"
    progress.print_new(JOB)
    progress.print_new(JOB)
    cluster.files[JOB.output] += "output of verl\n"
    cluster.files["/run/events.jsonl"] = '{"phase": "train", "event": "begin", "host": "n1", "message": ""}\n'
    cluster.files["/run/metrics.jsonl"] = steps[0]
    progress.print_new(JOB)
    cluster.files["/run/metrics.jsonl"] += steps[1]
    progress.print_new(JOB)

    assert [line.split(",")[0] for line in printed] == [
        "n1: pulling the image",
        "train      n1: begins",
        "train      step 1",
        "train      step 2",
    ]


def test_a_step_is_described_with_seconds_reward_and_gradient() -> None:
    assert demo.describe(STEPS[0]) == "train      step 1, 52.2 s, reward 0.3125, grad norm 0.4899"


def test_a_step_with_validation_is_described_with_it() -> None:
    assert ", validation 0." in demo.describe_step(STEPS[3])


def test_the_end_of_a_phase_is_described_with_host_and_seconds() -> None:
    assert "head       n1: done in 5.1 s" in [demo.describe(event) for event in EVENTS]


def test_the_beginning_of_a_short_phase_is_not_printed() -> None:
    assert demo.describe(EVENTS[0]) == ""


def test_the_beginning_of_training_is_printed() -> None:
    assert "train      n1: begins" in [demo.describe(event) for event in EVENTS]


def test_an_error_is_described() -> None:
    event = {"phase": "join", "host": "n2", "event": "error", "message": "the head is gone"}

    assert demo.describe(event) == "join       n2: error: the head is gone"


def test_the_last_state_of_a_progress_bar_is_described() -> None:
    event = {"phase": "model", "host": "n1", "event": "note", "message": "\rshards: 0%\rshards: 100%"}

    assert demo.describe(event) == "model      n1: shards: 100%"


def test_an_incomplete_last_line_is_ignored() -> None:
    assert demo.parse('{"step": 1}\n{"st') == [{"step": 1}]


def test_a_phase_lasts_as_long_as_on_its_slowest_node() -> None:
    seconds = demo.phase_seconds(EVENTS)

    assert list(seconds) == ["checks", "join", "head", "cluster", "data", "model", "train"]
    assert seconds["model"] == 19.528
