"""The critic's batches with releases of verl whose critic ignores its own keys for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from verl_node.settings.overrides import merge, parse
from verl_node.training import critic_batches, derived_overrides, recipe

from tests.support.paths import RECIPES

GAE = "algorithm.adv_estimator=gae"
MICRO = "critic.ppo_micro_batch_size_per_gpu=8"


def train(name: str, *overrides: str, verl: str = "0.9.1") -> recipe.Training:
    facts: dict[str, Any] = {"nodes": 2, "gpus_per_node": 8, "run_dir": Path("/runs/1"), "data_dir": Path("/data")}
    return recipe.make_training(recipe.load(RECIPES / f"{name}.yaml"), overrides, verl_version=verl, **facts)


@pytest.mark.parametrize("verl", ["0.8.0", "0.9.1"])
def test_the_critics_engine_gets_the_recipes_micro_batch(verl: str, verl_config: Callable[[str], Path]) -> None:
    training = train("gsm8k_ppo", "critic.forward_micro_batch_size_per_gpu=16", verl=verl)
    with initialize_config_dir(str(verl_config(verl)), version_base=None):
        engine = compose("ppo_trainer", overrides=training.argv[3:]).critic.fsdp

    assert (engine.use_dynamic_bsz, engine.micro_batch_size_per_gpu, engine.infer_micro_batch_size_per_gpu) == (
        (False, 8, 16)
    )
    assert any(
        f"verl {verl[:3]} ignores the critic's keys" in note and "critic.fsdp.micro_batch_size_per_gpu=8" in note
        for note in training.notes
    )


@pytest.mark.parametrize(("name", "verl"), [("gsm8k_ppo", "0.7.1"), ("gsm8k_grpo", "0.9.1")])
def test_a_release_that_reads_the_keys_and_a_training_without_a_critic_get_none(name: str, verl: str) -> None:
    training = train(name, verl=verl)

    assert not [text for text in training.argv if "infer" in text]
    assert not [note for note in training.notes if "ignores the critic" in note]


@pytest.mark.parametrize(
    ("given", "added"),
    [
        (
            [GAE, MICRO],
            ["use_dynamic_bsz=False", "micro_batch_size_per_gpu=8", "infer_micro_batch_size_per_gpu=8"],
        ),
        ([GAE, MICRO, "critic.use_dynamic_bsz=true"], []),
        ([GAE, MICRO, "+critic.fsdp.micro_batch_size_per_gpu=4"], []),
        ([GAE, MICRO, "+critic.fsdp.use_dynamic_bsz=true"], []),
        ([GAE, MICRO, "+critic.fsdp.infer_micro_batch_size_per_gpu=4"], []),
        ([GAE, "critic.use_dynamic_bsz=true", "~critic.ppo_max_token_len_per_gpu"], []),
        ([GAE, MICRO, "critic.strategy=megatron"], []),
        ([GAE, MICRO, "model_engine=megatron"], []),
        ([GAE, MICRO, "critic@critic=veomni_critic"], []),
        ([GAE, MICRO, "critic.enable=false"], []),
        (["algorithm.adv_estimator=grpo", MICRO], []),
        (
            ["algorithm.adv_estimator=grpo", MICRO, "critic.enable=true", "critic.strategy=fsdp2"],
            ["use_dynamic_bsz=False"],
        ),
    ],
)
def test_the_engine_gets_what_the_critics_keys_say(given: list[str], added: list[str]) -> None:
    found = [str(each) for each in critic_batches.overrides(derived_overrides.TRAINER, merge(map(parse, given)))]

    assert found[: len(added)] == [f"++critic.fsdp.{text}" for text in added]
    assert bool(found) == bool(added)


def test_with_batches_by_tokens_training_has_its_own_limit() -> None:
    given = merge(map(parse, ["actor_rollout_ref.actor.use_dynamic_bsz=true", "critic.ppo_max_token_len_per_gpu=4096"]))

    assert list(map(str, critic_batches.overrides(derived_overrides.TRAINER, given))) == [
        "++critic.ppo_infer_max_token_len_per_gpu=4096"
    ]
    assert list(critic_batches.overrides("my.trainer", given)) == []
