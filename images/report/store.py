"""Stores reports in .build/reports: NAME.{txt,json,html} of a name's last build, images/ID.json of every image."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from images.host.paths import REPORTS

if TYPE_CHECKING:
    from images.report.report import Report


def read(name: str, folder: Path = REPORTS) -> dict[str, Any] | None:
    """The last report of a name, as JSON has it."""
    path = folder / f"{stem(name)}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def write(report: Report, folder: Path = REPORTS, inputs: str = "") -> Path:
    """Write text, JSON and HTML; the path of the text. ``inputs`` are the report's as JSON, where they are at hand."""
    from images.report.text import full, page  # who reads has no use for Jinja

    path, own = folder / f"{stem(report.name)}.txt", _of_image(report.image, folder)
    own.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, f"{full(report)}\n")
    _replace(path.with_name(f"{stem(report.name)}.html"), f"{page(report)}\n")
    _replace(own, _json(report, inputs))
    _replace(path.with_name(f"{stem(report.name)}.json"), own)
    return path


def renew(name: str, image_id: str, folder: Path = REPORTS) -> None:
    """Let the name's report be that of this image, which was built before and now has the name again."""
    kept = _of_image(image_id, folder)
    if not kept.exists() or (read(name, folder) or {}).get("image") == image_id:
        return
    from images.report.report import Report, StepReport

    told = json.loads(kept.read_text(encoding="utf-8"))
    steps = [StepReport(**step) for step in told.pop("steps")]
    write(Report(**{**told, "name": name, "steps": steps}), folder)


def stem(name: str) -> str:
    """A file name for an image's name."""
    return re.sub(r"[^\w.-]", "_", name)


def _json(report: Report, inputs: str) -> str:
    """The inputs are most of it, and known before there is an image."""
    rest = {name: value for name, value in vars(report).items() if name != "inputs"}
    told = json.dumps({**rest, "steps": [vars(step) for step in report.steps]})
    return f'{told[:-1]}, "inputs": {inputs or json.dumps(dict(report.inputs))}}}\n'


def _replace(path: Path, content: str | Path) -> None:
    """Put a file of this text in place, or another name of a file: no report is ever written into, only replaced."""
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


def _of_image(image_id: str, folder: Path) -> Path:
    return folder / "images" / f"{image_id.rpartition(':')[2]}.json"
