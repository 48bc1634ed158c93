"""Hangs, the time limit and signals of a training: the supervisors are real, the training is a script."""

from __future__ import annotations

import shutil
import time

from tests.support.node.supervised import Job
from tests.unit.verl_node.training.test_checkpoints import save

STEP = """echo '{"step": %d, "data": {}}' >> "$VERL_FILE_LOGGER_PATH"; sleep 1\n"""


def test_a_hang_has_every_node_write_its_stacks_and_ends_the_job(job: Job) -> None:
    steps = "".join(STEP % number for number in (1, 2))
    job.start(FAKE_TRAINING=f"{steps}exec sleep 300", VERLJOB_HANG="end", VERLJOB_HANG_MARGIN_S="1")

    assert (job.end(0), job.end(1)) == (76, 0)
    result = job.result()
    assert (result["code"], result["stage"], result["host"]) == (76, "hang", "n0")
    assert "made no step" in result["cause"]
    assert result["phases"]["train"] > 2
    stacks = sorted(path.parent.name for path in job.run_dir.glob("nodes/*/stacks-1.txt"))
    assert stacks == ["0-n0", "1-n1"]


def test_a_hang_is_only_reported_by_default(job: Job) -> None:
    steps = "".join(STEP % number for number in (1, 2))
    reported = f"grep --quiet 'train: no step for' {job.folder}/output0"
    job.start(FAKE_TRAINING=f"{steps}until {reported}; do sleep 0.1; done; sleep 1", VERLJOB_HANG_MARGIN_S="1")

    assert job.end(0) == 0
    assert "train: no step for" in job.output(0)


def test_after_slurms_notice_the_job_ends_with_the_next_checkpoint_and_its_metrics(job: Job) -> None:
    kept = save(job.folder / "elsewhere", 1)
    row = STEP % 1
    job.start(
        FAKE_TRAINING=f"echo trains; until [ -e {job.run_dir}/checkpoint ]; do sleep 0.1; done; {row}exec sleep 300",
        VERLJOB_CHECKPOINTS=str(job.folder / "checkpoints"),
    )
    job.until(0, "^trains")
    (job.run_dir / "expires").write_text(f"{time.time() + 60:.0f}\n")
    job.until(0, "training ends at its next checkpoint")
    shutil.copytree(kept.parent, job.folder / "checkpoints")

    assert job.end(0) == 76
    result = job.result()
    assert (result["stage"], result["host"]) == ("lead", "n0")
    assert "at the checkpoint of step 1" in result["cause"]
    assert (job.run_dir / "checkpoint").read_text() == "1\n"
    assert '"step": 1' in (job.run_dir / "metrics.jsonl").read_text()


def test_a_term_to_the_whole_step_is_not_the_trainings_own_end(job: Job) -> None:
    job.start(FAKE_TRAINING="(sleep 0.3; kill -TERM $PPID) > /dev/null 2>&1 & kill -TERM $$")

    assert job.end(0) == 143
    assert "Ended from outside by SIGTERM" in job.result()["cause"]


def test_a_node_that_is_lost_while_training_runs_is_not_the_trainings_own_end(job: Job) -> None:
    job.start(FAKE_TRAINING="echo trains; exec sleep 300")
    job.until(0, "^trains")

    job.processes[1].kill()

    assert job.end(0) == 76
    assert job.result()["stage"] == "cluster"
