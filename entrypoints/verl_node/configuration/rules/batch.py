"""Batch sizes: divisibility that verl checks only after it has loaded the models."""

from __future__ import annotations

import math
from collections.abc import Iterator

from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import Finding, error, warning

ACTOR, ROLLOUT, REF = (f"actor_rollout_ref.{role}" for role in ("actor", "rollout", "ref"))
BATCH, ANSWERS, MINI = "data.train_batch_size", f"{ROLLOUT}.n", "ppo_mini_batch_size"

# verl/trainer/ppo/core_algos.py: estimators whose baseline is computed from the other answers to the same question.
COMPARING = (
    "grpo",
    "grpo_passk",
    "grpo_vectorized",
    "rloo",
    "rloo_vectorized",
    "opo",
    "gdpo",
    "reinforce_plus_plus_baseline",
)


def replicas(config: Config, role: str = ACTOR) -> int:
    """Return the data parallel size of a role's engine, at least 1."""
    if config.get(f"{role}.strategy") == "megatron":
        sizes = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
        together = math.prod(config.size(f"{role}.megatron.{size}") for size in sizes)
    else:
        together = ulysses(config, role)
    return max(1, config.gpus // together)


def ulysses(config: Config, role: str) -> int:
    """Return the number of GPUs that share a sequence; the role's older key wins if it is set."""
    older = config.size(f"{role}.ulysses_sequence_parallel_size")
    return older if older > 1 else config.size(f"{config.engine(role)}.ulysses_sequence_parallel_size")


def trained(config: Config) -> list[str]:
    """Return the roles that are trained."""
    return [ACTOR, *(["critic"] if config.trains_a_critic else [])]


def trainer_roles(config: Config) -> list[str]:
    """Return the roles on the trainer's GPUs: those that are trained, and the reference."""
    return [*trained(config), *([REF] if config.has_a_reference else [])]


def near(value: int, divisor: int) -> str:
    """Return the multiples of ``divisor`` next to ``value``, as text."""
    below = value // divisor * divisor
    return f"{below} or {below + divisor}" if below else str(divisor)


def divisors(number: int, most: int) -> list[int]:
    """Return the sizes up to ``most``, and up to 4096, that divide ``number``."""
    return [size for size in range(1, min(most, number, 4096) + 1) if number % size == 0]


def answers_divide_among_gpus(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl/utils/config.py: validate_config."""
    if not config.on(f"{ACTOR}.use_dynamic_bsz"):
        yield from _answers_divide(config, BATCH, config.gpus, "GPUs")


def mini_batch_fits_the_batch(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl/workers/config/actor.py: validate, which is skipped with use_dynamic_bsz."""
    for role in trained(config):
        key, batch = f"{role}.{MINI}", config.count(BATCH)
        if config.count(key) > batch > 0:
            yield error(
                key, f"{key} is {config.count(key)}, more than {BATCH}, which is {batch}.", f"Set {key}={batch}."
            )
        elif batch % max(1, config.count(key)):
            yield warning(
                key,
                f"{BATCH} {batch} is not a multiple of {key} {config.count(key)}: each step is padded.",
                f"Set {BATCH}={near(batch, config.count(key))}.",
            )


def mini_batch_divides_among_replicas(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl/workers/engine_workers.py: train_mini_batch, at the first update."""
    for role in trained(config):
        yield from _answers_divide(config, f"{role}.{MINI}", replicas(config, role), "replicas")


def _answers_divide(config: Config, key: str, parts: int, name: str) -> Iterator[Finding]:
    """Yield an error unless the answers to the questions of ``key`` divide into ``parts``."""
    questions, answers = config.count(key), config.size(ANSWERS)
    total = questions * answers
    if questions > 0 and total % parts:
        step = parts // math.gcd(parts, answers)
        yield error(
            key,
            f"{key} {questions} with {answers} answers each is {total}, which does not divide among {parts} {name}.",
            f"Set {key}={near(questions, step)}.",
        )


def micro_batches_are_set(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl has no default for them, and three keys that need one."""
    if config.on(f"{ACTOR}.use_dynamic_bsz"):
        return
    required = {ACTOR: "ppo_micro_batch_size", ROLLOUT: "log_prob_micro_batch_size"}
    required.update({REF: "log_prob_micro_batch_size"} if config.has_a_reference else {})
    required.update({"critic": "ppo_micro_batch_size"} if config.trains_a_critic else {})
    for role, name in required.items():
        if role == "critic" and config.on("critic.use_dynamic_bsz"):
            continue
        older, key = f"{role}.{name}", f"{role}.{name}_per_gpu"
        both = [config.get(older) is not None, config.get(key) is not None]
        if not any(both):
            yield error(key, f"{key} is not set.", f"Set {key}=8, or less if memory does not suffice.")
        elif all(both) and role != "critic":
            yield error(older, f"{older} and {key} are both set.", f"Leave {older} out: verl deprecates it.")


def micro_batches_divide_a_gpus_share(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl/workers/engine/utils.py: prepare_micro_batches asserts it for training and for log probabilities."""
    for role in trained(config):
        if not config.on(f"{role}.use_dynamic_bsz"):
            share = config.count(f"{role}.{MINI}") * config.size(ANSWERS) // replicas(config, role)
            yield from _divides(config, f"{role}.ppo_micro_batch_size_per_gpu", share, f"{role}.{MINI}")
    scoring = [ROLLOUT, *([REF] if config.has_a_reference else [])]
    for role in scoring:
        if not config.on(f"{role}.log_prob_use_dynamic_bsz"):
            share = config.count(BATCH) * config.size(ANSWERS) // replicas(config)
            yield from _divides(config, f"{role}.log_prob_micro_batch_size_per_gpu", share, BATCH)


def _divides(config: Config, key: str, share: int, whole: str) -> Iterator[Finding]:
    micro = config.count(key)
    if share > 0 and micro > 0 and share % micro:
        best = divisors(share, micro)[-1]
        yield error(
            key,
            f"{key} is {micro}, and each GPU gets {share} sequences of {whole}, which is not a multiple.",
            f"Set {key}={best}.",
        )


def token_budgets_hold_one_sequence(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl/utils/seqlen_balancing.py: rearrange_micro_batches asserts it, at the first long answer."""
    longest = config.count("data.max_prompt_length") + config.count("data.max_response_length")
    budgets = {f"{ACTOR}.ppo_max_token_len_per_gpu": (f"{ACTOR}.use_dynamic_bsz", ACTOR)}
    budgets[f"{ROLLOUT}.log_prob_max_token_len_per_gpu"] = (f"{ROLLOUT}.log_prob_use_dynamic_bsz", ACTOR)
    if config.has_a_reference:
        budgets[f"{REF}.log_prob_max_token_len_per_gpu"] = (f"{REF}.log_prob_use_dynamic_bsz", REF)
    if config.trains_a_critic:
        budgets["critic.ppo_max_token_len_per_gpu"] = ("critic.use_dynamic_bsz", "critic")
    for key, (dynamic, role) in budgets.items():
        shared = ulysses(config, role)
        if config.on(dynamic) and 0 < config.count(key) * shared < longest:
            yield error(
                key,
                f"{key} is {config.count(key)}, and one prompt with its response may have {longest} tokens"
                + (f" on {shared} GPUs." if shared > 1 else "."),
                f"Set {key}={-(-longest // shared)} or more.",
            )


def dynamic_batch_settings_agree(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl/workers/engine_workers.py: init_model asserts that actor and rollout agree."""
    actor, rollout = f"{ACTOR}.use_dynamic_bsz", f"{ROLLOUT}.log_prob_use_dynamic_bsz"
    if config.has(rollout) and config.on(actor) != config.on(rollout):
        yield error(
            rollout, f"{rollout} is {config.get(rollout)} and {actor} is {config.get(actor)}.", f"Leave {rollout} out."
        )


def estimator_has_answers_to_compare(config: Config, facts: Facts) -> Iterator[Finding]:
    """With one answer per question there is no baseline, and verl reports no error."""
    estimator = config.get("algorithm.adv_estimator")
    if estimator in COMPARING and config.size(ANSWERS) < 2:
        yield warning(
            ANSWERS,
            f"algorithm.adv_estimator={estimator} compares the answers to one question, and {ANSWERS} is 1.",
            f"Set for example {ANSWERS}=5.",
        )


def data_fill_a_batch(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl drops an incomplete last batch, so fewer rows than a batch are no step."""
    batch = config.count("data.gen_batch_size") or config.count(BATCH)
    if facts.rows is not None and facts.rows < batch:
        yield error(
            BATCH,
            f"data.train_files have {facts.rows} rows and {BATCH} is {batch}: an epoch would have no step.",
            f"Set {BATCH}={facts.rows} or less, or add data.",
        )
