"""The verdict of a job, from result.json or the last line of its output."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_node.explain.logs import recovery
from verl_node.explain.logs.sources import Log, run_dir
from verl_node.reporting.verdict import default_class

_LAST_LINE = re.compile(
    rb"(?m)^verdict: (?P<code>\d+) \((?P<stage>[\w-]+) on (?P<host>[^)]*)\): "
    rb"(?P<cause>.*?)(?: \xe2\x80\x94 (?P<fix>.*))?$"
)
_FIRST_FAILURE = re.compile(rb"(?m)^first failure +(?P<kind>[a-z][a-z-]{0,31}): (?P<cause>.*)$")
# Codes of failures that the toolkit detected itself; a log has the same failure with fewer details.
_SURE = (64, 65, 66, 69, 70, 77, 93)


@dataclass(frozen=True)
class Verdict:
    """The end of a job, with the fields of slurm/lib/common/verdict.sh."""

    code: int
    stage: str
    host: str
    cause: str
    fix: str
    line: str
    file: str
    kind: str

    @property
    def of_training(self) -> bool:
        """Whether the training itself ended: only its log has the reason."""
        return self.stage == "train" and self.code not in (0, 143)

    @property
    def sure(self) -> bool:
        """Whether the verdict is more precise than any log."""
        return self.code in _SURE and not self.of_training


def find_verdict(paths: Sequence[Path], logs: Sequence[Log]) -> Verdict | None:
    """Return the verdict from result.json or the end of a log; None without one."""
    for path in paths:
        file, result = _read_result(run_dir(path)) if path.is_dir() else (path, {})
        if isinstance(result.get("code"), int):
            fields = {name: str(result.get(name) or "") for name in ("stage", "host", "cause", "fix")}
            kind = str(result.get("class") or default_class(result["code"], fields["stage"]))
            line = f"{fields['cause']} {fields['fix']}".strip()
            return Verdict(result["code"], **fields, line=line, file=str(file), kind=kind)
    for log in logs:
        tail = recovery.tail(log.path) if log.main else b""
        found = list(_LAST_LINE.finditer(tail))
        if found:
            fields = {name: (value or b"").decode("utf-8", "replace") for name, value in found[-1].groupdict().items()}
            line = found[-1][0].decode("utf-8", "replace")
            code = int(fields.pop("code"))
            kind = _printed_class(tail, found[-1]["cause"]) or default_class(code, fields["stage"])
            return Verdict(code, **fields, line=line, file=str(log.path), kind=kind)
    return None


def _read_result(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return result.json, else the head's verdict, which is written first."""
    file = folder / "result.json"
    if (result := _read_json(file)) or not (verdicts := sorted(folder.glob("nodes/0-*/verdict"))):
        return file, result
    try:
        lines = verdicts[0].read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return file, {}
    verdict: dict[str, Any] = dict(line.split("=", 1) for line in lines if "=" in line)
    return verdicts[0], {**verdict, "code": int(verdict["code"])} if verdict.get("code", "").isdigit() else {}


def _printed_class(tail: bytes, cause: bytes) -> str:
    """Return the class that launch.sh printed for this cause above its last line, empty for none."""
    printed = [found["kind"].decode() for found in _FIRST_FAILURE.finditer(tail) if found["cause"] == cause]
    return printed[-1] if printed else ""


def hosts(paths: Sequence[Path]) -> Mapping[str, str]:
    """Return a job's hosts by address, from its config.json."""
    nodes = [
        node for path in paths if path.is_dir() for node in _read_json(run_dir(path) / "config.json").get("nodes") or ()
    ]
    return {str(node.get("address")): str(node.get("host")) for node in nodes if isinstance(node, dict)}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):  # it does not exist, or is still being written
        return {}
    return content if isinstance(content, dict) else {}
