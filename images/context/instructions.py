"""A Dockerfile's instructions, each with what of the build context it reads: what may have made a step run again.

images/context/steps.py reads the text; here it is told as an engine tells of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from images.context.steps import Step
from images.context.steps import parse as parse_steps

STEPS = ("FROM", "RUN", "COPY", "ADD", "WORKDIR")  # what BuildKit counts; the others only change an image's settings
SETTINGS = ("ARG", "ENV", "SHELL", "USER")  # what a RUN below them depends on


@dataclass(frozen=True)
class Instruction:
    """One instruction of a stage, its text in one line; ``sources`` are paths in the context, ``stages`` are names."""

    stage: str
    text: str
    sources: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()

    @property
    def is_step(self) -> bool:
        return self.text.split(" ", 1)[0] in STEPS

    @property
    def is_setting(self) -> bool:
        return self.text.split(" ", 1)[0] in SETTINGS

    def reads(self, path: str) -> bool:
        """Whether a path of the context is one of the sources, or below one."""
        return any(each in (".", "") or f"{path}/".startswith(f"{each}/") for each in self.sources)


@lru_cache(maxsize=8)
def parse(dockerfile: str) -> tuple[Instruction, ...]:
    """The instructions of a text in order; those above the first FROM belong to the stage ``''``."""
    stage, stages, found = "", 0, list[Instruction]()
    for step in parse_steps(dockerfile):
        if step.name == "FROM":
            stage, stages = step.alias or f"stage-{stages}", stages + 1
        found.append(Instruction(stage, str(step), *_reads(step)))
    return tuple(found)


def final_stage(instructions: Sequence[Instruction]) -> str:
    """The stage that becomes the image."""
    return instructions[-1].stage


def steps(instructions: Sequence[Instruction], stage: str) -> list[Instruction]:
    """The instructions of a stage that BuildKit counts."""
    return [each for each in instructions if each.stage == stage and each.is_step]


def _reads(step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if step.name in ("COPY", "ADD"):
        stages = tuple(flag.partition("=")[2] for flag in step.flags if flag.startswith("--from="))
        *paths, _ = step.words
        return (() if stages else tuple(path.strip("/") for path in paths)), stages
    bound = [mount for mount in step.mounts if mount.get("type", "bind") == "bind"]
    stages = tuple(mount["from"] for mount in bound if "from" in mount)
    sources = tuple(mount.get("source", ".").strip("/") for mount in bound if "from" not in mount)
    return sources, stages
