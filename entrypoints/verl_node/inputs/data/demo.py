"""The demo's generated data set in GSM8K's format: word problems with sums of two digits."""

from __future__ import annotations

import random
from collections.abc import Iterator

REVISION = "demo-1"  # increase it when the rows change: copies on disk are then made again
SIZES = {"train": 512, "test": 32}
NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva")
THINGS = ("apples", "books", "coins", "pens")


def raw_rows(split: str) -> Iterator[dict[str, str]]:
    """Yield raw rows of question and answer, the same ones every time."""
    chance = random.Random(split)  # noqa: S311 - not a secret
    for _ in range(SIZES[split]):
        first, second = chance.randint(1, 9), chance.randint(1, 9)
        name, things = chance.choice(NAMES), chance.choice(THINGS)
        total = first + second
        yield {
            "question": f"{name} has {first} {things} and buys {second} more. How many {things} does {name} have?",
            "answer": f"{name} has {first} + {second} = <<{first}+{second}={total}>>{total} {things}.\n#### {total}",
        }
