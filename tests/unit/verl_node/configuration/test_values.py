"""Every rule with unusual values of every key that it reads: it raises nothing, and its findings are complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from verl_node.configuration import rules
from verl_node.configuration.facts import MISSING, Config, Facts, Model
from verl_node.configuration.finding import ERROR, Finding
from verl_node.configuration.rules import enum_values
from verl_node.configuration.rules.sizes import UTILISATION, sizes_are_above_zero

GB = 10**9
FACTS = Facts(
    gpu_memory=80 * GB,
    node_memory=512 * GB,
    engines=("vllm",),
    model=Model(7_615_616_512, 28, 28, 4, 128, 152064, 32768, 57344),
    rows=7473,
)
UNUSUAL: tuple[Any, ...] = (
    0, -1, -7, 10**30, None, MISSING, True, False, 0.0, -2.5, 1e400,
    "", "8", "eight", "/", [], [0], ["a", None], {}, {"a": 1},
)  # fmt: skip
KNOWN = {
    "algorithm.adv_estimator": ["gae", "grpo"],
    "trainer.logger": ["console"],
    "actor_rollout_ref.rollout.name": ["vllm"],
}
Rule = Callable[[Config, Facts], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    *rules.RULES,
    *rules.LATER_RULES,
    enum_values.image_has_the_engine,
    lambda config, _: enum_values.unknown_values(config, KNOWN, lambda _: ["more"]),
    lambda config, _: enum_values.rollout_is_chosen(config, KNOWN),
)


class Recorder(Config):
    """A configuration that records the keys that are read."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def get(self, key: str) -> Any:
        self.read.add(key)
        return super().get(key)

    def has(self, key: str) -> bool:
        self.read.add(key)
        return super().has(key)


def role(**more: Any) -> dict[str, Any]:
    return {"strategy": "fsdp", "ppo_mini_batch_size": 256, "ppo_micro_batch_size_per_gpu": 8, **more}


def valid(strategy: str, *, dynamic: bool) -> dict[str, Any]:
    """Return a valid PPO with a critic and a reference on 2 nodes with 8 GPUs each."""
    sizes = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1, "context_parallel_size": 1}
    engine = {"fsdp_config": {"fsdp_size": -1, "param_offload": True, "optimizer_offload": True}, "megatron": sizes}
    batches = {"use_dynamic_bsz": dynamic, "ppo_max_token_len_per_gpu": 16384, "use_kl_loss": True}
    scoring = {
        "log_prob_micro_batch_size_per_gpu": 8,
        "log_prob_use_dynamic_bsz": dynamic,
        "log_prob_max_token_len_per_gpu": 16384,
    }
    rollout = {
        "name": "vllm", "n": 1, "tensor_model_parallel_size": 2, "data_parallel_size": 1, "gpu_memory_utilization": 0.5,
        "max_model_len": 4096, "max_num_batched_tokens": 8192, "enable_chunked_prefill": False, "dtype": "bfloat16",
    }  # fmt: skip
    return {
        "trainer": {
            "nnodes": 2, "n_gpus_per_node": 8, "total_epochs": 2, "save_freq": 5, "logger": ["console"],
            "default_local_dir": "/checkpoints", "resume_mode": "auto",
        },
        "data": {
            "train_batch_size": 1024, "max_prompt_length": 1024, "max_response_length": 1024,
            "train_files": "/data/train.parquet", "val_files": ["/data/test.parquet"],
        },
        "algorithm": {"adv_estimator": "gae", "use_kl_in_reward": False},
        "critic": {
            "enable": None, **role(**engine), "use_dynamic_bsz": dynamic, "ppo_max_token_len_per_gpu": 16384
        },
        "actor_rollout_ref": {
            "model": {"path": "/models/7b", "use_remove_padding": True, "lora_rank": 0},
            "actor": {**role(strategy=strategy, **engine), **batches},
            "ref": {**engine, **scoring, "strategy": strategy},
            "rollout": {**rollout, **scoring},
        },
    }  # fmt: skip


VALID = [valid(strategy, dynamic=dynamic) for strategy in ("fsdp", "megatron") for dynamic in (False, True)]


def with_value(values: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return the configuration with another value; other parts are shared."""
    name, _, inner = key.partition(".")
    below = values.get(name)
    return {**values, name: with_value(below if isinstance(below, dict) else {}, inner, value) if inner else value}


def readers(values: dict[str, Any]) -> dict[str, list[Rule]]:
    """Return the rules that read each key."""
    found: dict[str, list[Rule]] = {}
    for rule in RULES:
        config = Recorder(values)
        list(rule(config, FACTS))
        for key in config.read:
            found.setdefault(key, []).append(rule)
    return found


CASES = [(values, readers(values)) for values in VALID]
KEYS = sorted({key for _, read in CASES for key in read})


def findings(values: dict[str, Any], rules_to_apply: Sequence[Rule] = RULES) -> list[Finding]:
    return [found for rule in rules_to_apply for found in rule(Config(values), FACTS)]


@pytest.mark.parametrize("values", VALID, ids=["fsdp", "fsdp-dynamic", "megatron", "megatron-dynamic"])
def test_valid_configurations_have_no_errors(values: dict[str, Any]) -> None:
    assert [found.sentence() for found in findings(values) if found.severity == ERROR] == []


def test_rules_read_many_keys_of_every_section() -> None:
    assert len(KEYS) > 60
    assert {key.partition(".")[0] for key in KEYS} >= {"trainer", "data", "algorithm", "critic", "actor_rollout_ref"}


@pytest.mark.parametrize("value", UNUSUAL, ids=repr)
def test_unusual_value_of_one_key_crashes_no_rule(value: Any) -> None:
    for values, read in CASES:
        for key, rules_to_apply in read.items():
            for found in findings(with_value(values, key, value), rules_to_apply):
                assert found.cause.endswith("."), (key, found)
                assert found.fix.endswith(".") or found.severity == "note", (key, found)
                assert found.key or found.severity == "note", (key, found)


@pytest.mark.parametrize("value", UNUSUAL, ids=repr)
def test_unusual_value_of_every_key_crashes_no_rule(value: Any) -> None:
    for values in VALID:
        changed = values
        for key in KEYS:
            if not isinstance(Config(changed).get(key), dict):
                changed = with_value(changed, key, value)
        findings(changed)


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize(
    "key",
    [
        "trainer.nnodes",
        "trainer.n_gpus_per_node",
        "actor_rollout_ref.rollout.n",
        "actor_rollout_ref.rollout.tensor_model_parallel_size",
        "actor_rollout_ref.rollout.data_parallel_size",
        "actor_rollout_ref.actor.ppo_mini_batch_size",
        "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size",
        "critic.ppo_micro_batch_size_per_gpu",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
    ],
)
def test_size_below_one_is_the_first_error_with_its_own_key(key: str, value: int) -> None:
    wrong = [found for found in findings(with_value(VALID[0], key, value)) if found.severity == ERROR]

    assert wrong[0].key == key
    assert f"is {value}; at least 1 is required" in wrong[0].cause
    assert [found.key for found in wrong[1:] if found.key == key] == []


@pytest.mark.parametrize("value", [0, -0.5, 1.5, 24, float("inf")])
def test_memory_share_outside_of_zero_to_one_is_an_error(value: float) -> None:
    wrong = findings(with_value(VALID[0], UTILISATION, value))

    assert [found.cause for found in wrong if found.severity == ERROR] == [
        f"{UTILISATION} is {value}; a fraction up to 1 is required."
    ]


def test_sizes_that_are_unset_or_no_integers_are_ignored() -> None:
    for value in (None, "2", [2], 2.0, True):
        changed = with_value(VALID[0], "trainer.nnodes", value)
        assert list(sizes_are_above_zero(Config(changed), FACTS)) == []
