"""Rows for verl's data loader and its rule-based rewards (verl's examples/data_preprocess)."""

from __future__ import annotations

from typing import Any

from verl_node.errors import InputUnavailable


def math_row(source: str, prompt: str, truth: str, /, **extra: Any) -> dict[str, Any]:
    """Return the row of a question with one right answer; verl passes ``extra`` to the reward function."""
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": prompt}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": extra,
    }


def missing(data_set: str, split: str, index: int, what: str) -> InputUnavailable:
    """Return the error for a raw row without an answer."""
    return InputUnavailable(f"Row {index} of {data_set}'s {split} has no {what}.", fix="Download the raw data again.")
