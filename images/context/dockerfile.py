"""Parser for Dockerfiles as our templates write them (level 1.2): instructions, and the files that each reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from images.errors import ImageError

CONTINUED = re.compile(r"\\[ \t]*\n")
STEPS = ("FROM", "RUN", "COPY", "ADD", "WORKDIR")  # counted by BuildKit; the others only change an image's settings
SETTINGS = ("ARG", "ENV", "SHELL", "USER")  # a RUN below them depends on them


@dataclass(frozen=True)
class Instruction:
    """One instruction of a stage: its name in capitals, its --flags, and its arguments."""

    stage: str
    name: str
    flags: tuple[str, ...]
    arguments: str

    @cached_property
    def text(self) -> str:
        """The whole instruction in one line."""
        return " ".join((self.name, *self.flags, *self.arguments.split()))

    @property
    def is_step(self) -> bool:
        return self.name in STEPS

    @property
    def words(self) -> list[str]:
        """The arguments: a list in JSON, or words between blanks."""
        if self.arguments.startswith("["):
            return [str(word) for word in json.loads(self.arguments)]
        return self.arguments.split()

    @property
    def mounts(self) -> list[dict[str, str]]:
        """The options of each --mount."""
        options = [flag.partition("=")[2].split(",") for flag in self.flags if flag.startswith("--mount=")]
        return [dict(each.partition("=")[::2] for each in mount) for mount in options]

    @property
    def sources(self) -> tuple[str, ...]:
        """The paths of the build context that it reads."""
        if self.name in ("COPY", "ADD"):
            return () if self.stages else tuple(path.strip("/") for path in self.words[:-1])
        return tuple(mount.get("source", ".").strip("/") for mount in self._binds() if "from" not in mount)

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the stages that it reads."""
        if self.name in ("COPY", "ADD"):
            return tuple(flag.partition("=")[2] for flag in self.flags if flag.startswith("--from="))
        return tuple(mount["from"] for mount in self._binds() if "from" in mount)

    def reads(self, path: str) -> bool:
        """Whether a path of the context is one of the sources, or below one."""
        return any(each in (".", "") or f"{path}/".startswith(f"{each}/") for each in self.sources)

    def _binds(self) -> list[dict[str, str]]:
        return [mount for mount in self.mounts if mount.get("type", "bind") == "bind"]


@lru_cache(maxsize=8)
def parse(dockerfile: str) -> tuple[Instruction, ...]:
    """Return the instructions in order; those above the first FROM have the stage ``''``."""
    stage, stages, found = "", 0, list[Instruction]()
    for name, flags, arguments in _instructions(dockerfile):
        if name == "FROM":
            alias = re.fullmatch(r"\S+\s+AS\s+(\S+)", arguments, re.IGNORECASE)
            stage, stages = alias[1] if alias else f"stage-{stages}", stages + 1
        found.append(Instruction(stage, name, flags, arguments))
    return tuple(found)


def final_stage(instructions: Sequence[Instruction]) -> str:
    """Return the stage that becomes the image."""
    return instructions[-1].stage


def steps(instructions: Sequence[Instruction], stage: str) -> list[Instruction]:
    """Return the instructions of a stage that BuildKit counts."""
    return [each for each in instructions if each.stage == stage and each.is_step]


def _instructions(dockerfile: str) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield name, flags and arguments; comments and empty lines are skipped, also between continued lines."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in CONTINUED.sub("", "\n".join(lines) + "\n").splitlines():
        name, _, rest = line.strip().partition(" ")
        flags = []
        while flag := re.match(r"\s*(--\S+)\s+", rest):
            flags.append(flag[1])
            rest = rest[flag.end() :]
        if not rest.strip():
            raise ImageError(f"a Dockerfile instruction has no arguments: {line[:80]!r}")
        yield name.upper(), tuple(flags), rest.strip()
