"""Whoever comes from an older verl or its guides is told what each of its keys is now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from verl_node import releases
from verl_node.errors import BadTrainingConfig
from verl_node.overrides import Override

# Composed from the wheels of PyPI: per release, the keys of its ppo_trainer that verl 0.9.1 has no more.
GONE: dict[str, list[str]] = json.loads((Path(__file__).parent / "recorded" / "keys-gone.json").read_text())

# As the guides write them, for whatever verl their authors had.
OF_THE_GUIDES = {
    "critic.model.fsdp_config.param_offload": "critic.fsdp.param_offload",
    "actor_rollout_ref.ref.fsdp_config.cpu_offload": "actor_rollout_ref.ref.fsdp_config.param_offload",
    "actor_rollout_ref.actor.fsdp_config.cpu_offload": "actor_rollout_ref.actor.fsdp_config.param_offload",
    "actor_rollout_ref.ref.fsdp_config.sharding_strategy": "ref.fsdp_config.reshard_after_forward=true",
    "actor_rollout_ref.actor.fsdp_config.sharding_strategy": "reshard_after_forward=true",
}
STILL = """
data.train_files data.val_files data.train_batch_size data.max_prompt_length data.max_response_length
actor_rollout_ref.model.path actor_rollout_ref.actor.optim.lr actor_rollout_ref.rollout.name
actor_rollout_ref.rollout.gpu_memory_utilization actor_rollout_ref.rollout.tensor_model_parallel_size
actor_rollout_ref.rollout.enable_chunked_prefill actor_rollout_ref.rollout.max_num_seqs
actor_rollout_ref.rollout.max_model_len actor_rollout_ref.ref.fsdp_config.param_offload
actor_rollout_ref.ref.fsdp_config.optimizer_offload actor_rollout_ref.ref.fsdp_config.use_orig_params
actor_rollout_ref.actor.fsdp_config.param_offload actor_rollout_ref.actor.fsdp_config.optimizer_offload
critic.model.path critic.optim.lr trainer.n_gpus_per_node trainer.nnodes trainer.project_name trainer.experiment_name
trainer.total_epochs trainer.logger trainer.save_freq
""".split()  # noqa: SIM905
ABSENT_IN_0_4 = {f"actor_rollout_ref.ref.fsdp_config.{name}" for name in ("optimizer_offload", "use_orig_params")}


@pytest.mark.parametrize("release", GONE)
def test_every_key_that_verl_0_9_lacks_is_answered(release: str) -> None:
    table = releases.load("0.9.1")
    for key in GONE[release]:
        with pytest.raises(BadTrainingConfig) as seen:
            table.translate(Override("", key, "1"))
        assert seen.value.fix


@pytest.mark.parametrize(("key", "now"), OF_THE_GUIDES.items())
def test_the_guides_keys_that_went_are_named_with_what_they_are_now(key: str, now: str) -> None:
    with pytest.raises(BadTrainingConfig) as seen:
        releases.load("0.9.1").translate(Override("", key, "1"))
    assert now in seen.value.fix


@pytest.mark.parametrize("key", STILL)
def test_the_guides_other_keys_are_verl_0_9s_own(key: str) -> None:
    assert releases.load("0.9.1").translate(Override("", key, "1")) == Override("", key, "1")


@pytest.mark.parametrize("key", STILL)
def test_verl_0_4_has_them_too_or_it_is_said_that_it_has_none(key: str) -> None:
    table = releases.load("0.4.1")
    if key in ABSENT_IN_0_4:
        with pytest.raises(BadTrainingConfig, match=r"no counterpart in verl 0\.4"):
            table.translate(Override("", key, "1"))
    else:
        assert table.translate(Override("", key, "1")) == Override("", key, "1")


def test_a_key_that_was_removed_may_still_be_added() -> None:
    key = "actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space"
    assert releases.load("0.9.1").translate(Override("+", key, "8")).key == key
