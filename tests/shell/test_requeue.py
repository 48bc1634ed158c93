"""launch.sh requeues a job after some failures, and sets a deadline for its last checkpoint."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest

from tests.support.shell.rig import CHECKOUT, Rig, recorded
from tests.support.waiting import wait_for

LOST = "code=76 origin=self stage=cluster host=n2 cause=lost fix="


def leaves(verdict_text: str) -> str:
    """A step in which head and worker leave this verdict."""
    lines = (f"printf 'verljob-verdict\\t{node}'; printf '\\t%s' {verdict_text}; echo" for node in ("0-n1", "1-n2"))
    return "".join(f"{{ {line}; }} >&2\n" for line in lines)


@pytest.fixture
def requeuing(rig: Rig) -> Rig:
    """A job with --requeue whose cluster is lost."""
    rig.fake("job", rig.faked("job").replace("Requeue=0", "Requeue=1"))
    rig.fake("step", leaves(LOST))
    return rig


def requeued(rig: Rig) -> bool:
    return "scontrol requeue 20 " in rig.faked("calls")


def verdict(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.strip().splitlines()[-1]


def test_a_lost_cluster_is_requeued_after_the_verdict_is_printed(requeuing: Rig) -> None:
    done = requeuing.launch("demo_cpu")

    assert requeued(requeuing)
    assert verdict(done).startswith("verdict: 76 (cluster on n2): lost")
    assert "attempt 2 of 20 at most follows" in done.stderr
    assert json.loads((requeuing.run_dir / "result.json").read_text())["code"] == 76


@pytest.mark.parametrize(
    ("verdict_text", "again"),
    [
        ("code=75 origin=self stage=join host=n1 cause=x fix=", True),
        ("code=76 origin=self stage=hang host=n1 cause=x fix=", True),
        ("code=76 origin=self stage=lead host=n1 cause=x fix=", True),
        ("code=76 origin=self stage=train host=n1 cause=x fix=", False),
        ("code=75 origin=self stage=train host=n1 cause=x fix=", False),
        ("code=66 origin=self stage=model host=n1 cause=x fix=", False),
        ("code=0 origin=self stage=train host=n1 cause=x fix=", False),
    ],
)
def test_stage_and_code_decide_about_a_requeue(requeuing: Rig, verdict_text: str, again: bool) -> None:
    requeuing.fake("step", leaves(verdict_text))

    requeuing.launch("demo_cpu")

    assert requeued(requeuing) is again


def test_a_job_without_requeue_is_not_requeued(rig: Rig) -> None:
    rig.fake("step", leaves(LOST))

    rig.launch("demo_cpu")

    assert not requeued(rig)


def test_a_scancelled_job_is_not_requeued(requeuing: Rig) -> None:
    stopped = "code=143 origin=signal stage=train host=n1 cause=x fix="
    runs = 'echo $$ > "$FAKE/step.pid"\nwhile :; do sleep 0.1; done'
    requeuing.fake("step", f"end() {{\n{leaves(stopped)}\nexit 143\n}}\ntrap end TERM\n{runs}")
    with started(requeuing) as launch:
        launch.send_signal(signal.SIGTERM)
        launch.communicate(timeout=20)

    assert launch.returncode == 143
    assert not requeued(requeuing)


def test_the_number_of_attempts_is_limited(requeuing: Rig) -> None:
    done = requeuing.launch("demo_cpu", VERLJOB_ATTEMPTS="2", SLURM_RESTART_COUNT="1")

    assert not requeued(requeuing)
    assert "attempt 2 of 2 at most (VERLJOB_ATTEMPTS)" in done.stderr
    assert done.returncode == 76


@pytest.mark.parametrize("value", ["0", "many", "-1"])
def test_a_wrong_number_of_attempts_exits_with_64(rig: Rig, value: str) -> None:
    done = rig.launch("demo_cpu", VERLJOB_ATTEMPTS=value)

    assert done.returncode == 64
    assert "VERLJOB_ATTEMPTS" in verdict(done)


def test_three_attempts_without_a_checkpoint_exit_with_93(requeuing: Rig) -> None:
    phases = 'echo train=9.000 > "$VERLJOB_RUN_DIR/phases"\n'
    requeuing.fake("step", phases + leaves(LOST))

    done = requeuing.launch("demo_cpu", SLURM_RESTART_COUNT="2")

    assert done.returncode == 93
    assert not requeued(requeuing)
    assert verdict(done).startswith(
        "verdict: 93 (resume on n1): 3 attempts in a row saved no newer checkpoint; the last: lost"
    )
    result = json.loads((requeuing.run_dir.parent / "attempt-3" / "result.json").read_text())
    assert (result["code"], result["stage"], result["phases"]) == (93, "resume", {"train": 9.0})


@pytest.mark.parametrize("progress", ["attempt-3", "attempt-1"])
def test_one_checkpoint_in_three_attempts_is_progress(requeuing: Rig, progress: str) -> None:
    if progress == "attempt-3":
        requeuing.fake("step", 'echo 7 > "$VERLJOB_RUN_DIR/checkpoint"\n' + leaves(LOST))
    else:
        (requeuing.run_dir.parent / progress).mkdir(parents=True)
        (requeuing.run_dir.parent / progress / "checkpoint").write_text("7\n")

    requeuing.launch("demo_cpu", SLURM_RESTART_COUNT="2")

    assert requeued(requeuing)


def test_attempts_share_only_the_checkpoints(requeuing: Rig) -> None:
    requeuing.launch("demo_cpu", SLURM_RESTART_COUNT="1")

    env = requeuing.faked("srun.env")
    assert f"VERLJOB_RUN_DIR={requeuing.work}/verljob/20/attempt-2\n" in env
    assert f"VERLJOB_CHECKPOINTS={requeuing.work}/verljob/20/checkpoints\n" in env
    assert (requeuing.run_dir.parent / "attempt-2" / "result.json").exists()


def test_a_given_run_directory_contains_the_later_attempts(requeuing: Rig) -> None:
    for restarts in ("0", "1"):
        requeuing.launch("demo_cpu", VERLJOB_RUN_DIR="mine", SLURM_RESTART_COUNT=restarts)

    assert (requeuing.work / "mine" / "result.json").exists()
    assert (requeuing.work / "mine" / "attempt-2" / "result.json").exists()
    assert f"VERLJOB_CHECKPOINTS={requeuing.work}/mine/checkpoints\n" in requeuing.faked("srun.env")


def test_files_of_an_earlier_job_in_a_given_run_directory_are_removed(requeuing: Rig) -> None:
    (requeuing.work / "mine").mkdir()
    for name in ("checkpoint", "expires"):
        (requeuing.work / "mine" / name).write_text("7\n")

    requeuing.launch("demo_cpu", VERLJOB_RUN_DIR="mine")

    assert not {path.name for path in (requeuing.work / "mine").iterdir()} & {"checkpoint", "expires"}


def test_a_refused_requeue_is_reported(requeuing: Rig) -> None:
    (requeuing.root / "fake" / "refuses").touch()

    done = requeuing.launch("demo_cpu")

    assert done.returncode == 76
    assert "could not requeue job 20" in done.stderr


def started(rig: Rig, **more: str) -> subprocess.Popen[str]:
    """Start a launch and wait until its step runs."""
    launch = subprocess.Popen(
        ["bash", str(CHECKOUT / "slurm" / "launch.sh"), "demo_cpu"], env={**rig.environment, **more}, cwd=rig.work,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(rig.root / "fake" / "step.pid")
    return launch


# Ends when the deadline is set, or when the test creates the file `enough`.
TRAINING = """
echo $$ > "$FAKE/step.pid"
until [[ -e $VERLJOB_RUN_DIR/expires || -e $FAKE/enough ]]; do sleep 0.05; done
"""


def noticed(rig: Rig, end_in_s: int | None, **more: str) -> int:
    """The seconds that the training gets after Slurm's notice."""
    if end_in_s is not None:
        rig.fake("end", time.strftime("%Y-%m-%dT%H:%M:%S\n", time.localtime(time.time() + end_in_s)))
    rig.fake("step", TRAINING + leaves("code=76 origin=self stage=lead host=n1 cause=x fix="))
    with started(rig, **more) as launch:
        launch.send_signal(signal.SIGUSR1)
        now = time.time()
        launch.communicate(timeout=20)
    return round(int((rig.run_dir / "expires").read_text()) - now)


@pytest.mark.parametrize(
    ("end_in_s", "deadline_s"), [(120, 90), (86400, 3600), (None, 3600)], ids=["time limit", "preemption", "no limit"]
)
def test_slurms_notice_sets_the_deadline_for_one_more_checkpoint(
    requeuing: Rig, end_in_s: int | None, deadline_s: int
) -> None:
    assert noticed(requeuing, end_in_s) == pytest.approx(deadline_s, abs=3)
    assert requeued(requeuing)


def test_the_save_timeout_limits_the_wait_for_a_checkpoint(requeuing: Rig) -> None:
    assert noticed(requeuing, 86400, VERLJOB_SAVE_TIMEOUT_S="40") == pytest.approx(40, abs=3)


@pytest.mark.parametrize("attempts", ["20", "1"], ids=["no requeue", "the last attempt"])
def test_without_another_attempt_the_notice_sets_no_deadline(rig: Rig, attempts: str) -> None:
    if attempts == "1":
        rig.fake("job", rig.faked("job").replace("Requeue=0", "Requeue=1"))
    rig.fake("step", TRAINING + leaves("code=0 origin=self stage=train host=n1 cause=x fix="))
    with started(rig, VERLJOB_ATTEMPTS=attempts) as launch:
        launch.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        rig.fake("enough", "")
        _, output = launch.communicate(timeout=20)

    assert launch.returncode == 0
    assert "time is nearly over" in output
    assert not (rig.run_dir / "expires").exists()


def test_every_node_gets_the_end_of_the_job_from_squeue(rig: Rig) -> None:
    rig.fake("end", "2027-01-02T03:04:05\n")
    rig.fake("step", leaves("code=0 origin=self stage=train host=n1 cause=x fix="))

    rig.launch("demo_cpu", TZ="UTC")

    assert "SLURM_JOB_END_TIME=1798859045\n" in rig.faked("srun.env")


UNFIT = "code=69 origin=self stage=checks host=n2 cause=unfit fix="


def excluded(rig: Rig) -> list[str]:
    calls = rig.faked("calls").splitlines()
    return [call.split()[-1] for call in calls if call.startswith("scontrol update")]


def test_with_exclude_bad_the_job_is_requeued_without_unfit_nodes(requeuing: Rig) -> None:
    requeuing.fake("step", leaves(UNFIT))

    assert verdict(requeuing.launch("demo_cpu")).startswith("verdict: 69")
    assert not requeued(requeuing)

    requeuing.fake("job", requeuing.faked("job").replace("ExcNodeList=(null)", "ExcNodeList=n9"))
    done = requeuing.launch("demo_cpu", VERLJOB_EXCLUDE_BAD="1")
    assert requeued(requeuing)
    assert excluded(requeuing) == ["ExcNodeList=n9\\,n2"]
    assert verdict(done).startswith("verdict: 69")


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_words_of_the_jobs_name_and_arguments_are_no_fields(rig: Rig, release: str) -> None:
    """The name has Requeue=1 and ExcNodeList=n9."""
    rig.fake("step", leaves(UNFIT))
    record = recorded(f"fields-{release}")
    assert "JobName=a Requeue=1 ExcNodeList=n9\n" in record

    rig.fake("job", record)
    rig.launch("demo_cpu", VERLJOB_EXCLUDE_BAD="1")
    assert excluded(rig) == ["ExcNodeList=n2"]

    rig.fake("calls", "")
    rig.fake("job", record.replace("   Requeue=1", "   Requeue=0"))
    rig.launch("demo_cpu", VERLJOB_EXCLUDE_BAD="1")
    assert not requeued(rig)


LINES = "   JobState=RUNNING\n   Requeue=1 BatchFlag=1\n   Command=x"


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("JobName=verl", f"\n   UserId=x\n{LINES}"),
        ("QOS=(null)", " WCKey=w Requeue=1 BatchFlag=1"),
        ("launch.sh", f" {LINES}"),
        ("WorkDir=/tmp", f"\n{LINES}"),
    ],
)
def test_words_of_the_user_do_not_requeue_a_job(rig: Rig, field: str, words: str) -> None:
    rig.fake("step", leaves(LOST))
    record = rig.faked("job")
    assert record.count(field) == 1
    rig.fake("job", record.replace(field, field + words))
    name = f"verl{words}" if field == "JobName=verl" else "verl"

    assert verdict(rig.launch("demo_cpu", SLURM_JOB_NAME=name)).startswith("verdict: 76")
    assert not requeued(rig)


def test_every_node_with_failed_checks_is_excluded(requeuing: Rig) -> None:
    report = '{\n "bad": ["n2", "n3"],\n "exclude": "--exclude=n2,n3"\n}'
    requeuing.fake("step", f"printf '%s' '{report}' > \"$VERLJOB_RUN_DIR/checks.json\"\n" + leaves(UNFIT))

    requeuing.launch("doctor", VERLJOB_EXCLUDE_BAD="1")

    assert excluded(requeuing) == ["ExcNodeList=n2\\,n3"]


def test_code_69_of_another_stage_excludes_no_node(requeuing: Rig) -> None:
    requeuing.fake("step", leaves(UNFIT.replace("checks", "cluster")))

    requeuing.launch("demo_cpu", VERLJOB_EXCLUDE_BAD="1")

    assert not requeued(requeuing)
