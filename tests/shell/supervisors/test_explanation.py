"""The head of a failed training explains it from the logs, within a time limit."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.node.supervised import Job

FAILURE = "OSError: AF_UNIX path length cannot exceed 107 bytes: /a/b"


def training(job: Job, words: str, code: int) -> str:
    folder = job.run_dir / "nodes" / "0-n0"
    return f"mkdir -p {folder}; echo '{words}' | tee {folder}/node.log; exit {code}"


def test_a_failed_training_writes_its_first_failure_to_the_run_directory(job: Job) -> None:
    job.start(FAKE_TRAINING=training(job, FAILURE, 3))

    assert job.end(0) == 3
    told = (job.run_dir / "explanation").read_text()
    assert told.startswith("first failure ray-gcs: Ray's temp dir is too long")
    assert "n0, " in told
    assert FAILURE in told


def test_a_secret_in_a_log_is_masked(job: Job) -> None:
    secret = "hf_" + "a1" * 16
    named = {"HF_TOKEN": secret, "VERLJOB_SECRET_NAMES": "HF_TOKEN"}
    job.start(FAKE_TRAINING=training(job, f"{FAILURE} {secret}", 3), **named)

    assert job.end(0) == 3
    assert secret not in (job.run_dir / "explanation").read_text()


def test_a_successful_training_writes_no_explanation(job: Job) -> None:
    job.start()

    assert job.end(0) == 0
    assert not (job.run_dir / "explanation").exists()


def test_logs_that_cannot_be_read_do_not_delay_the_end(job: Job, tmp_path: Path) -> None:
    """A FIFO without a writer stands for a file system that does not answer."""
    folder = job.run_dir / "nodes" / "0-n0"
    config = job.run_dir / "config.json"
    stuck = f"mkdir -p {folder}; echo x > {folder}/node.log; rm -f {config}; mkfifo {config}"
    job.start(FAKE_TRAINING=f"{stuck}; touch {tmp_path}/over; exit 3")
    job.until(0, "train: begin")
    while not (tmp_path / "over").exists():
        time.sleep(0.02)
    over = time.monotonic()

    assert job.end(0) == 3
    assert time.monotonic() - over < 6
    assert "the logs were not read in 2 s" in job.output(0)
