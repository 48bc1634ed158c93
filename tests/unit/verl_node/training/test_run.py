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
def written(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    return path


def train(path: Path, *overrides: str, verl: str = "0.9.1", **more: Any) -> recipe.Training:
    facts: dict[str, Any] = {"nodes": 2, "gpus_per_node": 4, "run_dir": Path("/run"), "data_dir": Path("/data")}
    return recipe.training(recipe.load(path), overrides, verl_version=verl, **{**facts, **more})


def test_a_recipe_may_nest_its_keys_and_has_a_name(written: Path) -> None:
    assert recipe.load(written).name == "mine"
    argv = train(written).argv
    assert argv[:3] == ["python3", "-m", "verl.trainer.main_ppo"]
    assert "trainer.save_freq=5" in argv


@pytest.mark.parametrize("text", ["just words", "platform: any", f"{TEXT}\nsurprise: 1", "a: [", ""])
def test_a_file_that_is_no_recipe_ends_with_65(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(BadTrainingConfig, match=r"bad\.yaml"):
        recipe.load(tmp_path / "bad.yaml")
    with pytest.raises(BadTrainingConfig, match=r"absent\.yaml cannot be read"):
        recipe.load(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    "override", ["trainer.nnodes=3", "trainer.n_gpus_per_node=8", "~trainer.nnodes", "trainer.nnodes=two"]
)
def test_an_override_that_contradicts_the_allocation_ends_with_65(written: Path, override: str) -> None:
    with pytest.raises(BadTrainingConfig, match="contradicts the allocation") as seen:
        train(written, override)
    assert override in seen.value.cause


def test_an_override_that_agrees_with_the_allocation_is_fine(written: Path) -> None:
    assert train(written, "trainer.nnodes=2").argv.count("trainer.nnodes=2") == 1


def test_an_override_wins_over_the_recipe_and_stands_once(written: Path) -> None:
    argv = train(written, "data.train_batch_size=32", "trainer.experiment_name=mine").argv
    assert [word for word in argv if word.startswith("data.train_batch_size")] == ["data.train_batch_size=32"]
    assert "trainer.experiment_name=mine" in argv


def test_a_key_that_the_recipe_adds_is_still_added_when_it_is_overridden(written: Path) -> None:
    key = "actor_rollout_ref.model.override_config.attn_implementation"
    assert f"+{key}=eager" in train(written, f"{key}=eager").argv


def test_data_of_several_sets_is_one_list_a_split(written: Path) -> None:
    training = train(written)
    assert "data.train_files=[/data/gsm8k/train.parquet,/data/math/train.parquet]" in training.argv
    assert training.datasets == ["gsm8k", "math"]


def test_data_files_of_the_user_are_checked_instead_of_made(written: Path) -> None:
    training = train(written, "data.train_files=[/a/1.parquet,/a/2.parquet]", "data.val_files=/a/3.parquet")
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
def test_a_relative_path_ends_with_65_because_each_worker_would_read_it_otherwise(written: Path, override: str) -> None:
    with pytest.raises(BadTrainingConfig, match="relative path"):
        train(written, override)


def test_the_model_is_the_overrides_then_the_settings_then_the_recipes(written: Path) -> None:
    assert train(written).models == ["Org/Name"]
    assert train(written, model="/models/mine").models == ["/models/mine"]
    training = train(written, "actor_rollout_ref.model.path=/models/other", model="/models/mine")
    assert training.models == ["/models/other", "/models/mine"]
    assert "actor_rollout_ref.model.path=/models/other" in training.argv
    assert "critic.model.path=/models/mine" in training.argv


def test_a_recipe_without_a_model_names_none_and_prepares_none(written: Path) -> None:
    written.write_text(TEXT.replace("Org/Name", "null"))
    training = train(written)
    assert training.models == []
    assert not [word for word in training.argv if ".model.path=" in word]
    assert train(written, model="/models/mine").models == ["/models/mine"]


def test_the_demo_model_is_a_folder_to_verl(written: Path) -> None:
    training = train(written, model="demo:qwen2-tiny")
    assert "actor_rollout_ref.model.path=/data/models/qwen2-tiny" in training.argv


def test_verls_file_logger_is_always_on_and_its_path_reaches_every_worker(written: Path) -> None:
    training = train(written, "trainer.logger=[tensorboard]")
    assert "trainer.logger=[console,file,tensorboard]" in training.argv
    assert training.file_log == Path("/run/verl.jsonl")
    assert training.env["VERL_FILE_LOGGER_PATH"] == "/run/verl.jsonl"
    assert "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH='/run/verl.jsonl'" in training.argv


def test_a_verl_without_a_file_logger_is_read_from_its_console_and_says_so(written: Path) -> None:
    training = train(written, verl="0.4.1")
    assert "trainer.logger=[console]" in training.argv
    assert training.file_log is None
    assert "VERL_FILE_LOGGER_PATH" not in training.env
    assert not any("ray_kwargs" in word for word in training.argv)
    assert any("no file logger" in note for note in training.notes)


def test_a_recipes_wandb_needs_an_account_and_a_users_does_not(written: Path) -> None:
    assert "trainer.logger=[console,file]" in train(written).argv
    assert any("WANDB_API_KEY" in note for note in train(written).notes)
    assert "trainer.logger=[console,file,wandb]" in train(written, wandb=True).argv
    assert "trainer.logger=[console,file,wandb]" in train(written, "trainer.logger=[wandb]").argv


def test_a_run_without_checkpoints_is_told_and_a_long_one_is_warned(written: Path) -> None:
    assert not any("save_freq" in note for note in train(written, long=True).notes)
    assert any(note.startswith("trainer.save_freq") for note in train(written, "trainer.save_freq=-1").notes)
    assert any(
        note.startswith("warning: trainer.save_freq") and "over a day" in note
        for note in train(written, "trainer.save_freq=-1", long=True).notes
    )


def test_checkpoints_lie_where_all_attempts_of_the_job_find_them(written: Path) -> None:
    assert "trainer.default_local_dir=/run/checkpoints" in train(written).argv
    training = train(written, checkpoints=Path("/job/checkpoints"))
    assert "trainer.default_local_dir=/job/checkpoints" in training.argv
    assert training.checkpoints == Path("/job/checkpoints")
    assert train(written, "trainer.default_local_dir=/mine").checkpoints == Path("/mine")


def test_the_end_of_the_job_reaches_the_trainers_that_save_shortly_before_it(written: Path) -> None:
    name = "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP"
    training = train(written, expires=1798859015)
    assert training.env[name] == "1798859015"
    assert f"+ray_kwargs.ray_init.runtime_env.env_vars.{name}='1798859015'" in training.argv
    assert name not in train(written).env


@pytest.mark.parametrize("verl", ["0.9.1", "0.4.1"])
def test_every_release_has_the_keys_by_which_a_training_goes_on(verl_config: Callable[[str], Path], verl: str) -> None:
    config = yaml.safe_load((verl_config(verl) / "ppo_trainer.yaml").read_text())
    assert {"resume_mode", "resume_from_path", "default_local_dir", "save_freq"} <= set(config["trainer"])


def test_workers_are_offline_once_everything_is_there(written: Path) -> None:
    assert train(written).env["HF_HUB_OFFLINE"] == "1"


def test_the_preparation_names_everything_that_the_training_needs(written: Path) -> None:
    training = train(written, "data.val_files=/a/3.parquet")
    assert recipe.preparation(training, Path("/data"), Path("/raw"))[3:] == [
        *("--data-dir", "/data", "--source", "/raw"),
        *("--dataset", "gsm8k", "--dataset", "math", "--file", "/a/3.parquet", "--model", "Org/Name"),
    ]


@pytest.mark.parametrize("text", ["--cfg", "word", "=1", "a b=1", "1key=2", "trainer.nnodes"])
def test_what_is_no_override_ends_with_65(written: Path, text: str) -> None:
    with pytest.raises(BadTrainingConfig, match="is not a Hydra override"):
        train(written, text)


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
def test_values_are_said_in_hydras_grammar(value: object, text: str) -> None:
    assert literal(value) == text


@pytest.mark.parametrize(
    "value", ["/my runs/1", "it's", "back\\slash", "end\\", "a\\'b", "", "x=y,z", "${oc.env:HOME}", "ü"]
)
def test_hydra_reads_a_quoted_string_back_as_it_was(value: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    assert OverridesParser.create().parse_override(f"key={literal(value)}").value() == value
    assert str(parse(f"key={literal(value)}")) == f"key={literal(value)}"
    assert str(parse(f"key={literal(value)}").plain() or "") == value
