"""Parser of a job's record, from several releases of Slurm."""

from __future__ import annotations

import re

import pytest

from slurm.testbed import Job
from tests.support.paths import RECORDED

TAKEN = (RECORDED / "scontrol" / "job-absolute.txt").read_text()


def record(**changes: str) -> str:
    """A recorded job with other values of some fields."""
    text = TAKEN
    for field, value in changes.items():
        text, count = re.subn(rf"(?m)(?<=[ \n]){field}=\S*", f"{field}={value}", text)
        assert count == 1
    return text


def test_a_record_of_scontrol_is_parsed() -> None:
    job = Job.parse(record(JobState="FAILED", ExitCode="7:0", StdOut="/home/submitter/my verl/slurm-verl-1.out"))

    assert job == Job(13, "FAILED", 7, 0, "n[1-2]", "/home/submitter/my verl/slurm-verl-1.out")


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
@pytest.mark.parametrize("name", ["a Requeue=1 ExcNodeList=n9", "a UserId=x JobState=FAILED NodeList=n9 Command=/x"])
def test_words_of_the_user_are_no_fields(release: str, name: str) -> None:
    """The job's name, comment and arguments have the names of fields."""
    text = (RECORDED / "scontrol" / f"job-fields-{release}.txt").read_text()

    assert Job.parse(text.replace("a Requeue=1 ExcNodeList=n9", name)) == Job(
        5, "COMPLETED", 0, 0, "n1", "/home/submitter/out"
    )


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_lines_of_the_user_are_no_fields(release: str) -> None:
    """The job's name has JobState=FAILED on a line of its own, its comment StdOut=/nowhere/x."""
    text = (RECORDED / "scontrol" / f"job-lines-{release}.txt").read_text()
    assert "\n   JobState=FAILED\n" in text
    assert "\n   StdOut=/nowhere/x" in text

    assert Job.parse(text) == Job(2, "COMPLETED", 0, 0, "n1", "/home/submitter/out-lines")


def test_a_pending_job_has_no_nodes() -> None:
    assert Job.parse(record(JobState="PENDING", NodeList="(null)")).nodes == ""


@pytest.mark.parametrize(
    ("state", "ended"),
    [("PENDING", False), ("RUNNING", False), ("COMPLETING", False), ("COMPLETED", True), ("NODE_FAIL", True)],
)
def test_a_job_has_ended_in_final_states(state: str, ended: bool) -> None:
    assert Job.parse(record(JobState=state)).ended is ended
