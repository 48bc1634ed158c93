"""Formats reports and stores them in .build/reports.

NAME.{txt,json,html} are the last build of a name, images/ID.json is the build of an image.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from images.contents.layer_sizes import mb
from images.host.paths import REPORTS
from images.report.report import Report, StepReport

TEMPLATE = "report.html.j2"


def read(name: str, folder: Path = REPORTS) -> dict[str, Any] | None:
    """Read the last report of a name from its JSON."""
    path = folder / f"{stem(name)}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def write(report: Report, folder: Path = REPORTS, inputs: str = "") -> Path:
    """Write text, JSON and HTML, and return the path of the text; ``inputs`` are the report's as JSON, if known."""
    path, of_image = folder / f"{stem(report.name)}.txt", _image_path(report.image, folder)
    of_image.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, f"{full_text(report)}\n")
    _replace(path.with_suffix(".html"), f"{template().render(report=report)}\n")
    _replace(of_image, _json(report, inputs))
    _replace(path.with_suffix(".json"), of_image)
    return path


def restore(name: str, image_id: str, folder: Path = REPORTS) -> None:
    """Make ``name``'s latest report the one of this image, after a retag."""
    stored = _image_path(image_id, folder)
    if not stored.exists() or (read(name, folder) or {}).get("image") == image_id:
        return
    content = json.loads(stored.read_text(encoding="utf-8"))
    steps = [StepReport(**step) for step in content.pop("steps")]
    write(Report(**{**content, "name": name, "steps": steps}), folder)


def stem(name: str) -> str:
    """Return a file name for an image's name."""
    return re.sub(r"[^\w.-]", "_", name)


def summary(report: Report) -> str:
    """Format a few lines for the terminal: the size, the slowest steps, and the causes of their cache misses."""
    lines = [_headline(report)]
    for step in sorted(report.ran, key=lambda step: -step.seconds)[:5]:
        lines.append(f"  {step.seconds:6.1f} s  {mb(step.size):>9}  {_shortened(step.text, 48)}  ({step.cause})")
    return "\n".join(lines)


def full_text(report: Report) -> str:
    """Format the whole report as text."""
    lines = [
        _headline(report),
        f"image {report.image}",
        f"base  {report.base}, {mb(report.base_size)}",
        f"by    {report.engine}",
    ]
    lines += ["", "  seconds      size  step"]
    for step in report.steps:
        time = "  cached" if step.cached else f"{step.seconds:8.1f}"
        lines.append(f" {time} {mb(step.size):>9}  {step.stage}: {_shortened(step.text, 110)}")
        lines += [f"{'':20} ran: {step.cause}"] if step.cause else []
    lines += [f" {report.other_s:8.1f}            context and export", "", "largest files and folders above the base"]
    lines += [f" {mb(size):>9}  {path}" for path, size in report.places] or [
        " unknown: this account cannot read the engine's storage"
    ]
    return "\n".join(lines)


@lru_cache(maxsize=1)
def template() -> Template:
    """Return the HTML template, compiled once: that takes longer than all the rest of a report."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, autoescape=True
    )
    environment.filters["mb"] = mb
    return environment.get_template(TEMPLATE)


def _headline(report: Report) -> str:
    change = "" if report.before is None else f", {(report.size - report.before) / 1e6:+.1f} MB since the last build"
    count = len([step for step in report.steps if not step.text.startswith("FROM ")])
    return (
        f"{report.name}: {len(report.ran)} of {count} steps ran in {report.seconds:.1f} s; "
        f"{mb(report.size)}, {mb(report.size - report.base_size)} over its base{change}"
    )


def _shortened(text: str, width: int) -> str:
    """Drop the mounts of an instruction, and cut it to ``width`` characters."""
    text = re.sub(r"--mount=\S+ ", "", text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _json(report: Report, inputs: str) -> str:
    """Encode a report; its inputs are most of it, and may be encoded already."""
    rest = {name: value for name, value in vars(report).items() if name != "inputs"}
    encoded = json.dumps({**rest, "steps": [vars(step) for step in report.steps]})
    return f'{encoded[:-1]}, "inputs": {inputs or json.dumps(dict(report.inputs))}}}\n'


def _replace(path: Path, content: str | Path) -> None:
    """Replace a file by this text or by a hard link to another file; reports are never written in place."""
    new = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")  # two builds may make one image
    if isinstance(content, Path):
        new.unlink(missing_ok=True)
        try:
            os.link(content, new)
        except OSError:  # a file system without hard links
            shutil.copyfile(content, new)
    else:
        new.write_text(content, encoding="utf-8")
    new.replace(path)


def _image_path(image_id: str, folder: Path) -> Path:
    return folder / "images" / f"{image_id.rpartition(':')[2]}.json"
