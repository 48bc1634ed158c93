"""Scripts that the fake srun runs as the step of launch.sh: verdicts of its nodes."""

from __future__ import annotations

import subprocess

DEMO = "demo_cpu"
FOREVER = "while :; do sleep 0.1; done\n"


def leaves(*verdicts: tuple[int, str]) -> str:
    """Return a step whose nodes send these verdicts: node number and fields."""
    return "\n".join(
        f"{{ printf 'verljob-verdict\\t{node_id}-n{node_id + 1}'; printf '\\t%s' {fields}; echo; }} >&2"
        for node_id, fields in verdicts
    )


def ended(code: int, *, origin: str = "self", cause: str = "x") -> str:
    return f"code={code} origin={origin} stage=train host=n1 cause={cause} fix="


SUCCESS = leaves((0, ended(0)), (1, ended(0)))


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.strip().splitlines()[-1]
