"""launch.sh finds its checkout, and refuses wrong arguments and allocations at once."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.shell.rig import CHECKOUT, Rig, recorded
from tests.support.shell.step import DEMO, SUCCESS, last_line

VERSION = "readonly LAUNCH_VERSION="


@pytest.fixture
def spooled(rig: Rig) -> Path:
    """The copy that Slurm runs, under another name and outside of the checkout."""
    return Path(shutil.copy(CHECKOUT / "slurm" / "launch.sh", rig.root / "slurm_script"))


@pytest.fixture
def elsewhere(rig: Rig) -> Path:
    """A copy of the slurm folder at a path with a space."""
    shutil.copytree(
        CHECKOUT / "slurm", rig.work / "my verl" / "slurm", ignore=shutil.ignore_patterns("testbed", "*.py")
    )
    return rig.work / "my verl"


@pytest.mark.parametrize("name", ["relative", "absolute"])
def test_it_finds_its_checkout_by_the_command_of_scontrol(rig: Rig, spooled: Path, name: str) -> None:
    rig.record(name, f"{CHECKOUT}/slurm/launch.sh no_such")

    assert "no recipe 'no_such'" in last_line(rig.launch("no_such", script=spooled))


@pytest.mark.parametrize("release", ["24.11", "26.05"])
def test_slurm_24_and_26_show_the_command_without_arguments(rig: Rig, spooled: Path, release: str) -> None:
    """26.05 has them in SubmitLine, which follows."""
    rig.record(f"fields-{release}", f"{CHECKOUT}/slurm/launch.sh")

    assert "no recipe 'no_such'" in last_line(rig.launch("no_such", "StdOut=x", script=spooled))


def test_arguments_that_look_like_fields_are_separated_from_the_path(rig: Rig, spooled: Path) -> None:
    arguments = ("no_such", "StdOut=x", "WorkDir=/elsewhere SubmitLine=y")
    rig.record("fields-22.05", f"{CHECKOUT}/slurm/launch.sh {' '.join(arguments)}")

    assert "no recipe 'no_such'" in last_line(rig.launch(*arguments, script=spooled))


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_lines_of_a_name_and_of_arguments_are_no_fields(rig: Rig, spooled: Path, release: str) -> None:
    """A name, a comment and arguments may have line breaks, which Slurm prints as they are."""
    name = "a\n   UserId=x\n   JobState=FAILED\n   Command=/evil"
    arguments = ("no_such", "a=1\n   WorkDir=/elsewhere\n   SubmitLine=y")
    record = recorded(f"lines-{release}").replace("/home/submitter/verl", str(CHECKOUT))
    assert f" JobName={name}\n" in record
    rig.fake("job", record.replace("demo_cpu", "no_such"))

    assert "no recipe 'no_such'" in last_line(rig.launch(*arguments, script=spooled, SLURM_JOB_NAME=name))


def test_unquoted_arguments_are_separated_from_the_path(rig: Rig, spooled: Path, elsewhere: Path) -> None:
    rig.record("space", f"{elsewhere}/slurm/launch.sh no_such a.b=x y")

    assert "no recipe 'no_such'" in last_line(rig.launch("no_such", "a.b=x y", script=spooled))


def test_a_relative_command_starts_at_the_submit_folder(rig: Rig, spooled: Path, elsewhere: Path) -> None:
    rig.record("chdir", "my verl/slurm/launch.sh")

    done = rig.launch(script=spooled)

    assert done.returncode == 64
    assert "--gpus-per-node=8" in last_line(done)


def test_a_symlink_is_followed(rig: Rig, spooled: Path) -> None:
    (rig.home / "train.sh").symlink_to(CHECKOUT / "slurm" / "launch.sh")
    rig.record("symlink", f"{rig.home}/train.sh no_such")

    assert "no recipe 'no_such'" in last_line(rig.launch("no_such", script=spooled))


def test_a_script_from_stdin_is_searched_in_the_submit_folder(rig: Rig, spooled: Path, elsewhere: Path) -> None:
    rig.fake("job", recorded("stdin"))

    found = rig.launch("no_such", script=spooled, SLURM_SUBMIT_DIR=str(elsewhere))
    lost = rig.launch("no_such", script=spooled, SLURM_SUBMIT_DIR=str(rig.home))

    assert "no recipe 'no_such'" in last_line(found)
    assert "export VERLJOB_HOME=" in last_line(lost)


def test_verljob_home_wins_over_the_command_of_scontrol(rig: Rig, spooled: Path, elsewhere: Path) -> None:
    rig.record("relative", "/nowhere/slurm/launch.sh")

    assert "no recipe 'no_such'" in last_line(rig.launch("no_such", script=spooled, VERLJOB_HOME=str(elsewhere)))


def test_a_checkout_of_another_version_is_refused(rig: Rig, spooled: Path, elsewhere: Path) -> None:
    node = elsewhere / "slurm" / "node.sh"
    node.write_text(node.read_text().replace(VERSION, f"{VERSION}9."))

    done = rig.launch(script=spooled, VERLJOB_HOME=str(elsewhere))

    assert done.returncode == 64
    assert re.search(r"^verdict: 64 .* of version .* — export VERLJOB_HOME=", last_line(done))


def test_both_scripts_have_the_projects_version() -> None:
    version = re.search(r'^version = "(.+)"', (CHECKOUT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version

    for name in ("launch.sh", "node.sh"):
        assert f"\n{VERSION}{version.group(1)} " in (CHECKOUT / "slurm" / name).read_text()


def test_outside_an_allocation_the_error_shows_how_to_submit(rig: Rig) -> None:
    done = rig.launch(DEMO, SLURM_JOB_ID="<unset>")

    assert done.returncode == 64
    assert "sbatch" in last_line(done)


def test_an_unknown_recipe_prints_the_list(rig: Rig) -> None:
    done = rig.launch("gsm9k")

    assert done.returncode == 64
    assert all(name in last_line(done) for name in ("gsm9k", "gsm8k_ppo", "gsm8k_grpo", DEMO, "cluster"))


def test_the_default_recipe_is_gsm8k_ppo_which_needs_gpus(rig: Rig) -> None:
    done = rig.launch()

    assert done.returncode == 64
    assert "gsm8k_ppo" in last_line(done)
    assert "--gpus-per-node=8" in last_line(done)
    assert not rig.run_dir.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [("SLURM_JOB_GPUS", "0,1"), ("SLURM_GPUS_ON_NODE", "8"), ("SLURM_GPUS_PER_NODE", "mi300x:8")],
)
def test_gpus_are_detected_by_each_of_slurms_variables(rig: Rig, name: str, value: str) -> None:
    rig.fake("step", SUCCESS)
    rig.environment[name] = value

    assert rig.launch(VERLJOB_PLATFORM="cpu").returncode == 0


@pytest.mark.parametrize(
    "field", ["TresPerNode=gres:gpu:2", "TRES=cpu=2,node=2,gres/gpu:h100=16", "TresPerJob=gres/gpu:8"]
)
def test_gpus_are_detected_by_the_jobs_record(rig: Rig, field: str) -> None:
    rig.fake("job", rig.faked("job") + f"   {field}\n")
    rig.fake("step", SUCCESS)

    assert rig.launch(VERLJOB_PLATFORM="cpu").returncode == 0


def test_words_of_a_job_are_no_gpus(rig: Rig) -> None:
    words = "Comment=TresPerNode=gres:gpu:2 TRES=gres/gpu=8"
    rig.fake("job", rig.faked("job") + f"   {words}\n")

    assert "--gpus-per-node=8" in last_line(rig.launch(VERLJOB_PLATFORM="cpu"))


def test_a_heterogeneous_job_is_refused(rig: Rig) -> None:
    done = rig.launch(DEMO, SLURM_HET_SIZE="2")

    assert done.returncode == 64
    assert "heterogeneous" in last_line(done)


def test_under_salloc_it_moves_to_the_first_node_by_one_srun(rig: Rig) -> None:
    done = rig.launch(DEMO, "a=1", SLURMD_NODENAME="<unset>")

    argv = rig.faked("srun.argv").splitlines()
    assert done.returncode == 0
    assert {"--overlap", "--nodelist=n1", "--ntasks=1", "--export=ALL"} < set(argv)
    assert argv[-4:] == ["bash", f"{CHECKOUT}/slurm/launch.sh", DEMO, "a=1"]
    assert "VERLJOB_MOVED=1\n" in rig.faked("srun.env")


def test_on_another_node_than_the_first_it_stops(rig: Rig) -> None:
    done = rig.launch(DEMO, SLURMD_NODENAME="n2", VERLJOB_MOVED="1")

    assert done.returncode == 64
    assert "n2, not the first node n1" in last_line(done)


def test_an_override_without_a_value_is_refused(rig: Rig) -> None:
    done = rig.launch(DEMO, "trainer.nnodes")

    assert done.returncode == 64
    assert "'trainer.nnodes' is not an override" in last_line(done)
