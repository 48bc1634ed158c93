"""Cache misses: why a step of a build ran."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from images.context.dockerfile import Instruction, parse, steps
from images.context.inputs import BASE, changed

FIRST = "first build of this name here"
EVICTED = "its layer was not in the cache: pruned, or built with another engine"
NAMES_SHOWN = 3


@dataclass(frozen=True)
class Before:
    """What the last build of the same name was made of."""

    dockerfile: str
    inputs: Mapping[str, str]


def of_misses(
    stage: str, cached: Sequence[bool], dockerfile: str, inputs: Mapping[str, str], last: Before | None
) -> list[str]:
    """For each step of ``stage`` the cause of its miss; '' where it was cached. The first is its FROM."""
    if last is None:
        return ["", *("" if hit else FIRST for hit in cached[1:])]
    now, old = parse(dockerfile), parse(last.dockerfile)
    moved = changed(inputs, last.inputs)
    found = [BASE if BASE in moved else ""]
    for position, hit in enumerate(cached[1:], 1):
        own = "" if hit else _own(stage, position, now, old, moved)
        above = next((place for place, cause in enumerate(found, 1) if cause), 0)
        found.append("" if hit else own or (f"follows step {above}" if above else EVICTED))
    return found


def _own(stage: str, position: int, now: Sequence[Instruction], old: Sequence[Instruction], moved: list[str]) -> str:
    """What of a step's own inputs changed, or nothing."""
    step = steps(now, stage)[position]
    before = steps(old, stage)[position : position + 1]
    if not before:
        return "new step"
    if before[0].text != step.text:
        return words(before[0].text, step.text)
    if settings(now, stage, position) != settings(old, stage, position):
        return "a setting above it"
    if read := [name for name in moved if step.reads(name)]:
        more = f" and {len(read) - NAMES_SHOWN} more" if len(read) > NAMES_SHOWN else ""
        return ", ".join(read[:NAMES_SHOWN]) + more
    return next((f"stage {name}" for name in step.stages if _stage_moved(name, now, old, moved)), "")


def words(before: str, after: str) -> str:
    """What a text says now instead of what it said, the first few places of it."""
    old, new = before.split(), after.split()
    told = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            told.append(f"{' '.join(old[a:b])[:60] or 'nothing'} → {' '.join(new[c:d])[:60] or 'nothing'}")
    return "; ".join(told[:NAMES_SHOWN])


def settings(instructions: Sequence[Instruction], stage: str, position: int) -> list[str]:
    """The settings that stand above a step in its stage."""
    found, seen = [], -1
    for each in (each for each in instructions if each.stage == stage):
        seen += each.is_step
        if seen == position:
            break
        if each.is_setting:
            found.append(each.text)
    return found


def _stage_moved(stage: str, now: Sequence[Instruction], old: Sequence[Instruction], moved: list[str]) -> bool:
    texts = [[each.text for each in found if each.stage == stage] for found in (now, old)]
    return texts[0] != texts[1] or any(each.reads(name) for each in steps(now, stage) for name in moved)
