from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from packaging.version import Version
from verl_node.errors import BadTrainingConfig
from verl_node.settings.overrides import Override
from verl_node.training import derived_overrides, recipe, releases

from images.catalog import docs_tables
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.pins import base_packages
from tests.support.paths import RECIPES

BASES = {base.image: base for base in base_packages.read().values()}


def has_flash_attn(variant: Variant) -> bool:
    """Whether the described base has it, or the build compiles it."""
    base = {} if variant.base_made else base_packages.packages(BASES[variant.base])
    return "flash-attn" in {*base, *variant.compiles}


# Release, rollout engine, flash-attn and own overrides of the images for which docs/tags.md says that the recipes run.
IN_IMAGES = sorted(
    {
        (
            variant.installs["verl"],
            variant.rollout,
            has_flash_attn(variant),
            tuple(f"{key}={value}" for key, value in variant.overrides.items()),
        )
        for variant in Catalog.read().variants.values()
        if docs_tables.recipes(variant).startswith("yes")
    }
)
SAMPLER = "trainer.v1.sampler.custom_sampler"
SUPPORTED = ("0.4.0", "0.4.1", "0.5.0", "0.6.1", "0.7.1", "0.8.0", "0.9.1")


def train(name: str, *overrides: str, verl: str = "0.9.1", **more: Any) -> recipe.Training:
    facts: dict[str, Any] = {
        "nodes": 2,
        "gpus_per_node": 8,
        "run_dir": Path("/runs/my job/1"),
        "data_dir": Path("/data"),
    }
    return recipe.make_training(
        recipe.load(RECIPES / f"{name}.yaml"), overrides, verl_version=verl, **{**facts, **more}
    )


def composed(config: Path, training: recipe.Training) -> DictConfig:
    with initialize_config_dir(str(config), version_base=None):
        return compose("ppo_trainer", overrides=training.argv[3:])


@pytest.mark.parametrize("release", [each for each in SUPPORTED if each >= "0.6"])
@pytest.mark.parametrize("name", ["gsm8k_ppo", "gsm8k_grpo"])
def test_gpu_recipes_use_sdpa_and_keep_padding_without_flash_attn(
    name: str, release: str, verl_config: Callable[[str], Path]
) -> None:
    training = train(name, verl=release, flash_attn=False, given_modules="a")
    config = composed(verl_config(release), training)

    for model in (config.actor_rollout_ref.model, config.critic.model):
        assert model.use_remove_padding is False
        assert model.override_config.attn_implementation == "sdpa"
    assert training.env["VERL_USE_EXTERNAL_MODULES"] == "a,verl_node.training.critic_attention"
    assert any("flash-attn is not installed" in note for note in training.notes)


def test_overrides_win_over_the_attention_of_an_environment_without_flash_attn() -> None:
    key = "+actor_rollout_ref.model.override_config.attn_implementation"

    argv = train("gsm8k_grpo", f"{key}=flex_attention", flash_attn=False).argv

    assert f"{key}=flex_attention" in argv
    assert f"{key}=sdpa" not in argv


def test_release_with_hard_coded_flash_attention_keeps_its_recipe() -> None:
    assert train("gsm8k_grpo", verl="0.5.0", flash_attn=False).argv == train("gsm8k_grpo", verl="0.5.0").argv


@pytest.mark.parametrize("release", SUPPORTED)
@pytest.mark.parametrize("name", ["gsm8k_ppo", "gsm8k_grpo"])
def test_gpu_recipes_compose_with_every_release(name: str, release: str, verl_config: Callable[[str], Path]) -> None:
    config = composed(verl_config(release), train(name, verl=release))
    OmegaConf.resolve(config)
    assert config.trainer.nnodes == 2
    assert config.trainer.n_gpus_per_node == 8
    assert config.trainer.default_local_dir == "/runs/my job/1/checkpoints"
    assert config.data.train_files == "/data/gsm8k/train.parquet"
    assert config.data.train_batch_size == 1024
    assert config.actor_rollout_ref.model.path == "Qwen/Qwen2-7B-Instruct"
    assert config.actor_rollout_ref.actor.optim.lr == 1e-6


@pytest.mark.parametrize(("verl", "rollout", "flash_attn", "own"), IN_IMAGES)
def test_gpu_recipes_compose_for_every_image_that_the_docs_say_runs_them(
    verl: str, rollout: str, flash_attn: bool, own: tuple[str, ...], verl_config: Callable[[str], Path]
) -> None:
    assert flash_attn or Version(verl) >= Version("0.6"), "verl before 0.6 has flash_attention_2 hard-coded"
    key = docs_tables.ROLLOUT_KEY
    overrides = [] if rollout == "vllm" else [f"{key}={rollout}"]
    for name in ("gsm8k_ppo", "gsm8k_grpo"):
        training = train(name, *overrides, verl=verl, image_overrides=own, flash_attn=flash_attn)
        config = composed(verl_config(verl), training)

        assert config.actor_rollout_ref.rollout.name == rollout
        for override in own:
            changed, _, value = override.lstrip("+").partition("=")
            assert str(OmegaConf.select(config, changed)).lower() == value
        assert rollout in releases.load(verl).choices[key]


WITH_OVERRIDES = {each.name: each for each in Catalog.read().variants.values() if each.overrides}


@pytest.mark.parametrize("name", WITH_OVERRIDES)
def test_settings_of_an_image_compose_with_its_release(name: str, verl_config: Callable[[str], Path]) -> None:
    variant = WITH_OVERRIDES[name]
    verl, given = variant.installs["verl"], [f"{key}={value}" for key, value in variant.overrides.items()]

    config = composed(verl_config(verl), train("gsm8k_grpo", verl=verl, image_overrides=given))

    for key, value in variant.overrides.items():
        assert str(OmegaConf.select(config, key.lstrip("+"))).lower() == value.lower()


def test_setting_of_an_image_replaces_the_recipes_and_loses_to_the_jobs() -> None:
    padding = "actor_rollout_ref.model.use_remove_padding"
    image = [f"{padding}=false", "+actor_rollout_ref.rollout.engine_kwargs.vllm.disable_custom_all_reduce=true"]

    by_image, by_job = (
        train("gsm8k_grpo", image_overrides=image),
        train("gsm8k_grpo", f"{padding}=true", image_overrides=image),
    )

    assert f"{padding}=false" in by_image.argv
    assert f"{padding}=true" in by_job.argv
    assert by_image.notes[0] == f"The image sets {', '.join(image)}; an override of the job wins."
    assert by_job.notes[0] == f"The image sets {image[1]}; an override of the job wins."
    without_mark = train("gsm8k_grpo", f"{image[1][1:-4]}false", image_overrides=image)
    assert f"{image[1][:-4]}false" in without_mark.argv


def test_demo_recipe_composes_with_verl_0_9(verl_config: Callable[[str], Path]) -> None:
    config = composed(verl_config("0.9.1"), train("demo_cpu", gpus_per_node=1))
    assert config.trainer.total_training_steps >= 4
    assert config.trainer.save_freq <= config.trainer.total_training_steps
    assert config.trainer.test_freq <= config.trainer.total_training_steps
    assert config.actor_rollout_ref.model.path == "/data/models/qwen2-tiny"
    assert config.ray_kwargs.ray_init.runtime_env.env_vars.HF_HUB_OFFLINE == "1"


def test_recipe_of_verl_0_4_uses_no_server_and_no_graphs(verl_config: Callable[[str], Path]) -> None:
    rollout = composed(verl_config("0.4.0"), train("gsm8k_grpo", verl="0.4.0")).actor_rollout_ref.rollout
    assert (rollout.mode, rollout.free_cache_engine, rollout.enforce_eager) == ("sync", True, True)


def test_keys_are_translated_to_the_release() -> None:
    assert "critic.fsdp.param_offload=False" in train("gsm8k_ppo").argv
    assert "critic.model.fsdp_config.param_offload=False" in train("gsm8k_ppo", verl="0.4.1").argv
    assert "+data.seed=7" in train("gsm8k_ppo", "data.seed=7", verl="0.4.1").argv


@pytest.mark.parametrize(
    ("verl", "name"), [("0.4.0", "contents"), ("0.4.1", "save_contents"), ("0.9.1", "save_contents")]
)
def test_tables_of_a_series_differ_by_release(verl: str, name: str) -> None:
    override = "actor_rollout_ref.actor.checkpoint.save_contents=[model]"
    assert f"actor_rollout_ref.actor.checkpoint.{name}=[model]" in train("gsm8k_ppo", override, verl=verl).argv


@pytest.mark.parametrize("release", SUPPORTED[:-1])
def test_every_key_of_verl_0_9_is_translated_or_absent_in_older_releases(
    release: str, known: dict[str, set[str]]
) -> None:
    new, old = known["0.9.1"], known[release]
    table = releases.load(release)
    renamed = {*table.rename, *(name for step in releases.history() for name in step.moved.values())}
    for key in new:
        try:
            translated = table.translate(Override("", key, "1"))
        except BadTrainingConfig:
            assert key not in old, f"{key} is in verl {release}, but absent in the table"
            continue
        in_part = any(name.startswith(f"{key}.") for name in renamed)
        exists = translated.mark == "+" or translated.key in old
        assert exists or in_part, f"{key} becomes {translated.key}, which verl {release} does not have"


@pytest.mark.parametrize("release", SUPPORTED[:-1])
def test_tables_contain_only_keys_of_verl_0_9(release: str, known: dict[str, set[str]]) -> None:
    table = releases.load(release)
    assert {*table.rename, *table.absent} <= known["0.9.1"]


@pytest.mark.parametrize("release", SUPPORTED)
def test_choices_belong_to_keys_of_the_release(release: str, known: dict[str, set[str]]) -> None:
    assert set(releases.load(release).choices) <= known[release]


def test_old_key_is_rejected_with_its_new_name() -> None:
    override = "critic.model.fsdp_config.param_offload=True"
    with pytest.raises(BadTrainingConfig, match=r"Use critic\.fsdp\.param_offload\."):
        train("gsm8k_ppo", override)
    for verl in ("0.4.1", "0.7.1"):
        assert override in train("gsm8k_ppo", override, verl=verl).argv


def test_key_without_a_counterpart_exits_with_65() -> None:
    with pytest.raises(BadTrainingConfig, match=r"trainer\.v1\.trainer_mode has no counterpart in verl 0\.4") as seen:
        train("gsm8k_ppo", "trainer.v1.trainer_mode=separate_async", verl="0.4.1")
    assert seen.value.code == 65


def test_verl_without_a_table_is_rejected_and_newer_ones_use_the_newest() -> None:
    with pytest.raises(BadTrainingConfig, match=r"no key table for verl 0\.3"):
        train("gsm8k_ppo", verl="0.3.0.post1")
    newest = [text for text in train("gsm8k_ppo", verl="0.9.1").argv if not text.startswith(SAMPLER)]
    assert train("gsm8k_ppo", verl="0.10.0.dev0").argv == newest


@pytest.mark.parametrize(
    ("verl", "overrides", "asks_often"),
    [
        ("0.9.1", [], True),
        ("0.8.0", [], False),
        ("0.10.0", [], False),
        ("0.9.1", [f"{SAMPLER}.path=/my.py", f"{SAMPLER}.name=Mine"], False),
        ("0.9.1", ["algorithm.filter_groups.enable=true"], False),
        ("0.9.1", ["trainer.v1.trainer_mode=colocate_async"], False),
    ],
)
def test_the_synchronous_trainer_of_verl_0_9_asks_often_for_answers(
    verl: str, overrides: list[str], asks_often: bool
) -> None:
    training = train("gsm8k_grpo", *overrides, verl=verl)

    assert (f"{SAMPLER}.name=ReplayBuffer" in training.argv) == asks_often
    assert (derived_overrides.POLLING_NOTE in training.notes) == asks_often


def test_the_buffer_of_answers_is_verls_with_another_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("verl.trainer.ppo.v1.replay_buffer")

    class Verls:
        def __init__(self, **given: Any) -> None:
            self.given = given

    monkeypatch.setattr(module, "ReplayBuffer", Verls, raising=False)
    names = ["verl", "verl.trainer", "verl.trainer.ppo", "verl.trainer.ppo.v1"]
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules[names[-1]], "replay_buffer", module, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "verl_node.training.replay_buffer", raising=False)
    ours = importlib.import_module("verl_node.training.replay_buffer")
    monkeypatch.delitem(sys.modules, ours.__name__)

    assert ours.ReplayBuffer(trainer_mode="sync").given == {"poll_interval": 0.25, "trainer_mode": "sync"}
