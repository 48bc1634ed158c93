"""VERLJOB_DRY_RUN prints the commands of a job and starts nothing."""

from __future__ import annotations

import shlex
import subprocess

import pytest
import yaml

from tests.support.shell.rig import CHECKOUT, SECRET, Rig, leftovers


def test_a_dry_run_prints_step_containers_and_environment(rig: Rig) -> None:
    done = rig.launch(
        "gsm8k_ppo", "trainer.total_epochs=2", VERLJOB_DRY_RUN="1", SLURM_JOB_ID="<unset>", VERLJOB_PLATFORM="cuda",
        HF_TOKEN=SECRET, HTTPS_PROXY="http://me:word@proxy:1", VERLJOB_HOME=str(CHECKOUT),
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "\nsrun --nodes=2 --ntasks=2 " in done.stdout
    assert done.stdout.count("\ndocker run ") == 2
    assert "<UUID of GPU 7>" in done.stdout
    assert "HF_TOKEN=***" in done.stdout
    assert "HTTPS_PROXY=***" in done.stdout
    assert SECRET not in done.stdout
    assert not (rig.work / "verljob").exists()
    assert not (rig.root / "fake" / "docker.argv").exists()
    assert leftovers(rig) == []


@pytest.mark.parametrize(("chosen", "mounted"), [("<unset>", 2), ("0", 0)])
def test_a_dry_run_has_the_compile_cache_of_each_node(rig: Rig, chosen: str, mounted: int) -> None:
    done = rig.launch(
        "demo_cpu", VERLJOB_DRY_RUN="1", SLURM_JOB_ID="<unset>", VERLJOB_PLATFORM="cpu", VERLJOB_HOME=str(CHECKOUT),
        VERLJOB_COMPILE_CACHE=chosen,
    )  # fmt: skip

    assert done.stdout.count("target=/run/verljob/cache") == mounted, done.stdout
    assert done.stdout.count("\nVERLJOB_COMPILE_CACHE=/run/verljob/cache\n") == mounted


def test_a_dry_run_names_the_command_that_prints_the_training(rig: Rig) -> None:
    done = rig.launch(
        "demo_cpu", "trainer.total_epochs=2", "+a='b c'", VERLJOB_DRY_RUN="1", SLURM_JOB_ID="<unset>",
        VERLJOB_PLATFORM="cpu", VERLJOB_HOME=str(CHECKOUT),
    )  # fmt: skip

    argv = shlex.split(done.stdout.splitlines()[-1])
    assert argv[:3] == ["./run", "job.check", "demo_cpu"]
    assert argv[3:6] == ["--print", "--nodes=2", "--gpus-per-node=1"]
    assert argv[6:] == ["--", "trainer.total_epochs=2", "+a='b c'"]


@pytest.mark.parametrize(
    "text",
    [
        "platform: cpu\naccelerator: false\n",
        "accelerator: true  # a comment\nplatform: cpu # and one\n",
        "platform: cpu\r\naccelerator: false\r\n",
        "platform: any\nplatform: cpu\naccelerator: false\n",
        "overrides:\n  platform: cuda\n  accelerator: true\nplatform: cpu\naccelerator: false\n",
    ],
)
def test_recipe_keys_are_read_as_yaml_reads_them(rig: Rig, text: str) -> None:
    done = read_recipe(rig, text)

    expected = yaml.safe_load(text)
    assert done.stdout.split() == [expected["platform"], str(expected["accelerator"]).lower()], done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "platform: 'cpu'\naccelerator: false\n",
        "platform: &one cpu\naccelerator: false\n",
        "platform: cpu#1\naccelerator: false\n",
        "platform: c pu\naccelerator: false\n",
        "platform:cpu\naccelerator: false\n",
        "platform: any\nplatform: c pu\naccelerator: false\n",
        "platform : cpu\naccelerator: false\n",
        '"platform": cpu\naccelerator: false\n',
        "{platform: cpu, accelerator: false}\n",
        "platform:\n  cpu\naccelerator: false\n",
        "platform: cpu\naccelerator: True\n",
        "platform: cpu\naccelerator: yes\n",
        "platform: cpu\n",
        "accelerator: false\n",
        "platform: a[$(touch ran)]\naccelerator: false\n",
    ],
)
def test_recipe_keys_in_another_form_are_refused(rig: Rig, text: str) -> None:
    done = read_recipe(rig, text)

    assert done.returncode == 64
    assert done.stdout == ""
    assert not (rig.work / "ran").exists()


def read_recipe(rig: Rig, text: str) -> subprocess.CompletedProcess[str]:
    (rig.work / "mine.yaml").write_text(text)
    script = 'recipe::parse mine.yaml; printf "%s %s" "$RECIPE_PLATFORM" "$RECIPE_ACCELERATOR"'
    return rig.source("common/log common/verdict common/env_table launch/recipe", script)
