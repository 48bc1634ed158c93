"""Build report: times, cache, sizes, and changes since the last build. images/report/text.py prints it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from images.contents import layer_sizes
from images.context.dockerfile import STEPS, final_stage, parse, steps
from images.engine.daemon import Inspected
from images.report import cache_misses
from images.report.build_log import BuildLog


@dataclass(frozen=True)
class StepReport:
    """One instruction: what it took, why it ran, and what its layer holds; sizes only where it is the image's own."""

    stage: str
    text: str
    seconds: float
    cached: bool
    cause: str = ""
    size: int = 0


@dataclass(frozen=True)
class Report:
    """One build. ``before`` is the size that the last build of this name had; ``other_s`` is context and export."""

    name: str
    image: str
    ended: str
    seconds: float
    other_s: float
    engine: str
    base: str
    base_size: int
    size: int
    before: int | None
    steps: Sequence[StepReport]
    places: Sequence[tuple[str, int]]
    dockerfile: str = field(repr=False)
    inputs: Mapping[str, str] = field(repr=False)

    @property
    def ran(self) -> list[StepReport]:
        return [step for step in self.steps if not step.cached and not step.text.startswith("FROM ")]


def told(
    log: BuildLog, dockerfile: str, inputs: Mapping[str, str], last: cache_misses.Before | None
) -> list[StepReport]:
    """The steps of a build in the order of the Dockerfile, each miss with its cause.

    BuildKit tells a step that two stages share, such as their FROM, under one of them; to the other it is cached.
    """
    instructions = parse(dockerfile)
    stages = list(dict.fromkeys(each.stage for each in instructions if each.stage))
    found = []
    for stage in stages:
        seen = {step.index: step for step in log.of_stage(stage) or (log.of_stage("") if len(stages) == 1 else [])}
        texts = [each.text for each in steps(instructions, stage)] if seen else []
        cached = [place not in seen or seen[place].cached for place in range(1, len(texts) + 1)]
        why = cache_misses.of_misses(stage, cached, dockerfile, inputs, last) if seen else []
        for place, (text, hit, cause) in enumerate(zip(texts, cached, why), 1):
            found.append(StepReport(stage, text, seen[place].seconds if place in seen else 0.0, hit, cause))
    return found


def with_sizes(found: Sequence[StepReport], dockerfile: str, history: Sequence[Mapping[str, Any]]) -> list[StepReport]:
    """The steps with the bytes of their layers, from the image's own part of its history, oldest first."""
    made = [entry["Size"] for entry in history if _verb(entry["CreatedBy"] or "") in STEPS]
    own = [step for step in found if step.stage == final_stage(parse(dockerfile)) and not step.text.startswith("FROM ")]
    sizes = dict(zip(map(id, own), made))
    return [replace(step, size=sizes.get(id(step), 0)) for step in found]


def make(
    name: str,
    image: Inspected,
    base: Inspected,
    log: BuildLog,
    *,
    last: Mapping[str, Any] | None,
    base_history: Sequence[Mapping[str, Any]],
    engine: str,
    ended: str,
    seconds: float,
    dockerfile: str,
    inputs: Mapping[str, str],
) -> Report:
    """The report of the build that just made ``image`` of ``base``; ``last`` is that of the last build of the name."""
    before = cache_misses.Before(last["dockerfile"], last["inputs"]) if last else None
    history = list(reversed(image.history()))[len(base_history) :]
    found = with_sizes(told(log, dockerfile, inputs, before), dockerfile, history)
    return Report(
        name=name,
        image=str(image.id),
        ended=ended,
        seconds=round(seconds, 2),
        other_s=round(sum(step.seconds for step in log.steps.values() if not step.index), 1),
        engine=engine,
        base=next(iter(base.tags), str(base.id)),
        base_size=base.attrs["Size"],
        size=image.attrs["Size"],
        before=last["size"] if last else None,
        steps=found,
        places=layer_sizes.largest(image, len(base.attrs["RootFS"]["Layers"])),
        dockerfile=dockerfile,
        inputs=inputs,
    )


def _verb(created_by: str) -> str:
    """The instruction that made an entry of a history; buildah writes it as the shell's command."""
    shell, nothing = "/bin/sh -c ", "#(nop) "
    if created_by.startswith(shell):
        said = created_by.removeprefix(shell)
        return said.removeprefix(nothing).split(" ", 1)[0] if said.startswith(nothing) else "RUN"
    return created_by.split(" ", 1)[0]
