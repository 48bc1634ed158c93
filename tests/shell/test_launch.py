"""launch.sh: finds itself, refuses what cannot work at once, starts one step and says how it ended."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.shell.rig import CHECKOUT, Rig, mode, recorded

DEMO = "demo_cpu"
VERSION = "readonly LAUNCH_VERSION="


FOREVER = "while :; do sleep 0.1; done\n"


def leaves(*verdicts: tuple[int, str]) -> str:
    """A step whose nodes leave these verdicts: node number and the verdict's words."""
    return "\n".join(
        f"{{ printf 'verljob-verdict\\t{node_id}-n{node_id + 1}'; printf '\\t%s' {words}; echo; }} >&2"
        for node_id, words in verdicts
    )


def ended(code: int, *, origin: str = "self", cause: str = "x") -> str:
    return f"code={code} origin={origin} stage=train host=n1 cause={cause} fix="


WELL = leaves((0, ended(0)), (1, ended(0)))


def last(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.strip().splitlines()[-1]


@pytest.fixture
def spooled(rig: Rig) -> Path:
    """What Slurm runs: a copy under another name, far from the checkout."""
    return Path(shutil.copy(CHECKOUT / "slurm" / "launch.sh", rig.root / "slurm_script"))


@pytest.fixture
def elsewhere(rig: Rig) -> Path:
    """The checkout's slurm folder under a path with a space."""
    shutil.copytree(
        CHECKOUT / "slurm", rig.work / "my verl" / "slurm", ignore=shutil.ignore_patterns("testbed", "*.py")
    )
    return rig.work / "my verl"


@pytest.mark.parametrize("name", ["relative", "absolute"])
def test_it_finds_itself_by_the_path_that_scontrol_tells(rig: Rig, spooled: Path, name: str) -> None:
    rig.record(name, f"{CHECKOUT}/slurm/launch.sh no_such")

    assert "no recipe 'no_such'" in last(rig.launch("no_such", script=spooled))


def test_arguments_that_slurm_does_not_quote_are_told_from_the_path(rig: Rig, spooled: Path, elsewhere: Path) -> None:
    rig.record("space", f"{elsewhere}/slurm/launch.sh no_such a.b=x y")

    assert "no recipe 'no_such'" in last(rig.launch("no_such", "a.b=x y", script=spooled))


def test_a_relative_command_is_taken_from_the_submit_folder(rig: Rig, spooled: Path, elsewhere: Path) -> None:
    rig.record("chdir", "my verl/slurm/launch.sh")

    done = rig.launch(script=spooled)

    assert done.returncode == 64
    assert "--gpus-per-node=8" in last(done)


def test_a_symlink_is_followed(rig: Rig, spooled: Path) -> None:
    (rig.home / "train.sh").symlink_to(CHECKOUT / "slurm" / "launch.sh")
    rig.record("symlink", f"{rig.home}/train.sh no_such")

    assert "no recipe 'no_such'" in last(rig.launch("no_such", script=spooled))


def test_a_script_from_standard_input_is_looked_for_in_the_submit_folder(
    rig: Rig, spooled: Path, elsewhere: Path
) -> None:
    rig.fake("job", recorded("stdin"))

    found = rig.launch("no_such", script=spooled, SLURM_SUBMIT_DIR=str(elsewhere))
    lost = rig.launch("no_such", script=spooled, SLURM_SUBMIT_DIR=str(rig.home))

    assert "no recipe 'no_such'" in last(found)
    assert "export VERLJOB_HOME=" in last(lost)


def test_verljob_home_goes_before_what_scontrol_tells(rig: Rig, spooled: Path, elsewhere: Path) -> None:
    rig.record("relative", "/nowhere/slurm/launch.sh")

    assert "no recipe 'no_such'" in last(rig.launch("no_such", script=spooled, VERLJOB_HOME=str(elsewhere)))


def test_a_checkout_of_another_version_is_refused(rig: Rig, spooled: Path, elsewhere: Path) -> None:
    node = elsewhere / "slurm" / "node.sh"
    node.write_text(node.read_text().replace(VERSION, f"{VERSION}9."))

    done = rig.launch(script=spooled, VERLJOB_HOME=str(elsewhere))

    assert done.returncode == 64
    assert re.search(r"^verdict: 64 .* of version .* — export VERLJOB_HOME=", last(done))


def test_both_scripts_bear_the_version_of_the_project() -> None:
    version = re.search(r'^version = "(.+)"', (CHECKOUT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version

    for name in ("launch.sh", "node.sh"):
        assert f"\n{VERSION}{version.group(1)} " in (CHECKOUT / "slurm" / name).read_text()


def test_outside_an_allocation_it_says_how_to_submit(rig: Rig) -> None:
    done = rig.launch(DEMO, SLURM_JOB_ID="<unset>")

    assert done.returncode == 64
    assert "sbatch" in last(done)


def test_an_unknown_recipe_ends_with_the_list(rig: Rig) -> None:
    done = rig.launch("gsm9k")

    assert done.returncode == 64
    assert all(name in last(done) for name in ("gsm9k", "gsm8k_ppo", "gsm8k_grpo", DEMO, "cluster"))


def test_no_argument_means_gsm8k_ppo_which_needs_gpus(rig: Rig) -> None:
    done = rig.launch()

    assert done.returncode == 64
    assert "gsm8k_ppo" in last(done)
    assert "--gpus-per-node=8" in last(done)
    assert not rig.run_dir.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [("SLURM_JOB_GPUS", "0,1"), ("SLURM_GPUS_ON_NODE", "8"), ("SLURM_GPUS_PER_NODE", "mi300x:8")],
)
def test_gpus_are_known_by_any_of_slurms_variables(rig: Rig, name: str, value: str) -> None:
    rig.fake("step", WELL)
    rig.environment[name] = value

    assert rig.launch(VERLJOB_PLATFORM="cpu").returncode == 0


def test_gpus_are_known_by_the_jobs_record(rig: Rig) -> None:
    rig.fake("job", rig.faked("job") + "   TresPerNode=gres:gpu:2\n")
    rig.fake("step", WELL)

    assert rig.launch(VERLJOB_PLATFORM="cpu").returncode == 0


def test_a_heterogeneous_job_is_refused(rig: Rig) -> None:
    done = rig.launch(DEMO, SLURM_HET_SIZE="2")

    assert done.returncode == 64
    assert "heterogeneous" in last(done)


def test_from_salloc_it_goes_to_the_first_node_by_one_srun(rig: Rig) -> None:
    done = rig.launch(DEMO, "a=1", SLURMD_NODENAME="<unset>")

    argv = rig.faked("srun.argv").splitlines()
    assert done.returncode == 0
    assert {"--overlap", "--nodelist=n1", "--ntasks=1", "--export=ALL"} < set(argv)
    assert argv[-4:] == ["bash", f"{CHECKOUT}/slurm/launch.sh", DEMO, "a=1"]
    assert "VERLJOB_MOVED=1\n" in rig.faked("srun.env")


def test_on_another_node_than_the_first_it_goes_no_further(rig: Rig) -> None:
    done = rig.launch(DEMO, SLURMD_NODENAME="n2", VERLJOB_MOVED="1")

    assert done.returncode == 64
    assert "n2, not the first node n1" in last(done)


def test_an_override_that_is_none_is_refused(rig: Rig) -> None:
    done = rig.launch(DEMO, "trainer.nnodes")

    assert done.returncode == 64
    assert "'trainer.nnodes' is no override" in last(done)


def test_the_step_is_one_srun_that_says_everything_itself(rig: Rig) -> None:
    rig.fake("step", WELL)

    rig.launch(DEMO)

    argv = rig.faked("srun.argv").splitlines()
    assert argv[:10] == [
        "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=16", "--cpu-bind=none", "--export=ALL",
        "--kill-on-bad-exit=1", "--input=none", "bash", "-c",
    ]  # fmt: skip
    assert argv[-2:] == ["verljob", str(CHECKOUT)]


def test_unequal_nodes_get_tasks_of_the_smaller_size(rig: Rig) -> None:
    rig.fake("step", WELL)

    rig.launch(DEMO, SLURM_JOB_CPUS_PER_NODE="56(x3),28,112")

    assert "--cpus-per-task=28\n" in rig.faked("srun.argv")


def test_every_node_is_told_what_the_flow_promises(rig: Rig) -> None:
    rig.fake("step", WELL)

    rig.launch(DEMO, "a.b=x y", "+c=1")

    env = rig.faked("srun.env")
    told = dict(line.split("=", 1) for line in env.splitlines() if line.startswith("VERLJOB_"))
    assert told["VERLJOB_HOME"] == str(CHECKOUT)
    assert (told["VERLJOB_PLATFORM"], told["VERLJOB_RUNTIME"], told["VERLJOB_PROFILE"]) == ("cpu", "docker", "")
    assert told["VERLJOB_IMAGE"] == "verl.cpu:latest"
    assert told["VERLJOB_RECIPE"] == f"{CHECKOUT}/slurm/recipes/{DEMO}.yaml"
    assert (told["VERLJOB_RUN_DIR"], told["VERLJOB_ATTEMPT"]) == (str(rig.run_dir), "1")
    assert (told["VERLJOB_HEAD_NODE"], told["VERLJOB_NODELIST_HOSTS"]) == ("n1", "n1,n2")
    assert "VERLJOB_OVERRIDES=a.b=x y\n+c=1\n" in env
    assert (rig.run_dir / "overrides").read_text() == "a.b=x y\n+c=1\n"
    control, gcs, dashboard = map(int, told["VERLJOB_HEAD_PORTS"].split(","))
    assert 32512 <= control < gcs < dashboard <= 32767


def test_the_token_is_random_and_in_no_command(rig: Rig) -> None:
    tokens = set()
    for _ in range(2):
        rig.fake("step", WELL)
        done = rig.launch(DEMO)
        token = re.search(r"^VERLJOB_TOKEN=([0-9a-f]{64})$", rig.faked("srun.env"), re.MULTILINE)
        assert token
        tokens.add(token.group(1))
        assert token.group(1) not in rig.faked("srun.argv") + done.stdout + done.stderr

    assert len(tokens) == 2


def test_the_platform_is_the_users_then_the_recipes_then_the_profiles(rig: Rig) -> None:
    profile = rig.work / "site.env"
    profile.write_text("VERLJOB_PLATFORM=rocm\nNCCL_SOCKET_IFNAME=ib0\n")
    rig.fake("step", WELL)

    rig.launch(SLURM_GPUS_ON_NODE="8", VERLJOB_PROFILE=str(profile))

    assert "VERLJOB_PLATFORM=rocm\n" in rig.faked("srun.env")
    rig.launch(SLURM_GPUS_ON_NODE="8", VERLJOB_PROFILE=str(profile), VERLJOB_PLATFORM="cuda")
    assert "VERLJOB_PLATFORM=cuda\n" in rig.faked("srun.env")


def test_a_requeued_job_gets_the_next_attempt(rig: Rig) -> None:
    rig.fake("step", WELL)

    rig.launch(DEMO, SLURM_RESTART_COUNT="1")

    assert (rig.run_dir.parent / "attempt-2" / "result.json").exists()


@pytest.mark.parametrize("code", [0, 7, 69])
def test_the_heads_code_is_the_jobs(rig: Rig, code: int) -> None:
    rig.fake("step", leaves((0, ended(code)), (1, ended(143, origin="signal"))) + "\nexit 143")

    done = rig.launch(DEMO)

    assert done.returncode == code
    assert last(done).startswith(f"verdict: {code} (train on n1): x")


def test_a_failed_job_tells_the_first_failure_before_its_last_line(rig: Rig) -> None:
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
def test_what_the_head_found_in_the_logs_stands_for_a_verdict_of_its_own(rig: Rig, code: int, said: int) -> None:
    found = 'mkdir -p "$VERLJOB_RUN_DIR"; echo "found in the logs" > "$VERLJOB_RUN_DIR/explanation"\n'
    result = f'echo \'{{"code": {code}, "stage": "train"}}\' > "$VERLJOB_RUN_DIR/result.json"\n'
    rig.fake("step", found + result + leaves((0, ended(code)), (1, ended(143, origin="signal"))))

    done = rig.launch(DEMO)

    assert done.stdout.count("found in the logs") == said
    assert "first failure" not in done.stdout
    assert last(done).startswith(f"verdict: {code} ")


def test_the_first_node_that_failed_by_itself_speaks_for_a_head_that_was_ended(rig: Rig) -> None:
    rig.fake("hosts", "n1\nn2\nn3\n")
    rig.fake("step", leaves((0, ended(143, origin="signal")), (1, ended(66, cause="y")), (2, ended(69))))

    done = rig.launch(DEMO)

    assert done.returncode == 66
    assert "y" in last(done)


@pytest.mark.parametrize(("blamed", "told"), [("n2", "oom"), ("n1", "lost")], ids=["of itself", "of the head"])
def test_a_node_that_the_head_lost_speaks_for_itself_where_it_can(rig: Rig, blamed: str, told: str) -> None:
    head = "code=76 origin=self stage=train host=n2 cause=lost fix="
    worker = f"code=76 origin=self stage=container host={blamed} cause=oom fix="
    rig.fake("step", HEADS_RESULT + leaves((0, head), (1, worker)))

    assert last(rig.launch(DEMO)).endswith(f"on n2): {told}")


def test_a_node_that_was_not_heard_of_is_named(rig: Rig) -> None:
    rig.fake("step", leaves((0, ended(143, origin="signal"))))

    done = rig.launch(DEMO)

    assert done.returncode == 76
    assert "node.sh was killed on n2" in last(done)


STEP = f'echo $$ > "$FAKE/step.pid"\n{FOREVER}'


def test_a_node_that_does_not_end_after_another_is_asked_and_then_left_behind(rig: Rig) -> None:
    """One that was stopped goes on when asked; one that is gone with its machine would hold srun without end."""
    rig.fake("step", leaves((0, ended(76, cause="lost"))) + f"\ntrap '' TERM\n{STEP}")
    began = time.monotonic()

    done = rig.launch(DEMO)

    assert done.returncode == 76
    assert time.monotonic() - began < 12
    assert rig.faked("scancel.argv").splitlines() == ["--signal=CONT 20", "--signal=TERM 20"]
    assert "lost" in last(done)
    assert not (rig.root / "fake" / "sweep.argv").exists()  # it would wait for the lost node as well


def test_a_stopped_srun_goes_on_and_ends_the_job(rig: Rig) -> None:
    verdict = leaves((0, ended(143, origin="signal")), (1, ended(143, origin="signal")))
    step = f'end() {{\n{verdict}\nexit 143\n}}\ntrap end TERM\necho $$ > "$FAKE/step.pid"\nkill -STOP $$\n{FOREVER}'
    rig.fake("step", step)

    done = rig.launch(DEMO)

    assert done.returncode == 76
    assert "srun was stopped on n1" in last(done)


def test_no_verdict_at_all_ends_with_76(rig: Rig) -> None:
    done = rig.launch(DEMO)

    assert done.returncode == 76
    assert "no node left a verdict" in last(done)


def test_a_killed_srun_is_the_cause_where_its_nodes_went_with_it_without_a_word(rig: Rig) -> None:
    rig.fake("step", "kill -KILL $$")

    done = rig.launch(DEMO)

    assert done.returncode == 76
    assert "srun was killed on n1, or node.sh on n1 n2" in last(done)


def test_a_node_where_node_sh_was_killed_is_looked_after_by_a_step_of_its_own(rig: Rig) -> None:
    containers = 'mkdir -p "$VERLJOB_RUN_DIR/nodes/1-n2"; echo code=143 > "$VERLJOB_RUN_DIR/nodes/1-n2/verdict"\n'
    rig.fake("step", containers + leaves((0, ended(143, origin="signal"))))

    rig.launch(DEMO)

    argv = rig.faked("sweep.argv").splitlines()
    assert {"--overlap", "--nodelist=n2", "--ntasks=1"} < set(argv)
    assert argv[-1] == "sweep"


def test_no_second_step_is_made_where_every_node_was_heard_of(rig: Rig) -> None:
    rig.fake("step", WELL)

    rig.launch(DEMO)

    assert not (rig.root / "fake" / "sweep.argv").exists()


def test_a_node_that_does_not_see_the_checkout_ends_the_job_with_64(rig: Rig) -> None:
    rig.fake("step", 'SLURM_NODEID=1 SLURMD_NODENAME=n2 exec bash -c "${@:11:1}" verljob /nowhere')

    done = rig.launch(DEMO)

    assert done.returncode == 64
    assert "node n2 sees no /nowhere/slurm/node.sh" in last(done)
    assert "VERLJOB_HOME" in last(done)


def test_a_run_directory_that_goes_away_does_not_change_the_code(rig: Rig) -> None:
    rig.fake("step", 'rm -rf "$VERLJOB_RUN_DIR"\n' + leaves((0, ended(7))))

    done = rig.launch(DEMO)

    assert done.returncode == 7
    assert json.loads((rig.run_dir / "result.json").read_text())["code"] == 7


def test_a_verdict_of_an_earlier_job_does_not_speak_for_this_one(rig: Rig) -> None:
    old = rig.work / "mine" / "nodes" / "0-n1"
    old.mkdir(parents=True)
    (old / "verdict").write_text("code=0\norigin=self\nstage=train\nhost=n1\ncause=old\nfix=\n")

    assert rig.launch(DEMO, VERLJOB_RUN_DIR=str(rig.work / "mine")).returncode == 76


def test_result_json_is_written_where_no_node_wrote_it(rig: Rig) -> None:
    rig.fake("step", leaves((0, ended(66, cause="'no \"model\" in C:\\\\x'"))))

    rig.launch(DEMO)

    result = json.loads((rig.run_dir / "result.json").read_text())
    assert result == {
        "code": 66, "attempt": 1, "stage": "train", "host": "n1", "cause": 'no "model" in C:\\\\x', "fix": "",
        "phases": {}, "nodes": ["n1", "n2"],
    }  # fmt: skip


HEADS_RESULT = (
    """printf '{"code": 143, "phases": {"head": 1.5, "join": 2.0}, "nodes": []}' > "$VERLJOB_RUN_DIR/result.json"\n"""
)


def test_a_result_json_of_a_head_that_speaks_for_the_job_is_left_alone(rig: Rig) -> None:
    rig.fake("step", HEADS_RESULT + leaves((0, ended(143)), (1, ended(0))))

    rig.launch(DEMO)

    assert json.loads((rig.run_dir / "result.json").read_text())["nodes"] == []


def test_a_result_json_of_a_container_whose_node_sh_knew_better_is_written_again(rig: Rig) -> None:
    rig.fake("step", HEADS_RESULT + leaves((0, ended(76, cause="y")), (1, ended(0))))

    rig.launch(DEMO)

    assert json.loads((rig.run_dir / "result.json").read_text())["cause"] == "y"


def test_a_result_json_of_a_head_that_was_ended_gets_the_cause_and_keeps_the_phases(rig: Rig) -> None:
    rig.fake("step", HEADS_RESULT + leaves((0, ended(143, origin="signal")), (1, ended(66, cause="y"))))

    rig.launch(DEMO)

    result = json.loads((rig.run_dir / "result.json").read_text())
    assert (result["code"], result["cause"]) == (66, "y")
    assert result["phases"] == {"head": 1.5, "join": 2.0}


def test_the_first_lines_name_what_matters(rig: Rig) -> None:
    rig.fake("step", WELL)

    first = rig.launch(DEMO).stdout.splitlines()[:6]

    assert re.match(r"job +20, demo_cpu on 2 nodes: n1 n2$", first[0])
    assert "verl.cpu:latest" in first[1]
    assert str(rig.run_dir) in first[2]
    assert re.search(r"ssh -N -L (\d+):127\.0\.0\.1:\1 -J \S+@login \S+@n1, then http://localhost:\1$", first[3])
    token = rig.root / "local" / f"verljob-{os.getuid()}-20-1-0" / "token"
    assert first[4].startswith("its token   srun --jobid=20 --overlap ")
    assert first[4].endswith(f"--nodelist=n1 cat {token}")
    assert re.match(r"time limit +UNLIMITED, until ", first[5])


@pytest.mark.parametrize(
    ("asked", "words"), [("0", "dashboard   off"), ("node", r"dashboard   ssh -N -L (\d+):n1:\1 \S+@login, then")]
)
def test_the_dashboard_may_be_off_or_on_the_heads_address(rig: Rig, asked: str, words: str) -> None:
    rig.fake("step", WELL)

    assert re.match(words, rig.launch(DEMO, VERLJOB_DASHBOARD=asked).stdout.splitlines()[3])


def test_a_dashboard_anywhere_else_is_refused(rig: Rig) -> None:
    done = rig.launch(DEMO, VERLJOB_DASHBOARD="0.0.0.0")  # noqa: S104  what is refused

    assert done.returncode == 64
    assert "VERLJOB_DASHBOARD=0.0.0.0" in done.stdout


def test_a_run_directory_that_cannot_be_made_ends_with_77(rig: Rig) -> None:
    (rig.work / "file").write_text("")

    done = rig.launch(DEMO, VERLJOB_RUN_DIR=str(rig.work / "file" / "run"))

    assert done.returncode == 77
    assert "VERLJOB_RUN_DIR" in last(done)


@pytest.mark.parametrize(
    ("left_s", "scancel_s", "cause"),
    [
        (3600, 0, "ended from outside (scancel or preemption)"),
        (3600, 60, "ended from outside (scancel or preemption)"),
        (5, 0, "reached its time limit, UNLIMITED"),
    ],
    ids=["scancel", "requeue, of which scancel does not get an answer", "time limit"],
)
def test_term_is_passed_on_to_the_step_and_its_reason_is_told(
    rig: Rig, left_s: int, scancel_s: int, cause: str
) -> None:
    verdict = leaves((0, ended(143, origin="signal")), (1, ended(143, origin="signal")))
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


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 10
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.05)


def test_nothing_of_the_launch_stays_on_the_node(rig: Rig) -> None:
    rig.fake("step", WELL)

    rig.launch(DEMO)

    assert [path.name for path in (rig.root / "ports").iterdir()] == ["guard"]
    assert mode(rig.run_dir / "overrides") == 0o644
    assert sorted(path.name for path in rig.run_dir.iterdir()) == ["nodes", "overrides", "result.json"]


def settings_of(rig: Rig, *words: str) -> dict[str, str]:
    """What a step is told of the recipe, and of the visit."""
    names = "VERLJOB_DOCTOR VERLJOB_RECIPE VERLJOB_OVERRIDES VERLJOB_JOIN_TIMEOUT_S"
    rig.fake("step", f'for name in {names}; do printf "%s=%q\\n" "$name" "${{!name-}}"; done > "$FAKE/told"\n')
    rig.launch(*words, VERLJOB_DOCTOR="deep")
    return dict(line.split("=", 1) for line in rig.faked("told").splitlines())


def test_doctor_is_a_visit_to_a_cluster_without_a_recipe(rig: Rig) -> None:
    told = settings_of(rig, "doctor")

    assert (told["VERLJOB_DOCTOR"], told["VERLJOB_RECIPE"]) == ("quick", "cluster")
    assert told["VERLJOB_JOIN_TIMEOUT_S"] == "60"


def test_a_deep_visit_with_a_recipe_trains_one_step(rig: Rig) -> None:
    told = settings_of(rig, "doctor", "--deep", "demo_cpu", "data.seed=3")

    assert told["VERLJOB_DOCTOR"] == "deep"
    assert told["VERLJOB_RECIPE"].endswith("demo_cpu.yaml")
    assert "data.seed=3" in told["VERLJOB_OVERRIDES"]
    assert "trainer.total_training_steps=1" in told["VERLJOB_OVERRIDES"]


def test_a_recipe_is_no_visit_whatever_was_exported(rig: Rig) -> None:
    assert settings_of(rig, "demo_cpu")["VERLJOB_DOCTOR"] == "''"
