"""Keys of older releases of verl and of its guides are rejected with their new names."""

from __future__ import annotations

import re

import pytest
from verl_node.errors import BadTrainingConfig
from verl_node.settings.overrides import Override
from verl_node.training import releases

# Keys of the guides, which are for several releases of verl.
OF_THE_GUIDES = {
    "critic.model.fsdp_config.param_offload": "critic.fsdp.param_offload",
    "actor_rollout_ref.ref.fsdp_config.cpu_offload": "actor_rollout_ref.ref.fsdp_config.param_offload",
    "actor_rollout_ref.actor.fsdp_config.cpu_offload": "actor_rollout_ref.actor.fsdp_config.param_offload",
    "actor_rollout_ref.ref.fsdp_config.sharding_strategy": "ref.fsdp_config.reshard_after_forward=true",
    "actor_rollout_ref.actor.fsdp_config.sharding_strategy": "reshard_after_forward=true",
}
UNCHANGED = """
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


# Keys that an engine reads without an entry in verl's files.
ADDED = {
    "actor_rollout_ref.rollout.engine_kwargs.sglang.attention_backend",
    "actor_rollout_ref.rollout.engine_kwargs.vllm",
}
SERIES = ("0.4.1", "0.5.0", "0.6.1", "0.7.1", "0.8.0", "0.9.1")
# A dotted name in a message; megatron's keys are in another group of files.
NAMED = re.compile(r"\b(?:actor_rollout_ref|critic|reward|data|trainer|algorithm|global_profiler)\.[\w.]*\w")


def dropped(release: str, known: dict[str, set[str]]) -> set[str]:
    """Return the keys of older releases that this one dropped."""
    older = list(known)[: list(known).index(release)]
    return set().union(*(known[name] for name in older)) - known[release]


@pytest.mark.parametrize("release", SERIES)
def test_every_dropped_key_has_a_replacement_in_its_release(release: str, known: dict[str, set[str]]) -> None:
    leaves = {
        key for key in dropped(release, known) if not any(f"{key}." in other for other in dropped(release, known))
    }
    assert leaves
    for key in leaves:
        now, instead = releases.forwards(key, releases.series_of(release))
        if instead:
            assert {name for name in NAMED.findall(instead) if ".megatron." not in name} <= {*known[release], *ADDED}, (
                key
            )
        else:
            assert now in known[release], (
                f"{key} of an older verl is translated to {now}, which {release} does not have"
            )


@pytest.mark.parametrize("release", SERIES)
def test_release_rejects_its_dropped_keys_with_a_fix(release: str, known: dict[str, set[str]]) -> None:
    table = releases.load(release)
    for key in dropped(release, known) - known["0.9.1"]:
        if any(other.startswith(f"{key}.") for other in dropped(release, known)):
            continue
        with pytest.raises(BadTrainingConfig) as seen:
            table.translate(Override("", key, "1"))
        assert seen.value.fix


def test_moved_keys_are_listed_under_the_first_release_without_them(known: dict[str, set[str]]) -> None:
    # Of a series with one release in `known`, an entry is under the series.
    tables = {step.series for step in releases.history()}
    series = {
        number if (number := releases.series_of(name)) in tables else number[:2]: keys for name, keys in known.items()
    }
    for before, step in zip(sorted(series), releases.history()[1:]):
        gone = series[before] - series[step.series]
        for old, new in step.moved.items():
            assert old in gone
            assert new in series[step.series]
        for old in step.merged:
            assert old in gone or not any(old in keys for name, keys in series.items() if name == before)


def test_existing_keys_are_never_called_dropped(known: dict[str, set[str]]) -> None:
    for release in SERIES:
        for key in known[release]:
            assert releases.forwards(key, releases.series_of(release)) == (key, ""), (release, key)


@pytest.mark.parametrize(("key", "now"), OF_THE_GUIDES.items())
def test_dropped_keys_of_the_guides_are_rejected_with_their_new_names(key: str, now: str) -> None:
    with pytest.raises(BadTrainingConfig) as seen:
        releases.load("0.9.1").translate(Override("", key, "1"))
    assert now in seen.value.fix


@pytest.mark.parametrize("key", UNCHANGED)
def test_other_keys_of_the_guides_exist_in_verl_0_9(key: str) -> None:
    assert releases.load("0.9.1").translate(Override("", key, "1")) == Override("", key, "1")


@pytest.mark.parametrize("key", UNCHANGED)
def test_keys_of_the_guides_exist_in_verl_0_4_or_are_rejected(key: str) -> None:
    table = releases.load("0.4.1")
    if key in ABSENT_IN_0_4:
        with pytest.raises(BadTrainingConfig, match=r"no counterpart in verl 0\.4"):
            table.translate(Override("", key, "1"))
    else:
        assert table.translate(Override("", key, "1")) == Override("", key, "1")


def test_removed_key_can_be_added_with_a_plus() -> None:
    key = "actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space"
    assert releases.load("0.9.1").translate(Override("+", key, "8")).key == key
