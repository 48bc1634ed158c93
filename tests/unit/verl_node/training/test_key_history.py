"""Whoever comes from an older verl or its guides is told what each of its keys is now."""

from __future__ import annotations

import re

import pytest
from verl_node.errors import BadTrainingConfig
from verl_node.settings.overrides import Override
from verl_node.training import releases
from verl_node.training.releases import history

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


# What an engine reads, though no file of verl names it.
ADDED = {
    "actor_rollout_ref.rollout.engine_kwargs.sglang.attention_backend",
    "actor_rollout_ref.rollout.engine_kwargs.vllm",
}
SERIES = ("0.5.0", "0.6.1", "0.7.1", "0.8.0", "0.9.1")
# A dotted name in what is said; megatron's keys are of another group of files.
NAMED = re.compile(r"\b(?:actor_rollout_ref|critic|reward|data|trainer|algorithm|global_profiler)\.[\w.]*\w")


def vanished(release: str, known: dict[str, set[str]]) -> set[str]:
    """Every key of an older release that this one has no more."""
    older = list(known)[: list(known).index(release)]
    return set().union(*(known[name] for name in older)) - known[release]


@pytest.mark.parametrize("release", SERIES)
def test_every_key_that_a_release_dropped_is_answered_with_what_it_has(
    release: str, known: dict[str, set[str]]
) -> None:
    leaves = {
        key for key in vanished(release, known) if not any(f"{key}." in other for other in vanished(release, known))
    }
    assert leaves
    for key in leaves:
        now, instead = history.forwards(key, (0, int(release.split(".")[1])))
        if instead:
            assert {name for name in NAMED.findall(instead) if ".megatron." not in name} <= {*known[release], *ADDED}, (
                key
            )
        else:
            assert now in known[release], f"{key} of an older verl is said to be {now}, which {release} lacks"


@pytest.mark.parametrize("release", SERIES)
def test_a_release_says_so_itself(release: str, known: dict[str, set[str]]) -> None:
    table = releases.load(release)
    for key in vanished(release, known) - known["0.9.1"]:
        if any(other.startswith(f"{key}.") for other in vanished(release, known)):
            continue
        with pytest.raises(BadTrainingConfig) as seen:
            table.translate(Override("", key, "1"))
        assert seen.value.fix


def test_a_key_was_moved_by_the_release_that_first_lacks_it(known: dict[str, set[str]]) -> None:
    series = {tuple(map(int, name.split(".")[:2])): keys for name, keys in known.items()}
    for before, step in zip(sorted(series), history.steps()[1:]):
        gone = series[before] - series[step.series]
        for old, new in step.moved.items():
            assert old in gone
            assert new in series[step.series]
        for old in step.merged:
            assert old in gone or not any(old in keys for name, keys in series.items() if name == before)


def test_what_came_back_is_not_said_to_be_gone(known: dict[str, set[str]]) -> None:
    for release in SERIES:
        for key in known[release]:
            assert history.forwards(key, (0, int(release.split(".")[1]))) == (key, ""), (release, key)


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
