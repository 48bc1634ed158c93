"""Parser of a job's record, with lines of several releases of Slurm."""

from __future__ import annotations

import pytest

from slurm.testbed import Job
from tests.support.paths import RECORDED

LINE = (
    "JobId=1 JobName=verl UserId=submitter(2001) GroupId=submitter(2001) MCS_label=N/A Priority=4294901759 Nice=0 "
    "Account=(null) QOS=(null) JobState={state} Reason=None Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 "
    "ExitCode={code} RunTime=00:07:24 TimeLimit=UNLIMITED Partition=main AllocNode:Sid=login:104 ReqNodeList=(null) "
    "ExcNodeList=(null) NodeList={nodes} BatchHost=n1 NumNodes=2 ReqB:S:C:T=0:0:*:* TRES=cpu=16,mem=32G,node=2 "
    "Command=/home/submitter/verljob/slurm/launch.sh demo_cpu WorkDir=/home/submitter/verljob StdIn=/dev/null "
    "StdOut=/home/submitter/verljob/slurm-verl-1.out Power= TresPerNode=gres:gpu:1 \n"
)


def test_a_record_of_scontrol_is_parsed() -> None:
    job = Job.parse(LINE.format(state="FAILED", code="7:0", nodes="n[1-2]"))

    assert job == Job(1, "FAILED", 7, 0, "n[1-2]", "/home/submitter/verljob/slurm-verl-1.out")


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_words_of_the_user_are_no_fields(release: str) -> None:
    """The job's name, comment and arguments have the names of fields."""
    line = (RECORDED / "scontrol" / f"line-fields-{release}.txt").read_text()

    assert Job.parse(line) == Job(5, "COMPLETED", 0, 0, "n1", "/home/submitter/out")


def test_a_pending_job_has_no_nodes() -> None:
    assert Job.parse(LINE.format(state="PENDING", code="0:0", nodes="(null)")).nodes == ""


@pytest.mark.parametrize(
    ("state", "ended"),
    [("PENDING", False), ("RUNNING", False), ("COMPLETING", False), ("COMPLETED", True), ("NODE_FAIL", True)],
)
def test_a_job_has_ended_in_final_states(state: str, ended: bool) -> None:
    assert Job.parse(LINE.format(state=state, code="0:0", nodes="n1")).ended is ended
