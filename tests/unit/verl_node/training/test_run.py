from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from verl_node.errors import BadTrainingConfig
from verl_node.settings.overrides import literal, parse
from verl_node.training import recipe

TEXT = """
platform: any
accelerator: true
module: verl.trainer.main_ppo
data: [gsm8k, math]
model: Org/Name
overrides:
  data.train_batch_size: 64
  +actor_rollout_ref.model.override_config.attn_implementation: sdpa
  trainer:
    logger: [console, wandb]
    save_freq: 5
"""


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    return path


def train(path: Path, *overrides: str, verl: str = "0.9.1", **more: Any) -> recipe.Training:
    facts: dict[str, Any] = {"nodes": 2, "gpus_per_node": 4, "run_dir": Path("/run"), "data_dir": Path("/data")}
    return recipe.make_training(recipe.load(path), overrides, verl_version=verl, **{**facts, **more})


def test_recipe_has_a_name_and_may_nest_keys(recipe_file: Path) -> None:
    assert recipe.load(recipe_file).name == "mine"
    argv = train(recipe_file).argv
    assert argv[:3] == ["python3", "-m", "verl.trainer.main_ppo"]
    assert "trainer.save_freq=5" in argv


@pytest.mark.parametrize("text", ["just words", "platform: any", f"{TEXT}\nsurprise: 1", "a: [", ""])
def test_invalid_recipe_exits_with_65(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(BadTrainingConfig, match=r"bad\.yaml"):
        recipe.load(tmp_path / "bad.yaml")
    with pytest.raises(BadTrainingConfig, match=r"absent\.yaml cannot be read"):
        recipe.load(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    "override", ["trainer.nnodes=3", "trainer.n_gpus_per_node=8", "~trainer.nnodes", "trainer.nnodes=two"]
)
def test_override_that_contradicts_the_allocation_exits_with_65(recipe_file: Path, override: str) -> None:
    with pytest.raises(BadTrainingConfig, match="contradicts the allocation") as seen:
        train(recipe_file, override)
    assert override in seen.value.cause


def test_override_equal_to_the_allocation_is_accepted(recipe_file: Path) -> None:
    assert train(recipe_file, "trainer.nnodes=2").argv.count("trainer.nnodes=2") == 1


def test_override_replaces_the_recipes(recipe_file: Path) -> None:
    argv = train(recipe_file, "data.train_batch_size=32", "trainer.experiment_name=mine").argv
    assert [override for override in argv if override.startswith("data.train_batch_size")] == [
        "data.train_batch_size=32"
    ]
    assert "trainer.experiment_name=mine" in argv


def test_overridden_key_keeps_the_recipes_plus(recipe_file: Path) -> None:
    key = "actor_rollout_ref.model.override_config.attn_implementation"
    assert f"+{key}=eager" in train(recipe_file, f"{key}=eager").argv


def test_several_data_sets_become_a_list_per_split(recipe_file: Path) -> None:
    training = train(recipe_file)
    assert "data.train_files=[/data/gsm8k/train.parquet,/data/math/train.parquet]" in training.argv
    assert training.datasets == ["gsm8k", "math"]


def test_users_data_files_are_checked_instead_of_made(recipe_file: Path) -> None:
    training = train(recipe_file, "data.train_files=[/a/1.parquet,/a/2.parquet]", "data.val_files=/a/3.parquet")
    assert training.datasets == []
    assert training.files == ["/a/1.parquet", "/a/2.parquet", "/a/3.parquet"]


@pytest.mark.parametrize(
    "override",
    [
        "data.train_files=../data/train.parquet",
        "data.val_files=[/a.parquet,b.parquet]",
        "trainer.default_local_dir=checkpoints",
        "actor_rollout_ref.model.path=./model",
        "critic.model.path=~/model",
    ],
)
def test_relative_path_exits_with_65(recipe_file: Path, override: str) -> None:
    with pytest.raises(BadTrainingConfig, match="relative path"):
        train(recipe_file, override)


def test_model_is_chosen_from_override_then_settings_then_recipe(recipe_file: Path) -> None:
    assert train(recipe_file).models == ["Org/Name"]
    assert train(recipe_file, model="/models/mine").models == ["/models/mine"]
    training = train(recipe_file, "actor_rollout_ref.model.path=/models/other", model="/models/mine")
    assert training.models == ["/models/other", "/models/mine"]
    assert "actor_rollout_ref.model.path=/models/other" in training.argv
    assert "critic.model.path=/models/mine" in training.argv


def test_recipe_without_a_model_prepares_none(recipe_file: Path) -> None:
    recipe_file.write_text(TEXT.replace("Org/Name", "null"))
    training = train(recipe_file)
    assert training.models == []
    assert not [override for override in training.argv if ".model.path=" in override]
    assert train(recipe_file, model="/models/mine").models == ["/models/mine"]


def test_demo_model_is_passed_as_a_folder(recipe_file: Path) -> None:
    training = train(recipe_file, model="demo:qwen2-tiny")
    assert "actor_rollout_ref.model.path=/data/models/qwen2-tiny" in training.argv


def test_file_logger_is_always_on_and_workers_get_its_path(recipe_file: Path) -> None:
    training = train(recipe_file, "trainer.logger=[tensorboard]")
    assert "trainer.logger=[console,file,tensorboard]" in training.argv
    assert training.file_log == Path("/run/verl.jsonl")
    assert training.env["VERL_FILE_LOGGER_PATH"] == "/run/verl.jsonl"
    assert "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH='/run/verl.jsonl'" in training.argv


def test_verl_without_a_file_logger_uses_the_console_with_a_note(recipe_file: Path) -> None:
    training = train(recipe_file, verl="0.4.1")
    assert "trainer.logger=[console]" in training.argv
    assert training.file_log is None
    assert "VERL_FILE_LOGGER_PATH" not in training.env
    assert not any("ray_kwargs" in override for override in training.argv)
    assert any("no file logger" in note for note in training.notes)


def test_wandb_of_a_recipe_needs_an_account(recipe_file: Path) -> None:
    assert "trainer.logger=[console,file]" in train(recipe_file).argv
    assert any("WANDB_API_KEY" in note for note in train(recipe_file).notes)
    assert "trainer.logger=[console,file,wandb]" in train(recipe_file, wandb=True).argv
    assert "trainer.logger=[console,file,wandb]" in train(recipe_file, "trainer.logger=[wandb]").argv


def test_run_without_checkpoints_gets_a_note_and_a_long_one_a_warning(recipe_file: Path) -> None:
    assert not any("save_freq" in note for note in train(recipe_file, long=True).notes)
    assert any(note.startswith("trainer.save_freq") for note in train(recipe_file, "trainer.save_freq=-1").notes)
    assert any(
        note.startswith("warning: trainer.save_freq") and "over a day" in note
        for note in train(recipe_file, "trainer.save_freq=-1", long=True).notes
    )


def test_checkpoint_folder_is_shared_by_all_attempts(recipe_file: Path) -> None:
    assert "trainer.default_local_dir=/run/checkpoints" in train(recipe_file).argv
    training = train(recipe_file, checkpoints=Path("/job/checkpoints"))
    assert "trainer.default_local_dir=/job/checkpoints" in training.argv
    assert training.checkpoints == Path("/job/checkpoints")
    assert train(recipe_file, "trainer.default_local_dir=/mine").checkpoints == Path("/mine")


def test_workers_get_the_end_of_the_job(recipe_file: Path) -> None:
    name = "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP"
    training = train(recipe_file, expires=1798859015)
    assert training.env[name] == "1798859015"
    assert f"+ray_kwargs.ray_init.runtime_env.env_vars.{name}='1798859015'" in training.argv
    assert name not in train(recipe_file).env


@pytest.mark.parametrize("verl", ["0.9.1", "0.4.1"])
def test_every_release_has_the_keys_for_resuming(verl_config: Callable[[str], Path], verl: str) -> None:
    config = yaml.safe_load((verl_config(verl) / "ppo_trainer.yaml").read_text())
    assert {"resume_mode", "resume_from_path", "default_local_dir", "save_freq"} <= set(config["trainer"])


def test_workers_are_offline(recipe_file: Path) -> None:
    assert train(recipe_file).env["HF_HUB_OFFLINE"] == "1"


def test_prepare_command_lists_all_inputs(recipe_file: Path) -> None:
    training = train(recipe_file, "data.val_files=/a/3.parquet")
    assert recipe.prepare_argv(training, Path("/data"), Path("/raw"))[3:] == [
        *("--data-dir", "/data", "--source", "/raw"),
        *("--dataset", "gsm8k", "--dataset", "math", "--file", "/a/3.parquet", "--model", "Org/Name"),
    ]


@pytest.mark.parametrize("text", ["--cfg", "word", "=1", "a b=1", "1key=2", "trainer.nnodes"])
def test_invalid_override_exits_with_65(recipe_file: Path, text: str) -> None:
    with pytest.raises(BadTrainingConfig, match="is not a Hydra override"):
        train(recipe_file, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "True"),
        (None, "null"),
        ("1e-6", "1e-6"),
        (["console", "wandb"], "[console,wandb]"),
        ({}, "{}"),
        ("/my runs/1", "'/my runs/1'"),
        ("it's", r"'it\'s'"),
        ("", "''"),
    ],
)
def test_values_are_written_in_hydras_grammar(value: object, text: str) -> None:
    assert literal(value) == text


@pytest.mark.parametrize(
    "value", ["/my runs/1", "it's", "back\\slash", "end\\", "a\\'b", "", "x=y,z", "${oc.env:HOME}", "ü"]
)
def test_quoted_strings_round_trip_through_hydra(value: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    assert OverridesParser.create().parse_override(f"key={literal(value)}").value() == value
    assert str(parse(f"key={literal(value)}")) == f"key={literal(value)}"
    assert str(parse(f"key={literal(value)}").plain() or "") == value
