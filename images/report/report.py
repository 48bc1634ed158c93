"""Build report: times, cache misses with their causes, sizes, and changes since the last build."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from images.contents import layer_sizes
from images.context.dockerfile import SETTINGS, STEPS, Instruction, final_stage, parse, steps
from images.context.inputs import BASE, changed
from images.context.plan import BuildPlan
from images.engine.daemon import Inspected
from images.report.build_log import BuildLog

FIRST = "first build of this name in this checkout"
EVICTED = "its layer was not in the cache: pruned, or built with another engine"
NAMES_SHOWN = 3


@dataclass(frozen=True)
class BuildResult:
    """A finished build: its image, its log, and its duration."""

    image: Inspected
    log: BuildLog
    seconds: float


@dataclass(frozen=True)
class StepReport:
    """One instruction: its duration, the cause of its cache miss, and the bytes of its layer if it is in the image."""

    stage: str
    text: str
    seconds: float
    cached: bool
    cause: str = ""
    size: int = 0


@dataclass(frozen=True)
class Report:
    """One build. ``before`` is the size of the last build of this name; ``other_s`` is context and export."""

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


def make(
    plan: BuildPlan,
    result: BuildResult,
    *,
    last: Mapping[str, Any] | None,
    base_history: Sequence[Mapping[str, Any]],
    ended: str,
) -> Report:
    """Make the report of a build; ``last`` is the report of the last build of the name."""
    image, dockerfile = result.image, plan.context.dockerfile
    history = list(reversed(image.history()))[len(base_history) :]
    found = with_sizes(step_reports(result.log, dockerfile, plan.inputs, last), dockerfile, history)
    return Report(
        name=plan.tags[0],
        image=image.id,
        ended=ended,
        seconds=round(result.seconds, 2),
        other_s=round(sum(step.seconds for step in result.log.steps.values() if not step.index), 1),
        engine=str(plan.buildah or plan.engine),
        base=next(iter(plan.base.tags), plan.base.id),
        base_size=plan.base.attrs["Size"],
        size=image.attrs["Size"],
        before=last["size"] if last else None,
        steps=found,
        places=layer_sizes.largest(image, len(plan.base.attrs["RootFS"]["Layers"])),
        dockerfile=dockerfile,
        inputs=plan.inputs,
    )


def step_reports(
    log: BuildLog, dockerfile: str, inputs: Mapping[str, str], last: Mapping[str, Any] | None
) -> list[StepReport]:
    """Return the steps of a build in the order of the Dockerfile, each miss with its cause.

    BuildKit logs a step that two stages share, such as their FROM, for one of them; in the other it counts as cached.
    """
    instructions = parse(dockerfile)
    stages = list(dict.fromkeys(each.stage for each in instructions if each.stage))
    found = []
    for stage in stages:
        logged = {step.index: step for step in log.of_stage(stage) or (log.of_stage("") if len(stages) == 1 else [])}
        texts = [each.text for each in steps(instructions, stage)] if logged else []
        cached = [index not in logged or logged[index].cached for index in range(1, len(texts) + 1)]
        causes = miss_causes(stage, cached, dockerfile, inputs, last) if logged else []
        for index, (text, hit, cause) in enumerate(zip(texts, cached, causes), 1):
            found.append(StepReport(stage, text, logged[index].seconds if index in logged else 0.0, hit, cause))
    return found


def with_sizes(found: Sequence[StepReport], dockerfile: str, history: Sequence[Mapping[str, Any]]) -> list[StepReport]:
    """Return the steps with the bytes of their layers; ``history`` is the image's above its base, oldest first."""
    sizes = [entry["Size"] for entry in history if _instruction_name(entry["CreatedBy"] or "") in STEPS]
    own = [step for step in found if step.stage == final_stage(parse(dockerfile)) and not step.text.startswith("FROM ")]
    by_step = dict(zip(map(id, own), sizes))
    return [replace(step, size=by_step.get(id(step), 0)) for step in found]


def miss_causes(
    stage: str, cached: Sequence[bool], dockerfile: str, inputs: Mapping[str, str], last: Mapping[str, Any] | None
) -> list[str]:
    """Return the cause of each cache miss of ``stage``, '' for a hit; the first step is its FROM.

    ``last`` has the ``dockerfile`` and the ``inputs`` of the last build of the same name.
    """
    if last is None:
        return ["", *("" if hit else FIRST for hit in cached[1:])]
    now, old = parse(dockerfile), parse(last["dockerfile"])
    moved = changed(inputs, last["inputs"])
    found = [BASE if BASE in moved else ""]
    for position, hit in enumerate(cached[1:], 1):
        own = "" if hit else _own_cause(stage, position, now, old, moved)
        above = next((index for index, cause in enumerate(found, 1) if cause), 0)
        found.append("" if hit else own or (f"follows step {above}" if above else EVICTED))
    return found


def changed_words(before: str, after: str) -> str:
    """Return the first changes between two texts, as ``old → new``."""
    old, new = before.split(), after.split()
    changes = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            changes.append(f"{' '.join(old[a:b])[:60] or 'nothing'} → {' '.join(new[c:d])[:60] or 'nothing'}")
    return "; ".join(changes[:NAMES_SHOWN])


def _own_cause(
    stage: str, position: int, now: Sequence[Instruction], old: Sequence[Instruction], moved: list[str]
) -> str:
    """Return the change among a step's own inputs, or ''."""
    step = steps(now, stage)[position]
    before = steps(old, stage)[position : position + 1]
    if not before:
        return "new step"
    if before[0].text != step.text:
        return changed_words(before[0].text, step.text)
    if _settings_above(now, stage, position) != _settings_above(old, stage, position):
        return "a setting above it"
    if read := [name for name in moved if step.reads(name)]:
        rest = f" and {len(read) - NAMES_SHOWN} more" if len(read) > NAMES_SHOWN else ""
        return ", ".join(read[:NAMES_SHOWN]) + rest
    return next((f"stage {name}" for name in step.stages if _stage_changed(name, now, old, moved)), "")


def _settings_above(instructions: Sequence[Instruction], stage: str, position: int) -> list[str]:
    """Return the settings above a step in its stage."""
    own = [each for each in instructions if each.stage == stage]
    end = [index for index, each in enumerate(own) if each.is_step][position]
    return [each.text for each in own[:end] if each.name in SETTINGS]


def _stage_changed(stage: str, now: Sequence[Instruction], old: Sequence[Instruction], moved: list[str]) -> bool:
    texts = [[each.text for each in instructions if each.stage == stage] for instructions in (now, old)]
    return texts[0] != texts[1] or any(each.reads(name) for each in steps(now, stage) for name in moved)


def _instruction_name(created_by: str) -> str:
    """Return the instruction that made a history entry; buildah writes it as the shell's command."""
    shell, no_run = "/bin/sh -c ", "#(nop) "
    if created_by.startswith(shell):
        command = created_by.removeprefix(shell)
        return command.removeprefix(no_run).split(" ", 1)[0] if command.startswith(no_run) else "RUN"
    return created_by.split(" ", 1)[0]
