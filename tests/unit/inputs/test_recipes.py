from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from verl_node import recipe, releases
from verl_node.errors import BadTrainingConfig
from verl_node.overrides import Override

RECIPES = Path(__file__).parents[3] / "slurm" / "recipes"
SUPPORTED = ("0.4.1", "0.9.1")


def train(name: str, *overrides: str, verl: str = "0.9.1", **more: Any) -> recipe.Training:
    facts: dict[str, Any] = {
        "nodes": 2,
        "gpus_per_node": 8,
        "run_dir": Path("/runs/my job/1"),
        "data_dir": Path("/data"),
    }
    return recipe.training(recipe.load(RECIPES / f"{name}.yaml"), overrides, verl_version=verl, **{**facts, **more})


def composed(config: Path, training: recipe.Training) -> DictConfig:
    with initialize_config_dir(str(config), version_base=None):
        return compose("ppo_trainer", overrides=training.argv[3:])


def keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Every key, mappings and leaves, without Hydra's `_target_`."""
    for name in map(str, config):
        if name == "_target_":
            continue
        yield f"{prefix}{name}"
        value = config._get_node(name)
        if isinstance(value, DictConfig) and not value._is_none() and not value._is_interpolation():
            yield from keys(value, f"{prefix}{name}.")


@pytest.fixture(scope="module")
def known(verl_config: Callable[[str], Path]) -> dict[str, set[str]]:
    """Release → every key of it."""
    found = {}
    for release in SUPPORTED:
        with initialize_config_dir(str(verl_config(release)), version_base=None):
            found[release] = {*keys(compose("ppo_trainer"))}
    return found


@pytest.mark.parametrize("release", SUPPORTED)
@pytest.mark.parametrize("name", ["gsm8k_ppo", "gsm8k_grpo"])
def test_both_gpu_recipes_compose_with_a_releases_own_files(
    name: str, release: str, verl_config: Callable[[str], Path]
) -> None:
    config = composed(verl_config(release), train(name, verl=release))
    OmegaConf.resolve(config)
    assert config.trainer.nnodes == 2
    assert config.trainer.n_gpus_per_node == 8
    assert config.trainer.default_local_dir == "/runs/my job/1/checkpoints"
    assert config.data.train_files == "/data/gsm8k/train.parquet"
    assert config.data.train_batch_size == 1024
    assert config.actor_rollout_ref.model.path == "Qwen/Qwen2-7B-Instruct"
    assert config.actor_rollout_ref.actor.optim.lr == 1e-6


def test_the_demo_composes_with_verl_0_9(verl_config: Callable[[str], Path]) -> None:
    config = composed(verl_config("0.9.1"), train("demo_cpu", gpus_per_node=1))
    assert config.trainer.total_training_steps >= 4
    assert config.trainer.save_freq <= config.trainer.total_training_steps
    assert config.trainer.test_freq <= config.trainer.total_training_steps
    assert config.actor_rollout_ref.model.path == "/data/models/qwen2-tiny"
    assert config.ray_kwargs.ray_init.runtime_env.env_vars.HF_HUB_OFFLINE == "1"


def test_what_the_guides_set_is_said_by_each_releases_name() -> None:
    assert "critic.fsdp.param_offload=False" in train("gsm8k_ppo").argv
    assert "critic.model.fsdp_config.param_offload=False" in train("gsm8k_ppo", verl="0.4.1").argv
    assert "+data.seed=7" in train("gsm8k_ppo", "data.seed=7", verl="0.4.1").argv


def test_every_key_of_verl_0_9_has_a_place_in_verl_0_4_or_is_said_to_have_none(known: dict[str, set[str]]) -> None:
    new, old = known["0.9.1"], known["0.4.1"]
    table = releases.load("0.4.1")
    for key in new:
        try:
            said = table.translate(Override("", key, "1"))
        except BadTrainingConfig:
            assert key not in old, f"{key} is in verl 0.4.1, yet the table says that it is absent"
            continue
        in_part = any(name.startswith(f"{key}.") for name in table.rename)
        assert said.mark == "+" or said.key in old or in_part, f"{key} becomes {said.key}, which verl 0.4.1 lacks"


def test_the_table_names_no_key_that_verl_0_9_does_not_have(known: dict[str, set[str]]) -> None:
    table = releases.load("0.4.1")
    assert {*table.rename, *table.absent} <= known["0.9.1"]


def test_a_key_of_an_older_guide_is_answered_with_its_new_name(known: dict[str, set[str]]) -> None:
    override = "critic.model.fsdp_config.param_offload=True"
    with pytest.raises(BadTrainingConfig, match=r"Say critic\.fsdp\.param_offload\."):
        train("gsm8k_ppo", override)
    assert override in train("gsm8k_ppo", override, verl="0.4.1").argv
    for old, now in releases.load("0.9.1").gone.items():
        assert old not in known["0.9.1"]
        assert now in known["0.9.1"]


def test_a_key_that_an_older_verl_lacks_ends_with_65_and_is_named() -> None:
    with pytest.raises(BadTrainingConfig, match=r"trainer\.v1\.trainer_mode has no counterpart in verl 0\.4") as seen:
        train("gsm8k_ppo", "trainer.v1.trainer_mode=separate_async", verl="0.4.1")
    assert seen.value.code == 65


def test_a_verl_without_a_table_is_refused_and_a_newer_one_keeps_the_newest_names() -> None:
    with pytest.raises(BadTrainingConfig, match=r"no key table for verl 0\.7"):
        train("gsm8k_ppo", verl="0.7.0")
    assert train("gsm8k_ppo", verl="0.10.0.dev0").argv == train("gsm8k_ppo", verl="0.9.1").argv
