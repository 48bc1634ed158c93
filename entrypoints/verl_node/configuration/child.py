"""Runs `verl_node.configuration` while the cluster forms, and reports its findings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from verl_node.configuration.finding import ERROR, Finding, errors, require_none
from verl_node.settings.settings import Settings
from verl_node.supervision.child import Process
from verl_node.supervision.waiting import Deadline, within

TIMEOUT_S = 300.0  # 9 CPU seconds; what it reads may lie on a file system that is cold


def argv(settings: Settings, training: Sequence[str], verl: str, kept: Path) -> list[str]:
    """Return the command that looks at ``training`` and leaves for prepare, in ``kept``, what it cannot see yet."""
    flags = ["--platform", settings.platform, "--verl", verl, "--save", str(kept)]
    flags += ["--node-memory", str(settings.memory_bytes)] if settings.memory_bytes else []
    flags += ["--wandb"] if settings.logs_to_wandb else []
    return ["python3", "-m", "verl_node.configuration", *flags, "--", *training]


async def run(
    command: Sequence[str], env: Mapping[str, str], note: Callable[[str], None], sound: Callable[[], None]
) -> None:
    """Note what is found, and tell as soon as the rules find no error: verl itself is asked after them.

    Raises BadTrainingConfig; that the look itself failed is noted and ends nothing.
    """
    findings: list[Finding] = []

    def take(line: str) -> None:
        if line.startswith('{"findings"'):
            findings.extend(Finding(**found) for found in json.loads(line)["findings"])
            if not any(errors(findings)):
                sound()

    process = await Process.start(command, env, on_line=take)
    try:
        code = await within(Deadline(TIMEOUT_S), process.ended())
    except asyncio.TimeoutError:
        process.kill()
        note(f"warning: the configuration was not looked at in {TIMEOUT_S:.0f} s; training will tell.")
        return
    for found in findings:
        if found.severity != ERROR:
            note(found.sentence())
    require_none(findings)
    if code != 0:
        words = " | ".join(list(process.last_lines)[-3:])
        note(f"warning: the look at the configuration ended with {code}, training will tell: {words}")
