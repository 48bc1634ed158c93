"""The rules by themselves, on small configurations; tests/image has them on verl's own, whole ones."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from verl_node.configuration import __main__ as configuration
from verl_node.configuration import check, child, composition, finding
from verl_node.configuration.facts import Config, Facts, Model
from verl_node.configuration.rules import batch, memory, paths
from verl_node.errors import BadTrainingConfig
from verl_node.gpu import platforms, usage
from verl_node.gpu.platforms import Platform
from verl_node.training import recipe as recipes

from tests.support.paths import RECIPES

SEVEN_BILLION = Model(7_615_616_512, 28, 28, 4, 128, 152064, 32768, 57344)
GB = 10**9


def config(**more: Any) -> Config:
    """GRPO on 2 nodes with 8 GPUs each; ``more`` by keys with two underscores for a dot."""
    values: dict[str, Any] = {
        "trainer": {"nnodes": 2, "n_gpus_per_node": 8, "total_epochs": 2},
        "data": {"train_batch_size": 1024, "max_prompt_length": 1024, "max_response_length": 1024},
        "algorithm": {"adv_estimator": "grpo"},
        "critic": {"enable": None},
        "actor_rollout_ref": {
            "model": {"path": "/models/7b"},
            "actor": {"strategy": "fsdp", "ppo_mini_batch_size": 256, "fsdp_config": {"fsdp_size": -1}},
            "ref": {"fsdp_config": {}},
            "rollout": {"name": "vllm", "n": 5, "tensor_model_parallel_size": 2, "gpu_memory_utilization": 0.6},
        },
    }
    for key, value in more.items():
        *parents, name = key.split("__")
        inner = values
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    return Config(values)


def test_a_config_is_read_by_dotted_keys() -> None:
    read = config(trainer__logger="???")
    assert read.get("data.train_batch_size") == 1024
    assert read.get("trainer.logger") is None
    assert read.has("trainer.logger")
    assert read.get("data.train_batch_size.deeper") is None
    assert read.count("algorithm.adv_estimator", 7) == 7
    assert (read.gpus, read.trains_a_critic, read.has_a_reference) == (16, False, False)


@pytest.mark.parametrize(
    ("key", "meant"),
    [("trainer.save_freqq", "trainer.save_freq"), ("rollout.temperature", "actor.rollout.temperature"), ("colour", "")],
)
def test_the_nearest_key_is_a_slip_or_the_same_name_elsewhere(key: str, meant: str) -> None:
    assert composition.nearest(key, ["trainer.save_freq", "trainer.test_freq", "actor.rollout.temperature"]) == meant


def test_a_trainer_says_where_its_configuration_is_without_being_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('it is not imported')")
    (package / "train.py").write_text("@hydra.main(config_path='conf', config_name='job.yaml')\ndef main(c): ...\n")
    (package / "plain.py").write_text("print()")
    monkeypatch.syspath_prepend(tmp_path)
    assert composition.source("mine.train") == composition.Source(package / "conf", "job")
    assert composition.source("mine.plain") is None
    assert composition.source("mine.absent") is None
    assert composition.source("no_such_package.main") is None


def test_a_trainer_without_hydra_is_let_through_with_a_word() -> None:
    (found,) = check.of_command(["python3", "-m", "no_such_package.main", "a=1"], {}, Facts()).findings
    assert (found.severity, "is not looked at" in found.cause) == ("note", True)


def test_replicas_are_the_gpus_over_those_that_share_a_sequence() -> None:
    assert batch.replicas(config()) == 16
    assert batch.replicas(config(actor_rollout_ref__actor__ulysses_sequence_parallel_size=4)) == 4
    megatron = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}
    assert (
        batch.replicas(
            config(actor_rollout_ref__actor__strategy="megatron", actor_rollout_ref__actor__megatron=megatron)
        )
        == 4
    )


def test_memory_is_counted_by_what_each_part_takes() -> None:
    (actor,) = memory.roles(config(), SEVEN_BILLION)
    each = SEVEN_BILLION.parameters * 4 / 16
    assert (actor.weights, actor.gradients, actor.optimiser) == (each, each, 2 * each)
    assert (actor.busy, actor.idle, actor.idle_at_start, actor.on_node) == (4 * each, 3 * each, each, 0)


def test_offloaded_parts_lie_in_the_nodes_memory() -> None:
    offload = {"param_offload": True, "optimizer_offload": True, "fsdp_size": -1}
    (actor,) = memory.roles(config(actor_rollout_ref__actor__fsdp_config=offload), SEVEN_BILLION)
    assert (actor.idle, actor.on_node) == (0, SEVEN_BILLION.parameters * 12 / 16)


def test_an_adapter_needs_neither_gradients_nor_moments_of_the_whole() -> None:
    (actor,) = memory.roles(config(actor_rollout_ref__model__lora_rank=32), SEVEN_BILLION)
    assert actor.gradients == actor.optimiser == 0


@pytest.mark.parametrize(("share", "severity"), [(0.6, ""), (0.94, "warning"), (0.99, "error")])
def test_the_rollout_leaves_room_for_what_is_trained(share: float, severity: str) -> None:
    facts = Facts(gpu_memory=80 * GB, model=SEVEN_BILLION)
    found = list(memory.memory_of_a_gpu(config(actor_rollout_ref__rollout__gpu_memory_utilization=share), facts))
    assert [one.severity for one in found if one.severity != "note"] == ([severity] if severity else [])


def test_steps_are_known_by_the_rows_or_when_they_are_said() -> None:
    assert paths.steps(config(), Facts()) is None
    assert paths.steps(config(), Facts(rows=7473)) == 14
    assert paths.steps(config(trainer__total_training_steps=4), Facts(rows=7473)) == 4


def test_all_errors_end_a_job_in_one_sentence_each_and_warnings_do_not() -> None:
    finding.require_none([finding.warning("a", "A is odd.", "Look."), finding.note("b", "B.")])
    with pytest.raises(BadTrainingConfig) as seen:
        finding.require_none(
            [finding.error("a", "A is wrong.", "Say A=1."), finding.error("b", "B is, too.", "Say A=1.")]
        )
    assert (seen.value.code, seen.value.cause, seen.value.fix) == (65, "A is wrong. B is, too.", "Say A=1.")


def test_what_is_kept_for_prepare_is_what_was_seen(tmp_path: Path) -> None:
    kept = tmp_path / "configuration.json"
    check.save(kept, config(), Facts(gpu_memory=80 * GB, wandb=True))
    read, facts = check.saved(kept)
    assert (read.values, facts) == (config().values, Facts(gpu_memory=80 * GB, wandb=True))


def answering(tmp_path: Path, text: str, code: int) -> list[str]:
    script = tmp_path / "look.py"
    script.write_text(f"import sys\nprint({text!r})\nsys.exit({code})")
    return [sys.executable, str(script)]


def test_a_job_notes_warnings_and_ends_with_65_for_errors(tmp_path: Path) -> None:
    notes: list[str] = []
    answer = json.dumps({"findings": [finding.warning("a", "A is odd.", "Look.").message()]})
    asyncio.run(child.run(answering(tmp_path, answer, 0), {}, notes.append, lambda: notes.append("sound")))
    assert notes == ["sound", "warning: A is odd. Look."]
    answer = json.dumps({"findings": [finding.error("a", "A is wrong.", "Say A=1.").message()]})
    with pytest.raises(BadTrainingConfig, match=r"A is wrong\. Say A=1\."):
        asyncio.run(child.run(answering(tmp_path, answer, 65), {}, notes.append, lambda: notes.append("sound")))
    assert notes.count("sound") == 1


def test_a_look_that_fails_itself_ends_no_job(tmp_path: Path) -> None:
    notes: list[str] = []
    asyncio.run(child.run(answering(tmp_path, "MemoryError", 137), {}, notes.append, notes.clear))
    assert notes == ["warning: the look at the configuration ended with 137, training will tell: MemoryError"]


def test_a_gpus_memory_is_what_the_driver_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for card, size in (("card0", 192 * GB), ("card1", 64 * GB)):
        (tmp_path / card).mkdir()
        (tmp_path / card / "mem_info_vram_total").write_text(f"{size}\n")
    files = Platform("", (), (), 0, 0, (0, 0), False, memory_files=f"{tmp_path}/card*/mem_info_vram_total")
    command = Platform("", (), (), 0, 0, (0, 0), False, memory_command=("printf", r"143771\n81559\n"))
    monkeypatch.setattr(platforms, "PLATFORMS", {"cpu": platforms.PLATFORMS["cpu"], "amd": files, "nvidia": command})
    assert usage.memory_bytes("amd") == 64 * GB
    assert usage.memory_bytes("nvidia") == 81559 << 20
    assert usage.memory_bytes("cpu") is None


@pytest.mark.parametrize("recipe", ["gsm8k_ppo", "gsm8k_grpo", "demo_cpu"])
def test_the_command_that_is_printed_is_the_jobs(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = ["trainer.total_epochs=2", "trainer.experiment_name='two words'"]
    flags = ["--recipe", str(RECIPES / f"{recipe}.yaml"), "--verl", "0.9.1", "--nodes", "3", "--gpus-per-node", "4"]

    assert configuration.main([*flags, "--print", "--", *overrides]) == 0

    wanted = recipes.training(
        recipes.load(RECIPES / f"{recipe}.yaml"), overrides, verl_version="0.9.1", nodes=3, gpus_per_node=4,
        run_dir=Path("/run-directory"), data_dir=Path("/data-directory"),
    )  # fmt: skip
    words = shlex.split(capsys.readouterr().out)
    assert words == ["env", *(f"{name}={value}" for name, value in wanted.env.items()), *wanted.argv]


def test_a_command_that_cannot_be_made_ends_with_65_and_one_with_a_secret_is_masked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--recipe", str(RECIPES / "demo_cpu.yaml"), "--verl", "0.9.1", "--print", "--"]

    assert configuration.main([*flags, "trainer.nnodes=9"]) == 65
    assert "trainer.nnodes" in capsys.readouterr().err
    assert configuration.main([*flags, "+a.token=hf_0123456789abcdefghijABCDEFGHIJ0123"]) == 0
    assert "hf_0123456789" not in capsys.readouterr().out
