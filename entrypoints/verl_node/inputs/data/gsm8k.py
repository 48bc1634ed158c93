"""GSM8K (Cobbe et al. 2021) as verl's examples/data_preprocess/gsm8k.py makes it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from verl_node.inputs.data import row

SOURCE = "openai/gsm8k"  # verl chooses its scorer by this name
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
_ANSWER = re.compile(r"#### (-?[0-9.,]+)")


def rows(split: str, raw_rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return verl's rows for raw rows of question and answer; the ground truth is the number after `####`, no commas.

    Raises InputUnavailable for a row without this number.
    """
    return [_row(split, index, raw["question"], raw["answer"]) for index, raw in enumerate(raw_rows)]


def _row(split: str, index: int, question: str, answer: str) -> dict[str, Any]:
    number = _ANSWER.search(answer)
    if not number:
        raise row.missing("gsm8k", split, index, "number after '####'")
    truth, prompt = number[1].replace(",", ""), f"{question} {INSTRUCTION}"
    return row.math_row(SOURCE, prompt, truth, split=split, index=index, answer=answer, question=question)
