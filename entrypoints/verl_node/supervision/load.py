"""Load factor: how much longer silence is tolerated on a node with many more runnable tasks than cores."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# Eight jobs that started on two cores had 97 tasks a core, and a node.sh that was fit kept silent for 4 s; drills and
# trainings on them have up to 10.
_TASKS_A_CORE = 16
_LEAST = 1 / 16  # so that one that is stopped is found all the same


def weight(load: Path = Path("/proc/loadavg"), cores: int | None = None) -> float:
    """Return 1.0, and less the more tasks a core are ready to run: ``load`` counts those of the whole machine."""
    with suppress(OSError, ValueError, IndexError):  # a machine that does not tell
        ready = int(load.read_text().split()[3].partition("/")[0])
        return min(1.0, max(_LEAST, _TASKS_A_CORE * (cores or os.cpu_count() or 1) / max(ready, 1)))
    return 1.0
