"""What a build did, in .build/reports/NAME.{txt,json,html}: times, cache, sizes, and what changed since the last."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from docker.models.images import Image
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from images import causes, places
from images.buildlog import BuildLog
from images.instructions import STEPS, final_stage, parse, steps

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / ".build" / "reports"
TEMPLATE = "report.html.j2"
MB = 1e6


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


def told(log: BuildLog, dockerfile: str, inputs: Mapping[str, str], last: causes.Before | None) -> list[StepReport]:
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
        why = causes.of_misses(stage, cached, dockerfile, inputs, last) if seen else []
        for place, (text, hit, cause) in enumerate(zip(texts, cached, why), 1):
            found.append(StepReport(stage, text, seen[place].seconds if place in seen else 0.0, hit, cause))
    return found


def with_sizes(found: Sequence[StepReport], dockerfile: str, history: Sequence[Mapping[str, Any]]) -> list[StepReport]:
    """The steps with the bytes of their layers, from the image's own part of its history, oldest first."""
    made = [entry["Size"] for entry in history if _verb(entry["CreatedBy"] or "") in STEPS]
    own = [step for step in found if step.stage == final_stage(parse(dockerfile)) and not step.text.startswith("FROM ")]
    sizes = dict(zip(map(id, own), made))
    return [StepReport(**{**asdict(step), "size": sizes.get(id(step), 0)}) for step in found]


def make(
    name: str,
    image: Image,
    base: Image,
    log: BuildLog,
    *,
    engine: str,
    ended: str,
    seconds: float,
    dockerfile: str,
    inputs: Mapping[str, str],
    folder: Path = REPORTS,
) -> Report:
    """The report of the build that just made ``image`` of ``base``."""
    last = read(name, folder)
    before = causes.Before(last["dockerfile"], last["inputs"]) if last else None
    history = list(reversed(image.history()))[len(base.history()) :]
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
        places=places.largest(image, len(base.attrs["RootFS"]["Layers"])),
        dockerfile=dockerfile,
        inputs=inputs,
    )


def read(name: str, folder: Path = REPORTS) -> dict[str, Any] | None:
    """The last report of a name, as JSON has it."""
    path = folder / f"{stem(name)}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def write(report: Report, folder: Path = REPORTS) -> Path:
    """Write text, JSON and HTML; the path of the text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, autoescape=True
    )
    environment.filters["mb"] = mb
    contents = {
        "txt": full(report),
        "html": environment.get_template(TEMPLATE).render(report=report),
        "json": json.dumps(asdict(report), indent=1),
    }
    files = {folder / f"{stem(report.name)}.{suffix}": content for suffix, content in contents.items()}
    files[_of_image(report.image, folder)] = contents["json"]
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.new")
        new.write_text(content + "\n", encoding="utf-8")
        new.replace(path)
    return folder / f"{stem(report.name)}.txt"


def renew(name: str, image_id: str, folder: Path = REPORTS) -> None:
    """Let the name's report be that of this image, which was built before and now has the name again."""
    kept = _of_image(image_id, folder)
    if not kept.exists() or (read(name, folder) or {}).get("image") == image_id:
        return
    told = json.loads(kept.read_text(encoding="utf-8"))
    steps = [StepReport(**step) for step in told.pop("steps")]
    write(Report(**{**told, "name": name, "steps": steps}), folder)


def stem(name: str) -> str:
    """A file name for an image's name."""
    return re.sub(r"[^\w.-]", "_", name)


def summary(report: Report) -> str:
    """A few lines for the terminal: what ran and why, and what it weighs."""
    lines = [_headline(report)]
    for step in sorted(report.ran, key=lambda step: -step.seconds)[:5]:
        lines.append(f"  {step.seconds:6.1f} s  {mb(step.size):>9}  {_short(step.text, 48)}  ({step.cause})")
    return "\n".join(lines)


def full(report: Report) -> str:
    """The whole report as text."""
    lines = [
        _headline(report),
        f"image {report.image}",
        f"base  {report.base}, {mb(report.base_size)}",
        f"by    {report.engine}",
    ]
    lines += ["", "  seconds      size  step"]
    for step in report.steps:
        time = "  cached" if step.cached else f"{step.seconds:8.1f}"
        lines.append(f" {time} {mb(step.size):>9}  {step.stage}: {_short(step.text, 110)}")
        lines += [f"{'':20} ran: {step.cause}"] if step.cause else []
    lines += [f" {report.other_s:8.1f}            context and export", "", "largest places above the base"]
    lines += [f" {mb(size):>9}  {path}" for path, size in report.places] or [
        " not to be read: the engine keeps its storage to itself"
    ]
    return "\n".join(lines)


def mb(size: float) -> str:
    """Bytes as people read them."""
    return f"{size / MB:.1f} MB" if size < 100 * MB else f"{size / MB:.0f} MB"


def _verb(created_by: str) -> str:
    """The instruction that made an entry of a history; buildah writes it as the shell's command."""
    shell, nothing = "/bin/sh -c ", "#(nop) "
    if created_by.startswith(shell):
        said = created_by.removeprefix(shell)
        return said.removeprefix(nothing).split(" ", 1)[0] if said.startswith(nothing) else "RUN"
    return created_by.split(" ", 1)[0]


def _of_image(image_id: str, folder: Path) -> Path:
    return folder / "images" / f"{image_id.rpartition(':')[2]}.json"


def _headline(report: Report) -> str:
    change = "" if report.before is None else f", {(report.size - report.before) / MB:+.1f} MB since the last build"
    count = len([step for step in report.steps if not step.text.startswith("FROM ")])
    return (
        f"{report.name}: {len(report.ran)} of {count} steps ran in {report.seconds:.1f} s; "
        f"{mb(report.size)}, {mb(report.size - report.base_size)} over its base{change}"
    )


def _short(text: str, width: int) -> str:
    """The part of an instruction that tells it from others, in ``width`` characters."""
    text = re.sub(r"--mount=\S+ ", "", text)
    return text if len(text) <= width else f"{text[: width - 1]}…"
