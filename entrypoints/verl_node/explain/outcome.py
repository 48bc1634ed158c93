"""What the job itself says of its end: result.json, or the last line of its output."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_node.explain.logs import recovery
from verl_node.explain.logs.sources import Log, run_dir

_LAST_LINE = re.compile(
    rb"(?m)^verdict: (?P<code>\d+) \((?P<stage>[\w-]+) on (?P<host>[^)]*)\): "
    rb"(?P<cause>.*?)(?: \xe2\x80\x94 (?P<fix>.*))?$"
)
# What the toolkit looked at itself before it ended the job; a log can only tell the same with fewer words.
_SURE = (64, 65, 66, 69, 70, 77, 93)
_OF_CODE = {64: "config", 65: "config", 71: "ray-gcs", 75: "ray-gcs", 77: "slurm-container", 143: "slurm-container"}
_OF_STAGE = {
    "image": "image",
    "data": "data",
    "model": "hf-cache",
    "checks": "slurm-container",
    "container": "slurm-container",
    "launch": "slurm-container",
    "head": "ray-gcs",
    "join": "ray-gcs",
    "cluster": "ray-gcs",
    "lead": "slurm-container",
}
_WORDS = (
    ("want of memory", "memory"),
    ("limit of processes", "slurm-container"),
    ("time limit", "slurm-container"),
    (" runs image ", "image"),
)


@dataclass(frozen=True)
class Verdict:
    """How the job ended, in the words of slurm/lib/common/verdict.sh."""

    code: int
    stage: str
    host: str
    cause: str
    fix: str
    told: str
    file: str

    @property
    def of_training(self) -> bool:
        """Whether training ended by itself: why, only its log knows."""
        return self.stage == "train" and self.code not in (0, 143)

    @property
    def sure(self) -> bool:
        """Whether nothing in a log can know better."""
        return self.code in _SURE and not self.of_training

    @property
    def kind(self) -> str:
        """The class of the failure that it tells."""
        for words, kind in _WORDS:
            if words in self.cause:
                return kind
        if self.of_training:
            return "unknown"
        return _OF_CODE.get(self.code) or _OF_STAGE.get(self.stage, "unknown")


def of(paths: Sequence[Path], logs: Sequence[Log]) -> Verdict | None:
    """Return what the job says of its end; None where it says nothing."""
    for path in paths:
        told = _read_json(run_dir(path) / "result.json") if path.is_dir() else {}
        if isinstance(told.get("code"), int):
            words = {name: str(told.get(name) or "") for name in ("stage", "host", "cause", "fix")}
            file = run_dir(path) / "result.json"
            return Verdict(told["code"], **words, told=f"{words['cause']} {words['fix']}".strip(), file=str(file))
    for log in logs:
        found = list(_LAST_LINE.finditer(recovery.tail(log.path))) if log.first else []
        if found:
            words = {name: (value or b"").decode("utf-8", "replace") for name, value in found[-1].groupdict().items()}
            line = found[-1][0].decode("utf-8", "replace")
            return Verdict(int(words.pop("code")), **words, told=line, file=str(log.path))
    return None


def hosts(paths: Sequence[Path]) -> Mapping[str, str]:
    """Return the hosts of a job by address, from its config.json."""
    nodes = [
        node for path in paths if path.is_dir() for node in _read_json(run_dir(path) / "config.json").get("nodes") or ()
    ]
    return {str(node.get("address")): str(node.get("host")) for node in nodes if isinstance(node, dict)}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):  # not there, or still being written
        return {}
    return told if isinstance(told, dict) else {}
