"""Cluster checks on the head: comparisons of what all nodes reported."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_node.checks.facts import Facts
from verl_node.checks.result import Outcome
from verl_node.gpu.platforms import GIB

SKEW_S = 5.0  # TLS, wandb and the ages of files take minutes; a clock that is set at all is right within milliseconds
# The guides want 200 GB of memory on each of two nodes for offloading in training Qwen2-7B (7.6e9 parameters).
_GUIDES_BYTES, _GUIDES_PARAMETERS, _GUIDES_NODES = 200e9, 7.6e9, 2
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[Bb](?![a-z])")
OFFLOADS = ("param_offload", "optimizer_offload")
_ACTOR, _REFERENCE = "actor_rollout_ref.actor", "actor_rollout_ref.ref"


@dataclass(frozen=True)
class Report:
    """A node's outcomes and facts; ``skew_s`` is how far its clock is ahead of the head's."""

    host: str
    outcomes: list[Outcome] = field(default_factory=list)
    facts: Facts = field(default_factory=dict)
    skew_s: float = 0.0


Keys = Mapping[str, Any]
"""The keys of the training as they will be given to verl, by verl 0.9's names; none without a training."""

Question = Callable[[Sequence[Report], Keys, str], "list[Outcome]"]


def ask(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """Return what is wrong between the nodes, and with the training on them."""
    return [outcome for question in QUESTIONS for outcome in question(reports, keys, model)]


def clocks_agree(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """The clocks differ by less than 5 s."""
    return [
        Outcome(
            "nodes.clocks_agree",
            report.host,
            "warn",
            f"Its clock is {abs(report.skew_s):.0f} s {'ahead of' if report.skew_s > 0 else 'behind'} the head's.",
            f"at most {SKEW_S:.0f} s",
            "Look at `chronyc tracking` on both; certificates and the ages of files are judged by it.",
        )
        for report in reports
        if abs(report.skew_s) > SKEW_S
    ]


def drivers_agree(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """All nodes have the same GPU driver."""
    return _odd(reports, "driver", "drivers_agree", "Exclude the odd nodes, or have them updated.")


def gpus_agree(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """All nodes have the same model of GPU: the slowest is the job's pace, the smallest its memory."""
    return _odd(reports, "models", "gpus_agree", "Ask for one kind: --constraint, or --gpus-per-node=TYPE:N.")


def rails_agree(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """All nodes have as many active RDMA ports: NCCL pairs them by number."""
    return _odd(reports, "rails", "rails_agree", "Look at that node's ibstat, or exclude it.", of=len)


def memory_holds_offload(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """Every node has the memory that offloading takes: the guides' 200 GB, by the model's size and the nodes."""
    offloaded = [key for key in keys if key.endswith(OFFLOADS) and str(keys[key]).lower() == "true"]
    parameters = _parameters(model)
    if not offloaded or not parameters:
        return []
    wanted = _GUIDES_BYTES * parameters / _GUIDES_PARAMETERS * _GUIDES_NODES / len(reports)
    return [
        Outcome(
            "nodes.memory_holds_offload",
            report.host,
            "warn",
            f"{report.facts['memory'] / GIB:.0f} GiB of memory for {', '.join(offloaded)} of {model}.",
            f"{wanted / GIB:.0f} GiB",
            "Ask for more (sbatch --mem), more nodes, or turn offloading off.",
        )
        for report in reports
        if report.facts.get("memory", wanted) < wanted
    ]


def rollout_fits_free_memory(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """Of every GPU is free what gpu_memory_utilization asks for."""
    try:
        part = float(keys.get("actor_rollout_ref.rollout.gpu_memory_utilization", 0))
    except ValueError:
        return []
    return [
        Outcome(
            "nodes.rollout_fits_free_memory",
            report.host,
            "fail",
            f"{free / GIB:.1f} of {total / GIB:.0f} GiB are free on a GPU.",
            f"{part * total / GIB:.1f} GiB, for gpu_memory_utilization={part:g}",
            f"End who holds it, or say actor_rollout_ref.rollout.gpu_memory_utilization={free / total - 0.02:.2f}.",
        )
        for report in reports
        if (total := report.facts.get("gpu_total", 0)) and (free := report.facts["gpu_free"]) < part * total
    ]


def actor_and_reference_match(reports: Sequence[Report], keys: Keys, model: str) -> list[Outcome]:
    """Actor and reference are sharded in the same way: verl loads one's weights into the other's shape."""
    for name in ("strategy", "fsdp_config.fsdp_size", "fsdp_config.sharding_strategy"):
        actor, reference = keys.get(f"{_ACTOR}.{name}"), keys.get(f"{_REFERENCE}.{name}")
        if None not in (actor, reference) and str(actor) != str(reference):
            return [
                Outcome(
                    "nodes.actor_and_reference_match",
                    reports[0].host,
                    "fail",
                    f"{_ACTOR}.{name} is {actor}, and {_REFERENCE}.{name} is {reference}.",
                    "the same",
                    f"Say {_REFERENCE}.{name}={actor}.",
                )
            ]
    return []


QUESTIONS: tuple[Question, ...] = (
    clocks_agree,
    drivers_agree,
    gpus_agree,
    rails_agree,
    memory_holds_offload,
    rollout_fits_free_memory,
    actor_and_reference_match,
)


def _odd(reports: Sequence[Report], fact: str, name: str, fix: str, of: Callable[[Any], Any] = str) -> list[Outcome]:
    """Name the nodes whose fact is not that of most."""
    told = {report.host: of(report.facts[fact]) for report in reports if fact in report.facts}
    if len(set(told.values())) < 2:
        return []
    usual = Counter(told.values()).most_common(1)[0][0]
    wanted = f"{usual}, as on {sum(value == usual for value in told.values())} of {len(told)} nodes"
    return [
        Outcome(f"nodes.{name}", host, "warn", f"It has {value}.", wanted, fix)
        for host, value in told.items()
        if value != usual
    ]


def _parameters(model: str) -> float:
    """Read 7B of Qwen/Qwen2-7B-Instruct; 0 where the name does not tell."""
    found = _SIZE.search(model.replace("-", " ").replace("_", " "))
    return float(found[1]) * 1e9 if found else 0.0
