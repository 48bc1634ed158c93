"""Where reports lie: .build/reports/NAME.{txt,json,html} of a name's last build, and images/ID.json of every image."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from images.report import Report

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / ".build" / "reports"


def read(name: str, folder: Path = REPORTS) -> dict[str, Any] | None:
    """The last report of a name, as JSON has it."""
    path = folder / f"{stem(name)}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def write(report: Report, folder: Path = REPORTS) -> Path:
    """Write text, JSON and HTML; the path of the text."""
    from images.report_text import full, page  # who reads has no use for Jinja

    told = f"{json.dumps({**vars(report), 'steps': [vars(step) for step in report.steps]})}\n"
    path = folder / f"{stem(report.name)}.txt"
    _replace(path, f"{full(report)}\n")
    _replace(path.with_name(f"{stem(report.name)}.html"), f"{page(report)}\n")
    _replace(path.with_name(f"{stem(report.name)}.json"), told)
    _replace(_of_image(report.image, folder), told)
    return path


def renew(name: str, image_id: str, folder: Path = REPORTS) -> None:
    """Let the name's report be that of this image, which was built before and now has the name again."""
    kept = _of_image(image_id, folder)
    if not kept.exists() or (read(name, folder) or {}).get("image") == image_id:
        return
    from images.report import Report, StepReport

    told = json.loads(kept.read_text(encoding="utf-8"))
    steps = [StepReport(**step) for step in told.pop("steps")]
    write(Report(**{**told, "name": name, "steps": steps}), folder)


def stem(name: str) -> str:
    """A file name for an image's name."""
    return re.sub(r"[^\w.-]", "_", name)


def _replace(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(content, encoding="utf-8")
    new.replace(path)


def _of_image(image_id: str, folder: Path) -> Path:
    return folder / "images" / f"{image_id.rpartition(':')[2]}.json"
