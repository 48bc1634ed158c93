"""Files that other nodes left in the run directory before they connected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from verl_node.reporting import files, masking

_TAIL_BYTES = 8192
_LINE_LENGTH = 200


def folder(run_dir: Path, number: int, host: str) -> Path:
    """Return a node's folder in the run directory; node.sh makes it."""
    return run_dir / "nodes" / f"{number}-{host}"


class NodeDirs:
    """The nodes' folders in the run directory; they are empty without Slurm, or if the nodes do not share it."""

    def __init__(self, run_dir: Path | None, hosts: Sequence[str]) -> None:
        self._folders = {
            number: folder(run_dir, number, host) for number, host in enumerate(hosts) if run_dir is not None
        }

    def pulling(self, numbers: Iterable[int]) -> bool:
        """Return whether one of these nodes still pulls its image: node.sh keeps a file `bringing` meanwhile."""
        return any((self._folders[number] / "bringing").exists() for number in numbers if number in self._folders)

    def last_line(self, number: int) -> str:
        """Return the end, 200 characters, of the last line of the node's log, masked; empty without a log."""
        try:
            with files.opened(self._folders[number] / "node.log") as log:
                before = max(0, log.seek(0, 2) - _TAIL_BYTES)
                log.seek(before)
                text = log.read().decode("utf-8", "replace")
        except (KeyError, OSError):
            return ""
        lines = (masking.rest(text) if before else masking.masked(text)).splitlines()
        return next((line.strip()[-_LINE_LENGTH:] for line in reversed(lines) if line.strip()), "")
