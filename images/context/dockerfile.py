"""Parser for Dockerfiles as our templates write them (level 1.2): steps, and the files that each reads."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from images.errors import ImageError

CONTINUED = re.compile(r"\\[ \t]*\n")
STEPS = ("FROM", "RUN", "COPY", "ADD", "WORKDIR")  # what BuildKit counts; the others only change an image's settings
SETTINGS = ("ARG", "ENV", "SHELL", "USER")  # what a RUN below them depends on


@dataclass(frozen=True)
class Step:
    """One instruction: its name in capitals, its --flags, and its words with continued lines made one."""

    name: str
    flags: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return " ".join((self.name, *self.flags, *self.text.split()))

    @property
    def alias(self) -> str:
        """Of FROM: the name of the stage that it begins, if it has one."""
        _, *named = self.words
        return named[1] if len(named) == 2 and named[0].upper() == "AS" else ""

    @property
    def mounts(self) -> list[dict[str, str]]:
        """The options of each --mount."""
        options = [flag.partition("=")[2].split(",") for flag in self.flags if flag.startswith("--mount=")]
        return [dict(each.partition("=")[::2] for each in mount) for mount in options]

    @property
    def words(self) -> list[str]:
        """A list in JSON, or what stands between blanks."""
        return [str(word) for word in json.loads(self.text)] if self.text.startswith("[") else self.text.split()


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


def parse_steps(text: str) -> list[Step]:
    """Every step, in order; comments and empty lines are none, also between continued lines."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = CONTINUED.sub("", "\n".join(lines) + "\n")
    return [_step(line) for line in joined.splitlines()]


def _step(line: str) -> Step:
    name, _, rest = line.strip().partition(" ")
    flags = []
    while found := re.match(r"\s*(--\S+)\s+", rest):
        flags.append(found[1])
        rest = rest[found.end() :]
    if not rest.strip():
        raise ImageError(f"a Dockerfile's step says nothing: {line[:80]!r}")
    return Step(name.upper(), tuple(flags), rest.strip())


def _reads(step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if step.name in ("COPY", "ADD"):
        stages = tuple(flag.partition("=")[2] for flag in step.flags if flag.startswith("--from="))
        *paths, _ = step.words
        return (() if stages else tuple(path.strip("/") for path in paths)), stages
    bound = [mount for mount in step.mounts if mount.get("type", "bind") == "bind"]
    stages = tuple(mount["from"] for mount in bound if "from" in mount)
    sources = tuple(mount.get("source", ".").strip("/") for mount in bound if "from" not in mount)
    return sources, stages
