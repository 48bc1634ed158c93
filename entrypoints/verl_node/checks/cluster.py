"""Cluster checks on the head: compare the reports of all nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_node.checks.result import Outcome
from verl_node.gpu.platforms import GIB

MAX_SKEW_S = 5.0  # TLS, wandb and ages of files tolerate minutes
# The guides ask for 200 GB of memory on each of two nodes for offloading in training Qwen2-7B (7.6e9 parameters).
_GUIDES_BYTES, _GUIDES_PARAMETERS, _GUIDES_NODES = 200e9, 7.6e9, 2
_MODEL_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[Bb](?![a-z])")
OFFLOADS = ("param_offload", "optimizer_offload")
_ACTOR, _REFERENCE = "actor_rollout_ref.actor", "actor_rollout_ref.ref"

Facts = dict[str, Any]
"""``memory`` (bytes for the job), ``rails`` (chosen ports); with GPUs also ``driver``, ``models``, and ``gpu_total``
and ``gpu_free`` (bytes, the minimum over all GPUs)."""


@dataclass(frozen=True)
class Report:
    """A node's outcomes and facts; ``skew_s`` is how far its clock is ahead of the head's."""

    host: str
    outcomes: list[Outcome] = field(default_factory=list)
    facts: Facts = field(default_factory=dict)
    skew_s: float = 0.0


Keys = Mapping[str, Any]
"""The configuration keys of the training by verl 0.9's names; empty without a training."""

Comparison = Callable[[Sequence[Report], Keys, str], "list[Outcome]"]


def compare(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """Return the problems between the nodes, and of the training on them."""
    return [outcome for comparison in COMPARISONS for outcome in comparison(reports, keys, model)]


def clocks_agree(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """The clocks differ by less than 5 s."""
    return [
        Outcome(
            "nodes.clocks_agree",
            report.host,
            "warn",
            f"Its clock is {abs(report.skew_s):.0f} s {'ahead of' if report.skew_s > 0 else 'behind'} the head's.",
            f"at most {MAX_SKEW_S:.0f} s",
            "Compare `chronyc tracking` on both nodes; certificates and ages of files depend on the clock.",
        )
        for report in reports
        if abs(report.skew_s) > MAX_SKEW_S
    ]


def drivers_agree(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """All nodes have the same GPU driver."""
    return _differing(reports, "driver", "drivers_agree", "Exclude the nodes that differ, or have them updated.")


def gpus_agree(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """All nodes have the same GPU model: the slowest sets the job's pace, the smallest its memory."""
    return _differing(reports, "models", "gpus_agree", "Request one model: --constraint, or --gpus-per-node=TYPE:N.")


def rails_agree(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """All nodes have the same number of active RDMA ports: NCCL pairs them by number."""
    return _differing(reports, "rails", "rails_agree", "Check that node's ibstat, or exclude it.", value_of=len)


def memory_holds_offload(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """Every node has memory for offloading: the guides' 200 GB, scaled by model size and nodes."""
    offloaded = [key for key in keys if key.endswith(OFFLOADS) and str(keys[key]).lower() == "true"]
    parameters = _parameters(model)
    if not offloaded or not parameters:
        return []
    required = _GUIDES_BYTES * parameters / _GUIDES_PARAMETERS * _GUIDES_NODES / len(reports)
    return [
        Outcome(
            "nodes.memory_holds_offload",
            report.host,
            "warn",
            f"{report.facts['memory'] / GIB:.0f} GiB of memory for {', '.join(offloaded)} of {model}.",
            f"{required / GIB:.0f} GiB",
            "Request more memory (sbatch --mem) or more nodes, or turn offloading off.",
        )
        for report in reports
        if report.facts.get("memory", required) < required
    ]


def rollout_fits_free_memory(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """Every GPU has the share of free memory that gpu_memory_utilization reserves."""
    try:
        share = float(keys.get("actor_rollout_ref.rollout.gpu_memory_utilization", 0))
    except ValueError:
        return []
    return [
        Outcome(
            "nodes.rollout_fits_free_memory",
            report.host,
            "fail",
            f"{free / GIB:.1f} of {total / GIB:.0f} GiB are free on a GPU.",
            f"{share * total / GIB:.1f} GiB, for gpu_memory_utilization={share:g}",
            "End the process that holds the memory, or set "
            f"actor_rollout_ref.rollout.gpu_memory_utilization={free / total - 0.02:.2f}.",
        )
        for report in reports
        if (total := report.facts.get("gpu_total", 0)) and (free := report.facts["gpu_free"]) < share * total
    ]


def actor_and_reference_match(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """Actor and reference are sharded in the same way, since verl copies weights between them."""
    for name in ("strategy", "fsdp_config.fsdp_size", "fsdp_config.sharding_strategy"):
        actor, reference = keys.get(f"{_ACTOR}.{name}"), keys.get(f"{_REFERENCE}.{name}")
        if None not in (actor, reference) and str(actor) != str(reference):
            return [
                Outcome(
                    "nodes.actor_and_reference_match",
                    reports[0].host,
                    "fail",
                    f"{_ACTOR}.{name} is {actor}, and {_REFERENCE}.{name} is {reference}.",
                    "the same value",
                    f"Set {_REFERENCE}.{name}={actor}.",
                )
            ]
    return []


COMPARISONS: tuple[Comparison, ...] = (
    clocks_agree,
    drivers_agree,
    gpus_agree,
    rails_agree,
    memory_holds_offload,
    rollout_fits_free_memory,
    actor_and_reference_match,
)


def _differing(
    reports: Sequence[Report], fact: str, name: str, fix: str, value_of: Callable[[Any], Any] = str
) -> list[Outcome]:
    """Return an outcome for each node whose fact differs from the most common one."""
    values = {report.host: value_of(report.facts[fact]) for report in reports if fact in report.facts}
    if len(set(values.values())) < 2:
        return []
    usual, count = Counter(values.values()).most_common(1)[0]
    expected = f"{usual}, as on {count} of {len(values)} nodes"
    return [
        Outcome(f"nodes.{name}", host, "warn", f"It has {value}.", expected, fix)
        for host, value in values.items()
        if value != usual
    ]


def _parameters(model: str) -> float:
    """Return 7e9 for Qwen/Qwen2-7B-Instruct, 0 for a name without a size."""
    found = _MODEL_SIZE.search(model.replace("-", " ").replace("_", " "))
    return float(found[1]) * 1e9 if found else 0.0
