"""Results of the checks that node.sh made on the host (slurm/lib/node/host_check.sh)."""

from __future__ import annotations

from pathlib import Path

from verl_node.checks.result import Outcome

FILE = "host-checks"
_FIELDS = 5


def read(folder: Path, host: str) -> list[Outcome]:
    """Return the outcomes that it left: a line each, name, severity, seen, wanted and fix between tabs."""
    file = folder / FILE
    if not file.exists():
        return []
    lines = [line.split("\t") for line in file.read_text(encoding="utf-8", errors="replace").split("\n")]
    return [
        Outcome(name, host, severity, seen, wanted, fix)
        for name, severity, seen, wanted, fix in (line for line in lines if len(line) == _FIELDS)
    ]
