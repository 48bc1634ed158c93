"""Rows of data sets for verl's data loader and rewards, as in verl's examples/data_preprocess.

GSM8K is of Cobbe et al. 2021, MATH of Hendrycks et al. 2021.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from verl_node.errors import InputUnavailable

Row = dict[str, Any]
GSM8K_SOURCE = "openai/gsm8k"  # verl chooses its scorer by this name
MATH_SOURCE = "DigitalLearningGmbH/MATH-lighteval"
_GSM8K_INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
_MATH_INSTRUCTION = "Let's think step by step and output the final answer within \\boxed{}."
_GSM8K_ANSWER = re.compile(r"#### (-?[0-9.,]+)")


def gsm8k(split: str, raw_rows: Iterable[Row]) -> list[Row]:
    """Return rows for raw rows of question and answer; the ground truth is the number after `####`, without commas.

    Raises InputUnavailable for a row without this number.
    """
    rows = []
    for index, raw in enumerate(raw_rows):
        number = _GSM8K_ANSWER.search(raw["answer"])
        if not number:
            raise _missing("gsm8k", split, index, "number after '####'")
        extra = {"split": split, "index": index, "answer": raw["answer"], "question": raw["question"]}
        truth = number[1].replace(",", "")
        rows.append(_question(GSM8K_SOURCE, f"{raw['question']} {_GSM8K_INSTRUCTION}", truth, extra))
    return rows


def math(split: str, raw_rows: Iterable[Row]) -> list[Row]:
    """Return rows for raw rows of problem and solution; their other columns (level, type) come first.

    Raises InputUnavailable for a solution without a boxed answer.
    """
    rows = []
    for index, raw in enumerate(raw_rows):
        truth = math_answer(raw["solution"])
        if truth is None:
            raise _missing("math", split, index, "\\boxed answer")
        others = {column: value for column, value in raw.items() if column not in ("problem", "solution")}
        extra = {"split": split, "index": index}
        rows.append({**others, **_question(MATH_SOURCE, f"{raw['problem']} {_MATH_INSTRUCTION}", truth, extra)})
    return rows


def math_answer(solution: str) -> str | None:
    r"""Return the content of the last ``\boxed{…}`` of a solution, None without one.

    As in verl, a ``\boxed`` followed by a space wins over every braced one, and ends at the next dollar sign.
    """
    _, spaced, rest = solution.rpartition("\\boxed ")
    if spaced:
        return rest.partition("$")[0]
    _, braced, rest = solution.rpartition("\\boxed")
    if not braced or not rest.startswith("{"):
        return None
    depth = 0
    for position, character in enumerate(rest):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return rest[1:position]
    return None


def _question(source: str, prompt: str, truth: str, extra: Row) -> Row:
    """Return the row of a question; verl passes ``extra`` to the reward function."""
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": prompt}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": extra,
    }


def _missing(data_set: str, split: str, index: int, what: str) -> InputUnavailable:
    return InputUnavailable(f"Row {index} of {data_set}'s {split} has no {what}.", fix="Download the raw data again.")
