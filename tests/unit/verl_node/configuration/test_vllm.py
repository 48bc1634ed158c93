"""Settings that verl 0.4 cannot use with vLLM 0.6.3, on verl's real configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl_node.configuration import rules
from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import errors
from verl_node.configuration.rules import enum_values
from verl_node.training import recipe, releases

from tests.support.paths import RECIPES

VERL = "0.4.0"
OF_ROCM6_2 = "0.6.3+rocm624"


def found(config_dir: Path, name: str, vllm: str, *overrides: str) -> list[str]:
    """Return the errors of a recipe with verl 0.4.0."""
    training = recipe.make_training(
        recipe.load(RECIPES / f"{name}.yaml"),
        overrides,
        verl_version=VERL,
        nodes=2,
        gpus_per_node=8,
        run_dir=Path("/run"),
        data_dir=Path("/data"),
    )
    with initialize_config_dir(str(config_dir), version_base=None):
        values: Any = OmegaConf.to_container(compose("ppo_trainer", overrides=training.argv[3:]), resolve=True)
    config = Config(values)

    def registered(key: str) -> Sequence[str]:
        return ()

    findings = [
        *enum_values.unknown_values(config, releases.load(VERL).choices, registered),
        *rules.apply(config, Facts(vllm=vllm, engines=("vllm",))),
    ]
    return [finding.sentence() for finding in errors(findings)]


@pytest.mark.parametrize("name", ["gsm8k_ppo", "gsm8k_grpo"])
def test_both_recipes_pass_with_vllm_0_6_3(name: str, verl_config: Callable[[str], Path]) -> None:
    assert found(verl_config(VERL), name, OF_ROCM6_2) == []


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("rollout.mode=async", "rollout.mode is async, which needs vLLM's own server; vLLM 0.6.3+rocm624 has none"),
        ("rollout.enforce_eager=False", "enforce_eager is false and free_cache_engine true"),
        ("rollout.load_format=dummy", "load_format is dummy; with vLLM 0.6.3+rocm624 verl supports auto,"),
        ("model.lora_rank=32", "lora_rank is above 0, and vLLM 0.6.3+rocm624 cannot load verl's adapters"),
    ],
)
def test_setting_without_support_in_this_vllm_is_an_error(
    override: str, says: str, verl_config: Callable[[str], Path]
) -> None:
    override = f"actor_rollout_ref.{override}"
    (error,) = found(verl_config(VERL), "gsm8k_grpo", OF_ROCM6_2, override)
    assert says in error
    if "enforce_eager" not in override:
        assert found(verl_config(VERL), "gsm8k_grpo", "0.8.5", override) == []


def test_graphs_are_possible_if_the_cache_is_kept(verl_config: Callable[[str], Path]) -> None:
    overrides = [f"actor_rollout_ref.rollout.{name}=False" for name in ("enforce_eager", "free_cache_engine")]
    assert found(verl_config(VERL), "gsm8k_grpo", OF_ROCM6_2, *overrides) == []
