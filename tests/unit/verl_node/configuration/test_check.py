"""The rules on small configurations; tests/image checks verl's complete ones."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from dataclasses import asdict
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
from verl_node.training import attention
from verl_node.training import recipe as recipes

from tests.support.paths import RECIPES

SEVEN_BILLION = Model(7_615_616_512, 28, 28, 4, 128, 152064, 32768, 57344)
GB = 10**9


def config(**more: Any) -> Config:
    """GRPO on 2 nodes with 8 GPUs each; ``more`` has other values, with two underscores for a dot."""
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


def test_config_is_read_by_dotted_keys() -> None:
    read = config(trainer__logger="???")
    assert read.get("data.train_batch_size") == 1024
    assert read.get("trainer.logger") is None
    assert read.has("trainer.logger")
    assert read.get("data.train_batch_size.deeper") is None
    assert read.count("algorithm.adv_estimator", 7) == 7
    assert (read.gpus, read.trains_a_critic, read.has_a_reference) == (16, False, False)


@pytest.mark.parametrize(
    ("key", "expected"),
    [("trainer.save_freqq", "trainer.save_freq"), ("rollout.temperature", "actor.rollout.temperature"), ("colour", "")],
)
def test_nearest_key_is_a_typo_or_the_same_name_elsewhere(key: str, expected: str) -> None:
    assert composition.nearest(key, ["trainer.save_freq", "trainer.test_freq", "actor.rollout.temperature"]) == expected


def test_trainers_configuration_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('it must not be imported')")
    (package / "train.py").write_text("@hydra.main(config_path='conf', config_name='job.yaml')\ndef main(c): ...\n")
    (package / "plain.py").write_text("print()")
    monkeypatch.syspath_prepend(tmp_path)
    assert composition.source("mine.train") == composition.Source(package / "conf", "job")
    assert composition.source("mine.plain") is None
    assert composition.source("mine.absent") is None
    assert composition.source("no_such_package.main") is None


def test_trainer_without_hydra_passes_with_a_note() -> None:
    (found,) = check.check_command(["python3", "-m", "no_such_package.main", "a=1"], {}, Facts()).findings
    assert (found.severity, "is not checked" in found.cause) == ("note", True)


def test_replicas_are_gpus_divided_by_the_parallel_sizes() -> None:
    assert batch.replicas(config()) == 16
    assert batch.replicas(config(actor_rollout_ref__actor__ulysses_sequence_parallel_size=4)) == 4
    megatron = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}
    assert (
        batch.replicas(
            config(actor_rollout_ref__actor__strategy="megatron", actor_rollout_ref__actor__megatron=megatron)
        )
        == 4
    )


def test_memory_of_a_role_is_the_sum_of_its_parts() -> None:
    (actor,) = memory.roles(config(), SEVEN_BILLION)
    size = SEVEN_BILLION.parameters * 4 / 16
    assert (actor.weights, actor.gradients, actor.optimiser) == (size, size, 2 * size)
    assert (actor.busy, actor.idle, actor.idle_at_start, actor.on_node) == (4 * size, 3 * size, size, 0)


def test_offloaded_parts_use_the_nodes_memory() -> None:
    offload = {"param_offload": True, "optimizer_offload": True, "fsdp_size": -1}
    (actor,) = memory.roles(config(actor_rollout_ref__actor__fsdp_config=offload), SEVEN_BILLION)
    assert (actor.idle, actor.on_node) == (0, SEVEN_BILLION.parameters * 12 / 16)


@pytest.mark.parametrize(("gpus", "at_start"), [(1, SEVEN_BILLION.parameters * 4), (2, 0)])
def test_offloaded_reference_stays_on_a_single_gpu_until_its_first_use(gpus: int, at_start: int) -> None:
    values = config(
        trainer__nnodes=1,
        trainer__n_gpus_per_node=gpus,
        actor_rollout_ref__actor__use_kl_loss=True,
        actor_rollout_ref__ref__fsdp_config={"param_offload": True},
    )
    _, reference = memory.roles(values, SEVEN_BILLION)

    assert (reference.key, reference.idle_at_start, reference.idle) == ("actor_rollout_ref.ref", at_start, 0)


def test_adapter_needs_no_gradients_or_moments_of_the_model() -> None:
    (actor,) = memory.roles(config(actor_rollout_ref__model__lora_rank=32), SEVEN_BILLION)
    assert actor.gradients == actor.optimiser == 0


@pytest.mark.parametrize(("share", "severity"), [(0.6, ""), (0.94, "warning"), (0.99, "error")])
def test_rollout_must_leave_memory_for_the_training(share: float, severity: str) -> None:
    facts = Facts(gpu_memory=80 * GB, model=SEVEN_BILLION)
    found = list(memory.memory_of_a_gpu(config(actor_rollout_ref__rollout__gpu_memory_utilization=share), facts))
    assert [each.severity for each in found if each.severity != "note"] == ([severity] if severity else [])


def test_share_beside_a_reference_that_leaves_a_single_gpu_late_is_an_error() -> None:
    half = Model(494_032_768, 24, 14, 2, 64, 151936, 32768, 12288)
    values = config(
        trainer__nnodes=1,
        trainer__n_gpus_per_node=1,
        actor_rollout_ref__actor__use_kl_loss=True,
        actor_rollout_ref__model__lora_rank=32,
        actor_rollout_ref__ref__fsdp_config={"param_offload": True},
        actor_rollout_ref__rollout__gpu_memory_utilization=0.96,
    )
    found = list(memory.memory_of_a_gpu(values, Facts(gpu_memory=80 * GB, model=half)))

    assert [(each.severity, "gpu_memory_utilization=0.95 or less" in each.fix) for each in found[2:]] == [
        ("error", True)
    ]


def test_steps_are_computed_from_rows_or_given() -> None:
    assert paths.steps(config(), Facts()) is None
    assert paths.steps(config(), Facts(rows=7473)) == 14
    assert paths.steps(config(trainer__total_training_steps=4), Facts(rows=7473)) == 4


def test_errors_are_raised_together_and_warnings_are_not() -> None:
    finding.require_no_errors([finding.warning("a", "A is odd.", "Check it."), finding.note("b", "B.")])
    with pytest.raises(BadTrainingConfig) as seen:
        finding.require_no_errors(
            [finding.error("a", "A is wrong.", "Set A=1."), finding.error("b", "B is, too.", "Set A=1.")]
        )
    assert (seen.value.code, seen.value.cause, seen.value.fix) == (65, "A is wrong. B is, too.", "Set A=1.")


def test_saved_configuration_round_trips(tmp_path: Path) -> None:
    file = tmp_path / "configuration.json"
    check.save(file, config(), Facts(gpu_memory=80 * GB, wandb=True))
    read, facts = check.saved(file)
    assert (read.values, facts) == (config().values, Facts(gpu_memory=80 * GB, wandb=True))


def printing(tmp_path: Path, text: str, code: int) -> list[str]:
    script = tmp_path / "check.py"
    script.write_text(f"import sys\nprint({text!r})\nsys.exit({code})")
    return [sys.executable, str(script)]


def test_warnings_are_logged_and_errors_exit_with_65(tmp_path: Path) -> None:
    notes: list[str] = []
    answer = json.dumps({"findings": [asdict(finding.warning("a", "A is odd.", "Check it."))]})
    asyncio.run(child.run(printing(tmp_path, answer, 0), {}, notes.append, lambda: notes.append("passed")))
    assert notes == ["passed", "warning: A is odd. Check it."]
    answer = json.dumps({"findings": [asdict(finding.error("a", "A is wrong.", "Set A=1."))]})
    with pytest.raises(BadTrainingConfig, match=r"A is wrong\. Set A=1\."):
        asyncio.run(child.run(printing(tmp_path, answer, 65), {}, notes.append, lambda: notes.append("passed")))
    assert notes.count("passed") == 1


def test_failed_check_is_only_logged(tmp_path: Path) -> None:
    notes: list[str] = []
    asyncio.run(child.run(printing(tmp_path, "MemoryError", 137), {}, notes.append, notes.clear))
    assert notes == ["warning: the check of the configuration exited with 137; training may fail: MemoryError"]


def test_gpu_memory_is_read_from_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
@pytest.mark.parametrize("own", ["", "trainer.test_freq=7 trainer.val_before_train=false"])
def test_printed_command_equals_the_jobs(
    recipe: str, own: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERLJOB_IMAGE_OVERRIDES", own)
    overrides = ["trainer.total_epochs=2", "trainer.experiment_name='two words'"]
    flags = ["--recipe", str(RECIPES / f"{recipe}.yaml"), "--verl", "0.9.1", "--nodes", "3", "--gpus-per-node", "4"]

    assert configuration.main([*flags, "--print", "--", *overrides]) == 0

    expected = recipes.make_training(
        recipes.load(RECIPES / f"{recipe}.yaml"), overrides, verl_version="0.9.1", nodes=3, gpus_per_node=4,
        run_dir=Path("/run-directory"), data_dir=Path("/data-directory"), flash_attn=attention.flash_attn_installed(),
        image_overrides=own.split(),
    )  # fmt: skip
    argv = shlex.split(capsys.readouterr().out)
    assert {*own.split()} <= {*argv}
    assert argv == ["env", *(f"{name}={value}" for name, value in expected.env.items()), *expected.argv]


def test_invalid_command_exits_with_65_and_secrets_are_masked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--recipe", str(RECIPES / "demo_cpu.yaml"), "--verl", "0.9.1", "--print", "--"]

    assert configuration.main([*flags, "trainer.nnodes=9"]) == 65
    assert "trainer.nnodes" in capsys.readouterr().err
    assert configuration.main([*flags, "+a.token=hf_0123456789abcdefghijABCDEFGHIJ0123"]) == 0
    assert "hf_0123456789" not in capsys.readouterr().out
