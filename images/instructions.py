"""A Dockerfile's instructions, each with what of the build context it reads: what may have made a step run again."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

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


def parse(dockerfile: str) -> list[Instruction]:
    """The instructions of a text in order; those above the first FROM belong to the stage ``''``."""
    stage, stages, found = "", 0, []
    for text in _joined(dockerfile):
        if named := re.match(r"FROM \S+(?: AS (\S+))?$", text, re.IGNORECASE):
            stage, stages = named[1] or f"stage-{stages}", stages + 1
        found.append(Instruction(stage, text, *_reads(text)))
    return found


def final_stage(instructions: list[Instruction]) -> str:
    """The stage that becomes the image."""
    return instructions[-1].stage


def steps(instructions: list[Instruction], stage: str) -> list[Instruction]:
    """The instructions of a stage that BuildKit counts."""
    return [each for each in instructions if each.stage == stage and each.is_step]


def _joined(dockerfile: str) -> list[str]:
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\s*\n", " ", "\n".join(lines))
    return [" ".join(line.split()) for line in whole.splitlines() if line.strip()]


def _reads(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    verb, _, rest = text.partition(" ")
    if verb in ("COPY", "ADD"):
        words = shlex.split(rest)
        stages = tuple(word.partition("=")[2] for word in words if word.startswith("--from="))
        paths = [word.strip("/") for word in words if not word.startswith("--")]
        return (() if stages else tuple(paths[:-1])), stages
    mounts = [dict(part.partition("=")[::2] for part in each.split(",")) for each in re.findall(r"--mount=(\S+)", rest)]
    bound = [mount for mount in mounts if mount.get("type", "bind") == "bind"] if verb == "RUN" else []
    stages = tuple(mount["from"] for mount in bound if "from" in mount)
    sources = tuple(mount.get("source", ".").strip("/") for mount in bound if "from" not in mount)
    return sources, stages
