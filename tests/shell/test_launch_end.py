"""The end of launch.sh: the choice of the verdict, the exit code, and result.json."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest

from tests.support.shell.rig import CHECKOUT, Rig
from tests.support.shell.step import DEMO, FOREVER, SUCCESS, ended, last_line, leaves
from tests.support.waiting import wait_for


@pytest.mark.parametrize("code", [0, 7, 69])
def test_the_heads_code_is_the_jobs(rig: Rig, code: int) -> None:
    rig.fake("step", leaves((0, ended(code)), (1, ended(143, origin="signal"))) + "\nexit 143")

    done = rig.launch(DEMO)

    assert done.returncode == code
    assert last_line(done).startswith(f"verdict: {code} (train on n1): x")


def test_a_failed_job_prints_the_first_failure_before_its_last_line(rig: Rig) -> None:
    verdict = "code=76 origin=self stage=cluster host=n2 cause=lost fix=requeue"
    rig.fake("step", leaves((0, verdict), (1, ended(143, origin="signal"))))

    *_, failure, where, fix, read, _ = rig.launch(DEMO).stdout.splitlines()

    assert [line.split(maxsplit=1) for line in (where, fix, read)] == [
        ["where", "n2"],
        ["fix", "requeue"],
        ["read", "docs/faults.md"],
    ]
    assert failure == "first failure ray-gcs: lost"


@pytest.mark.parametrize(("code", "said"), [(7, 1), (0, 0)])
def test_the_heads_explanation_is_printed_with_the_heads_verdict(rig: Rig, code: int, said: int) -> None:
    found = 'mkdir -p "$VERLJOB_RUN_DIR"; echo "found in the logs" > "$VERLJOB_RUN_DIR/explanation"\n'
    rig.fake("step", found + leaves((0, ended(code)), (1, ended(143, origin="signal"))))

    done = rig.launch(DEMO)

    assert done.stdout.count("found in the logs") == said
    assert "first failure" not in done.stdout
    assert last_line(done).startswith(f"verdict: {code} ")


def test_the_first_node_that_failed_gives_the_verdict_if_the_head_was_ended(rig: Rig) -> None:
    rig.fake("hosts", "n1\nn2\nn3\n")
    rig.fake("step", leaves((0, ended(143, origin="signal")), (1, ended(66, cause="y")), (2, ended(69))))

    done = rig.launch(DEMO)

    assert done.returncode == 66
    assert "y" in last_line(done)


@pytest.mark.parametrize(("blamed", "told"), [("n2", "oom"), ("n1", "lost")], ids=["of itself", "of the head"])
def test_a_lost_node_gives_the_verdict_if_it_left_one_about_itself(rig: Rig, blamed: str, told: str) -> None:
    head = "code=76 origin=self stage=train host=n2 cause=lost fix="
    worker = f"code=76 origin=self stage=container host={blamed} cause=oom fix="
    rig.fake("step", leaves((0, head), (1, worker)))

    assert last_line(rig.launch(DEMO)).endswith(f"on n2): {told}")


def test_a_node_without_a_verdict_is_named(rig: Rig) -> None:
    rig.fake("step", leaves((0, ended(143, origin="signal"))))

    done = rig.launch(DEMO)

    assert done.returncode == 76
    assert "node.sh was killed on n2" in last_line(done)


STEP = f'echo $$ > "$FAKE/step.pid"\n{FOREVER}'


def test_a_node_that_does_not_end_after_another_is_signalled_and_then_abandoned(rig: Rig) -> None:
    """A stopped node continues when signalled; a node that is lost with its machine would block srun forever.

    A cleanup step runs for it, since it may only be late, but not for long, since a lost node would block that, too.
    """
    rig.fake("step", leaves((0, ended(76, cause="lost"))) + f"\ntrap '' TERM\n{STEP}")
    rig.fake("sweep", FOREVER)
    began = time.monotonic()

    done = rig.launch(DEMO)

    assert done.returncode == 76
    assert time.monotonic() - began < 16
    assert rig.faked("scancel.argv").splitlines() == ["--signal=CONT 20", "--signal=TERM 20"]
    assert "lost" in last_line(done)
    assert "--nodelist=n2" in rig.faked("sweep.argv").splitlines()


def test_a_node_that_the_head_lost_is_abandoned_without_a_cleanup_step(rig: Rig) -> None:
    lost = "code=76 origin=self stage=cluster host=n2 cause=lost fix="
    rig.fake("step", leaves((0, lost)) + f"\ntrap '' TERM\n{STEP}")
    began = time.monotonic()

    done = rig.launch(DEMO)

    assert last_line(done).endswith("76 (cluster on n2): lost")
    assert time.monotonic() - began < 15
    assert not (rig.root / "fake" / "sweep.argv").exists()


def test_a_stopped_srun_is_continued_and_ends_the_job(rig: Rig) -> None:
    verdict = leaves((0, ended(143, origin="signal")), (1, ended(143, origin="signal")))
    step = f'end() {{\n{verdict}\nexit 143\n}}\ntrap end TERM\necho $$ > "$FAKE/step.pid"\nkill -STOP $$\n{FOREVER}'
    rig.fake("step", step)

    done = rig.launch(DEMO, VERLJOB_STALL_S="8")

    assert done.returncode == 76
    assert "srun was stopped on n1" in last_line(done)


def test_a_srun_that_is_stopped_for_less_than_the_patience_ends_nothing(rig: Rig) -> None:
    again = "srun=$$ && (sleep 5 && kill -CONT $srun) &\n"
    rig.fake("step", f"{again}kill -STOP $$\n{SUCCESS}")

    done = rig.launch(DEMO, VERLJOB_STALL_S="8")

    assert done.returncode == 0
    assert not (rig.root / "fake" / "scancel.argv").exists()


def test_no_verdict_at_all_ends_with_76(rig: Rig) -> None:
    done = rig.launch(DEMO)

    assert done.returncode == 76
    assert "no node left a verdict" in last_line(done)


def test_a_killed_srun_is_the_cause_if_no_node_left_a_verdict(rig: Rig) -> None:
    rig.fake("step", "kill -KILL $$")

    done = rig.launch(DEMO)

    assert done.returncode == 76
    assert "srun was killed on n1, or node.sh on n1 n2" in last_line(done)


def test_a_node_whose_node_sh_was_killed_is_cleaned_up_by_another_step(rig: Rig) -> None:
    containers = 'mkdir -p "$VERLJOB_RUN_DIR/nodes/1-n2"; echo code=143 > "$VERLJOB_RUN_DIR/nodes/1-n2/verdict"\n'
    rig.fake("step", containers + leaves((0, ended(143, origin="signal"))))

    rig.launch(DEMO)

    argv = rig.faked("sweep.argv").splitlines()
    assert {"--overlap", "--nodelist=n2", "--ntasks=1"} < set(argv)
    assert argv[-1] == "sweep"


@pytest.mark.parametrize(
    ("steps", "signalled"), [("20.batch\n20.extern\n", []), ("20.3\n20.batch\n", ["20.3"]), ("", [])]
)
def test_the_step_of_a_killed_srun_is_ended_by_its_number_and_no_later_one(
    rig: Rig, steps: str, signalled: list[str]
) -> None:
    rig.fake("steps", steps)
    rig.fake("step", "kill -KILL $$")

    rig.launch(DEMO)

    asked = rig.root / "fake" / "scancel.argv"
    assert (asked.read_text().split() if asked.exists() else []) == [
        word for step in signalled for word in ("--signal=TERM", step)
    ]


def test_all_steps_are_ended_if_slurm_does_not_list_them(rig: Rig) -> None:
    rig.fake("step", "kill -KILL $$")

    rig.launch(DEMO)

    assert rig.faked("scancel.argv").split() == ["--signal=TERM", "20"]


def test_no_cleanup_step_runs_if_every_node_left_a_verdict(rig: Rig) -> None:
    rig.fake("step", SUCCESS)

    rig.launch(DEMO)

    assert not (rig.root / "fake" / "sweep.argv").exists()


def test_a_node_that_does_not_see_the_checkout_ends_the_job_with_64(rig: Rig) -> None:
    rig.fake("step", 'SLURM_NODEID=1 SLURMD_NODENAME=n2 exec bash -c "${@:11:1}" verljob /nowhere')

    done = rig.launch(DEMO)

    assert done.returncode == 64
    assert "node n2 sees no /nowhere/slurm/node.sh" in last_line(done)
    assert "VERLJOB_HOME" in last_line(done)


def test_a_removed_run_directory_does_not_change_the_code(rig: Rig) -> None:
    rig.fake("step", 'rm -rf "$VERLJOB_RUN_DIR"\n' + leaves((0, ended(7))))

    done = rig.launch(DEMO)

    assert done.returncode == 7
    assert json.loads((rig.run_dir / "result.json").read_text())["code"] == 7


def test_a_verdict_of_an_earlier_job_does_not_count(rig: Rig) -> None:
    old = rig.work / "mine" / "nodes" / "0-n1"
    old.mkdir(parents=True)
    (old / "verdict").write_text("code=0\norigin=self\nstage=train\nhost=n1\ncause=old\nfix=\n")

    assert rig.launch(DEMO, VERLJOB_RUN_DIR=str(rig.work / "mine")).returncode == 76


def test_result_json_is_written_from_the_verdict(rig: Rig) -> None:
    rig.fake("step", leaves((0, ended(66, cause="'no \"model\" in C:\\\\x'"))))

    rig.launch(DEMO)

    result = json.loads((rig.run_dir / "result.json").read_text())
    assert result == {
        "code": 66, "attempt": 1, "stage": "train", "host": "n1", "class": "unknown",
        "cause": 'no "model" in C:\\\\x', "fix": "",
        "phases": {}, "nodes": ["n1", "n2"],
    }  # fmt: skip


PHASES = """printf 'head=1.500\\njoin=2.000\\n' > "$VERLJOB_RUN_DIR/phases"\n"""


@pytest.mark.parametrize(
    ("head", "worker", "code", "cause"),
    [
        (ended(0), ended(0), 0, "x"),
        (ended(76, cause="y"), ended(0), 76, "y"),
        (ended(143, origin="signal"), ended(66, cause="y"), 66, "y"),
    ],
    ids=["the head's verdict", "a failure of the head", "the verdict of a worker"],
)
def test_result_json_has_the_phases_that_the_head_left(rig: Rig, head: str, worker: str, code: int, cause: str) -> None:
    rig.fake("step", PHASES + leaves((0, head), (1, worker)))

    rig.launch(DEMO)

    result = json.loads((rig.run_dir / "result.json").read_text())
    assert (result["code"], result["cause"], result["nodes"]) == (code, cause, ["n1", "n2"])
    assert result["phases"] == {"head": 1.5, "join": 2.0}


@pytest.mark.parametrize(
    "lines",
    [
        "join=2.000\\nhead",
        "join=2.000\\na b=1.000\\n",
        'join=2.000\\n", "code=0.000\\nx=$(id)\\ny=1e9\\n',
        "\\njoin=2.000\\n",
    ],
)
def test_a_line_of_phases_that_is_not_valid_is_left_out(rig: Rig, lines: str) -> None:
    rig.fake("step", f"printf '{lines}' > \"$VERLJOB_RUN_DIR/phases\"\n" + leaves((0, ended(0)), (1, ended(0))))

    rig.launch(DEMO)

    assert json.loads((rig.run_dir / "result.json").read_text())["phases"] == {"join": 2.0}


def test_phases_of_an_earlier_job_do_not_count(rig: Rig) -> None:
    (rig.work / "mine").mkdir()
    (rig.work / "mine" / "phases").write_text("join=2.000\n")
    rig.fake("step", SUCCESS)

    rig.launch(DEMO, VERLJOB_RUN_DIR=str(rig.work / "mine"))

    assert json.loads((rig.work / "mine" / "result.json").read_text())["phases"] == {}


TOLD = ended(143, origin="signal")
NOT_TOLD = ended(76, origin="outside")


def test_a_container_that_was_ended_manually_is_the_cause_unless_the_job_was_ended(rig: Rig) -> None:
    rig.fake("step", leaves((0, ended(143, origin="signal")), (1, ended(76, origin="outside", cause="'by hand'"))))

    done = rig.launch(DEMO)

    assert done.returncode == 76
    assert "by hand" in last_line(done)


@pytest.mark.parametrize(
    ("left_s", "scancel_s", "head", "cause"),
    [
        (3600, 0, TOLD, "ended from outside (scancel or preemption)"),
        (3600, 60, TOLD, "ended from outside (scancel or preemption)"),
        (5, 0, TOLD, "reached its time limit, UNLIMITED"),
        (3600, 0, NOT_TOLD, "ended from outside (scancel or preemption)"),
    ],
    ids=["scancel", "requeue, of which scancel does not get an answer", "time limit", "node.sh was not told"],
)
def test_term_is_passed_on_to_the_step_and_its_reason_is_printed(
    rig: Rig, left_s: int, scancel_s: int, head: str, cause: str
) -> None:
    verdict = leaves((0, head), (1, TOLD))
    rig.fake("step", f'end() {{\n{verdict}\nexit 143\n}}\ntrap end TERM\necho $$ > "$FAKE/step.pid"\n{FOREVER}')
    words = ["bash", str(CHECKOUT / "slurm" / "launch.sh"), DEMO]
    told = {"SLURM_JOB_END_TIME": str(int(time.time()) + left_s), "FAKE_SCANCEL_S": str(scancel_s)}
    environment = {**rig.environment, **told}
    with subprocess.Popen(words, env=environment, cwd=rig.work, stdout=subprocess.PIPE, text=True) as launch:
        wait_for(rig.root / "fake" / "step.pid")
        launch.send_signal(signal.SIGUSR1)
        launch.send_signal(signal.SIGTERM)
        output, _ = launch.communicate(timeout=4)

    assert launch.returncode == 143
    assert rig.faked("scancel.argv") == "--signal=TERM 20\n"
    assert cause in output.splitlines()[-1]
