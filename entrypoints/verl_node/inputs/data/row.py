"""A row as verl's data loader and its rule-based rewards read it (verl's examples/data_preprocess)."""

from __future__ import annotations

from typing import Any

from verl_node.errors import InputUnavailable


def of_math(source: str, asked: str, truth: str, /, **extra: Any) -> dict[str, Any]:
    """A mathematical question with one right answer; ``extra`` is what verl hands on to the reward function."""
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": asked}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": extra,
    }


def lacks(data_set: str, split: str, index: int, what: str) -> InputUnavailable:
    """What to raise for a raw row without ``what`` its answer is known by."""
    return InputUnavailable(f"Row {index} of {data_set}'s {split} has no {what}.", fix="Fetch the raw data set again.")
