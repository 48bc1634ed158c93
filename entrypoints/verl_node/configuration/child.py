"""Runs `verl_node.configuration` while the cluster forms, and reports its findings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from verl_node.configuration.finding import ERROR, Finding, errors, require_no_errors
from verl_node.settings.settings import Settings
from verl_node.supervision.child import Process
from verl_node.supervision.waiting import Deadline, within

TIMEOUT_S = 300.0  # 9 CPU seconds, but the packages may be on a cold file system


def argv(settings: Settings, training: Sequence[str], verl: str, file: Path) -> list[str]:
    """Return the command that checks ``training`` and saves its configuration in ``file``."""
    flags = ["--platform", settings.platform, "--verl", verl, "--save", str(file)]
    flags += ["--node-memory", str(settings.memory_bytes)] if settings.memory_bytes else []
    flags += ["--wandb"] if settings.logs_to_wandb else []
    return ["python3", "-m", "verl_node.configuration", *flags, "--", *training]


async def run(
    command: Sequence[str], env: Mapping[str, str], note: Callable[[str], None], on_passed: Callable[[], None]
) -> None:
    """Run the check and log its findings; call ``on_passed`` when the rules found no error, before verl's validation.

    Raises BadTrainingConfig; a failure of the check itself is only logged.
    """
    findings: list[Finding] = []

    def read_line(line: str) -> None:
        if line.startswith('{"findings"'):
            findings.extend(Finding(**found) for found in json.loads(line)["findings"])
            if not any(errors(findings)):
                on_passed()

    process = await Process.start(command, env, on_line=read_line)
    try:
        code = await within(Deadline(TIMEOUT_S), process.ended())
    except asyncio.TimeoutError:
        process.kill()
        note(f"warning: the check of the configuration took over {TIMEOUT_S:.0f} s and was ended; training may fail.")
        return
    for found in findings:
        if found.severity != ERROR:
            note(found.sentence())
    require_no_errors(findings)
    if code != 0:
        last_lines = " | ".join(list(process.last_lines)[-3:])
        note(f"warning: the check of the configuration exited with {code}; training may fail: {last_lines}")
