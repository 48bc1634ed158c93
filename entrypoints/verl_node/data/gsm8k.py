"""GSM8K (Cobbe et al. 2021) as verl's examples/data_preprocess/gsm8k.py makes it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from verl_node.errors import InputUnavailable

SOURCE = "openai/gsm8k"  # verl chooses its scorer by this name
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
_ANSWER = re.compile(r"#### (-?[0-9.,]+)")


def rows(split: str, raw_rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """verl's rows for raw rows of question and answer; the ground truth is the number after `####` without commas.

    Raises:
        InputUnavailable: A row has no such number.
    """
    return [_row(split, index, raw["question"], raw["answer"]) for index, raw in enumerate(raw_rows)]


def _row(split: str, index: int, question: str, answer: str) -> dict[str, Any]:
    number = _ANSWER.search(answer)
    if not number:
        raise InputUnavailable(
            f"Row {index} of gsm8k's {split} has no number after '####'.", fix="Fetch the raw data set again."
        )
    return {
        "data_source": SOURCE,
        "prompt": [{"role": "user", "content": f"{question} {INSTRUCTION}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": number[1].replace(",", "")},
        "extra_info": {"split": split, "index": index, "answer": answer, "question": question},
    }
