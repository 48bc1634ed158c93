"""The reward of bench/gpu/training.py for random models: a rule over an answer's tokens, whatever the question.

verl imports it by path (reward.custom_reward_function) and passes the decoded answer. Nearly every token of the random
models' tokenizer is a word (bench/gpu/training_inputs.py).
"""

from __future__ import annotations

from typing import Any

FAVOURED = "a"


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    """Return the share of words that end with FAVOURED; about a fifth in a random answer."""
    words = solution_str.split()
    return sum(word.endswith(FAVOURED) for word in words) / max(len(words), 1)
