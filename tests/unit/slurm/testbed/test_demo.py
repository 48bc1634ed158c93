"""The summary of a demo names all that a newcomer looks for next."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import cast

import pytest

from slurm.testbed import Cluster, Job, demo
from tests.support.paths import RECORDED

RUN_DIR = RECORDED / "run_dir"
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


class Remembered:
    """Stands in for a cluster whose files a test writes."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def read(self, path: str) -> str:
        return self.files.get(path, "")


def test_progress_prints_the_output_until_the_nodes_report_and_nothing_twice() -> None:
    cluster, told = Remembered(), list[str]()
    progress = demo.Progress(cast("Cluster", cluster), "/run", told.append)
    steps = (RUN_DIR / "metrics.jsonl").read_text().splitlines(keepends=True)

    cluster.files[JOB.output] = "n1: pulling the image\n"
    progress.print_new(JOB)
    progress.print_new(JOB)
    cluster.files[JOB.output] += "words of verl\n"
    cluster.files["/run/events.jsonl"] = '{"phase": "train", "event": "begin", "host": "n1", "message": ""}\n'
    cluster.files["/run/metrics.jsonl"] = steps[0]
    progress.print_new(JOB)
    cluster.files["/run/metrics.jsonl"] += steps[1]
    progress.print_new(JOB)

    assert [line.split(",")[0] for line in told] == [
        "n1: pulling the image",
        "train      n1: begins",
        "train      step 1",
        "train      step 2",
    ]
