"""launch.sh starts one step, passes every node its settings, and prints a banner."""

from __future__ import annotations

import os
import re

import pytest

from tests.support.shell.rig import CHECKOUT, Rig, mode
from tests.support.shell.step import DEMO, SUCCESS, last_line


def test_the_step_is_one_srun_with_explicit_options(rig: Rig) -> None:
    rig.fake("step", SUCCESS)

    rig.launch(DEMO)

    argv = rig.faked("srun.argv").splitlines()
    assert argv[:10] == [
        "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=16", "--cpu-bind=none", "--export=ALL",
        "--kill-on-bad-exit=1", "--input=none", "bash", "-c",
    ]  # fmt: skip
    assert argv[-2:] == ["verljob", str(CHECKOUT)]


def test_unequal_nodes_get_tasks_of_the_smaller_size(rig: Rig) -> None:
    rig.fake("step", SUCCESS)

    rig.launch(DEMO, SLURM_JOB_CPUS_PER_NODE="56(x3),28,112")

    assert "--cpus-per-task=28\n" in rig.faked("srun.argv")


def test_every_node_gets_the_variables_of_docs_flow(rig: Rig) -> None:
    rig.fake("step", SUCCESS)

    rig.launch(DEMO, "a.b=x y", "+c=1")

    env = rig.faked("srun.env")
    settings = dict(line.split("=", 1) for line in env.splitlines() if line.startswith("VERLJOB_"))
    assert settings["VERLJOB_HOME"] == str(CHECKOUT)
    assert (settings["VERLJOB_PLATFORM"], settings["VERLJOB_RUNTIME"], settings["VERLJOB_PROFILE"]) == (
        "cpu",
        "docker",
        "",
    )
    assert settings["VERLJOB_IMAGE"] == "verl.cpu:latest"
    assert settings["VERLJOB_RECIPE"] == f"{CHECKOUT}/slurm/recipes/{DEMO}.yaml"
    assert (settings["VERLJOB_RUN_DIR"], settings["VERLJOB_ATTEMPT"]) == (str(rig.run_dir), "1")
    assert (settings["VERLJOB_HEAD_NODE"], settings["VERLJOB_NODELIST_HOSTS"]) == ("n1", "n1,n2")
    assert "VERLJOB_OVERRIDES=a.b=x y\n+c=1\n" in env
    assert (rig.run_dir / "overrides").read_text() == "a.b=x y\n+c=1\n"
    control, gcs, dashboard = map(int, settings["VERLJOB_HEAD_PORTS"].split(","))
    assert 32512 <= control < gcs < dashboard <= 32767


def test_the_token_is_random_and_in_no_command(rig: Rig) -> None:
    tokens = set()
    for _ in range(2):
        rig.fake("step", SUCCESS)
        done = rig.launch(DEMO)
        token = re.search(r"^VERLJOB_TOKEN=([0-9a-f]{64})$", rig.faked("srun.env"), re.MULTILINE)
        assert token
        tokens.add(token.group(1))
        assert token.group(1) not in rig.faked("srun.argv") + done.stdout + done.stderr

    assert len(tokens) == 2


def test_the_platform_comes_from_user_then_recipe_then_profile(rig: Rig) -> None:
    profile = rig.work / "site.env"
    profile.write_text("VERLJOB_PLATFORM=rocm\nNCCL_SOCKET_IFNAME=ib0\n")
    rig.fake("step", SUCCESS)

    rig.launch(SLURM_GPUS_ON_NODE="8", VERLJOB_PROFILE=str(profile))

    assert "VERLJOB_PLATFORM=rocm\n" in rig.faked("srun.env")
    rig.launch(SLURM_GPUS_ON_NODE="8", VERLJOB_PROFILE=str(profile), VERLJOB_PLATFORM="cuda")
    assert "VERLJOB_PLATFORM=cuda\n" in rig.faked("srun.env")


def test_a_requeued_job_has_the_next_attempt(rig: Rig) -> None:
    rig.fake("step", SUCCESS)

    rig.launch(DEMO, SLURM_RESTART_COUNT="1")

    assert (rig.run_dir.parent / "attempt-2" / "result.json").exists()


def test_the_banner_has_nodes_image_run_directory_dashboard_and_limit(rig: Rig) -> None:
    rig.fake("step", SUCCESS)

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
    ("value", "expected"), [("0", "dashboard   off"), ("node", r"dashboard   ssh -N -L (\d+):n1:\1 \S+@login, then")]
)
def test_the_dashboard_can_be_off_or_on_the_heads_address(rig: Rig, value: str, expected: str) -> None:
    rig.fake("step", SUCCESS)

    assert re.match(expected, rig.launch(DEMO, VERLJOB_DASHBOARD=value).stdout.splitlines()[3])


def test_a_dashboard_on_another_address_is_refused(rig: Rig) -> None:
    done = rig.launch(DEMO, VERLJOB_DASHBOARD="0.0.0.0")  # noqa: S104  what is refused

    assert done.returncode == 64
    assert "VERLJOB_DASHBOARD=0.0.0.0" in done.stdout


def test_a_run_directory_that_cannot_be_made_exits_with_77(rig: Rig) -> None:
    (rig.work / "file").write_text("")

    done = rig.launch(DEMO, VERLJOB_RUN_DIR=str(rig.work / "file" / "run"))

    assert done.returncode == 77
    assert "VERLJOB_RUN_DIR" in last_line(done)


def test_the_launch_leaves_nothing_on_the_node(rig: Rig) -> None:
    rig.fake("step", SUCCESS)

    rig.launch(DEMO)

    assert list((rig.root / "ports").iterdir()) == []
    assert mode(rig.run_dir / "overrides") == 0o644
    assert sorted(path.name for path in rig.run_dir.iterdir()) == ["nodes", "overrides", "result.json"]


def settings_of(rig: Rig, *arguments: str) -> dict[str, str]:
    """The settings of the step that come from the recipe and from doctor."""
    names = "VERLJOB_DOCTOR VERLJOB_RECIPE VERLJOB_OVERRIDES VERLJOB_JOIN_TIMEOUT_S"
    rig.fake("step", f'for name in {names}; do printf "%s=%q\\n" "$name" "${{!name-}}"; done > "$FAKE/settings"\n')
    rig.launch(*arguments, VERLJOB_DOCTOR="deep")
    return dict(line.split("=", 1) for line in rig.faked("settings").splitlines())


def test_doctor_runs_without_a_recipe(rig: Rig) -> None:
    settings = settings_of(rig, "doctor")

    assert (settings["VERLJOB_DOCTOR"], settings["VERLJOB_RECIPE"]) == ("quick", "cluster")
    assert settings["VERLJOB_JOIN_TIMEOUT_S"] == "60"


def test_doctor_deep_with_a_recipe_trains_one_step(rig: Rig) -> None:
    settings = settings_of(rig, "doctor", "--deep", "demo_cpu", "data.seed=3")

    assert settings["VERLJOB_DOCTOR"] == "deep"
    assert settings["VERLJOB_RECIPE"].endswith("demo_cpu.yaml")
    assert "data.seed=3" in settings["VERLJOB_OVERRIDES"]
    assert "trainer.total_training_steps=1" in settings["VERLJOB_OVERRIDES"]


def test_an_exported_doctor_setting_is_ignored_for_a_recipe(rig: Rig) -> None:
    assert settings_of(rig, "demo_cpu")["VERLJOB_DOCTOR"] == "''"
