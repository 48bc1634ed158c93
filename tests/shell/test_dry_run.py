"""What VERLJOB_DRY_RUN prints is what a job would start, and nothing is started."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import pytest
from verl_node.settings.overrides import parse
from verl_node.training.recipe import load, training

from tests.support.rig import CHECKOUT, SECRET, Rig, left

NESTED = """
platform: any  # a recipe of somebody else
accelerator: true
module: mine.main
data: [gsm8k, math]
model: null
overrides:
  trainer:
    logger: [console, wandb]
    nested:
      deep: 1
  +added.key: word
  data.train_batch_size: 64
"""


def test_a_dry_run_prints_step_containers_environment_and_training(rig: Rig) -> None:
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
    assert " python3 -m verl.trainer.main_ppo " in done.stdout.splitlines()[-1]
    assert not (rig.work / "verljob").exists()
    assert not (rig.root / "fake" / "docker.argv").exists()
    assert left(rig) == []


def as_values(overrides: Sequence[str]) -> dict[str, Any]:
    """Overrides by their marked key, with what their values mean: `true` and `True` are one."""
    return {f"{one.mark}{one.key}": one.plain() for one in map(parse, overrides)}


@pytest.mark.parametrize(
    "overrides", [(), ("trainer.total_epochs=2", "trainer.logger=[wandb]", "~data.val_files", "+a=[1,2]")]
)
@pytest.mark.parametrize("name", ["gsm8k_ppo", "gsm8k_grpo", "demo_cpu", "nested"])
def test_a_dry_run_prints_the_training_that_verl_node_will_run(rig: Rig, name: str, overrides: tuple[str, ...]) -> None:
    nested = rig.work / "nested.yaml"
    nested.write_text(NESTED)
    path = nested if name == "nested" else CHECKOUT / "slurm" / "recipes" / f"{name}.yaml"
    run_dir, data = rig.work / "runs of it's own", rig.root / "data"
    done = rig.launch(
        str(path) if name == "nested" else name, *overrides, VERLJOB_DRY_RUN="1", SLURM_JOB_ID="<unset>",
        VERLJOB_PLATFORM="cpu", VERLJOB_HOME=str(CHECKOUT), VERLJOB_DATA=str(data), VERLJOB_RUN_DIR=str(run_dir),
    )  # fmt: skip

    words = shlex.split(done.stdout.splitlines()[-1])
    gpus = 1 if name == "demo_cpu" else 8
    wanted = training(
        load(path), overrides, verl_version="0.9.1", nodes=2, gpus_per_node=gpus, run_dir=run_dir, data_dir=data
    )
    assert dict(word.split("=", 1) for word in words[1:5]) == wanted.env
    assert words[5:8] == wanted.argv[:3]
    assert as_values(words[8:]) == as_values(wanted.argv[3:])
