"""MATH (Hendrycks et al. 2021) as verl's examples/data_preprocess/math_dataset.py makes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from verl_node.inputs.data import row

SOURCE = "DigitalLearningGmbH/MATH-lighteval"  # verl chooses its scorer by this name
INSTRUCTION = "Let's think step by step and output the final answer within \\boxed{}."


def rows(split: str, raw_rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return verl's rows for raw rows of problem and solution; their other columns (level, type) come first.

    Raises InputUnavailable for a solution without a boxed answer.
    """
    return [_row(split, index, raw) for index, raw in enumerate(raw_rows)]


def answer(solution: str) -> str | None:
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


def _row(split: str, index: int, raw: dict[str, Any]) -> dict[str, Any]:
    truth = answer(raw["solution"])
    if truth is None:
        raise row.missing("math", split, index, "\\boxed answer")
    others = {column: value for column, value in raw.items() if column not in ("problem", "solution")}
    prompt = f"{raw['problem']} {INSTRUCTION}"
    return {**others, **row.math_row(SOURCE, prompt, truth, split=split, index=index)}
