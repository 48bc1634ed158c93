"""Runs `verl_node.prepare` on this node, and reports its progress."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from verl_node.errors import InputUnavailable, Reported
from verl_node.reporting.events import Journal
from verl_node.supervision.child import Process
from verl_node.supervision.waiting import Deadline, within


async def run(argv: Sequence[str], env: Mapping[str, str], *, journal: Journal, deadline: Deadline) -> None:
    """Prepare this node. Raises the reported error, or InputUnavailable."""
    failure: dict[str, Any] = {}

    def read_line(line: str) -> None:
        if not line.startswith('{"time"'):
            journal.note(line)
            return
        report = json.loads(line)
        journal.relay(report["phase"], report["event"], report.get("message", ""), report.get("seconds"))
        if "code" in report:
            failure.update(report)

    process = await Process.start(argv, env, on_line=read_line)
    try:
        code = await within(deadline, process.ended())
    except asyncio.TimeoutError:
        raise InputUnavailable(
            f"{journal.phase} was not ready after {deadline.timeout_s:.0f} s.",
            fix="Check the network and the disk of this node, or increase VERLJOB_PREPARE_TIMEOUT_S.",
        ) from None
    if failure:
        raise Reported(failure["code"], failure["cause"], fix=failure["fix"], host=journal.host, stage=failure["phase"])
    if code != 0:
        raise InputUnavailable(
            f"Preparing data and model exited with {code}: {' | '.join(list(process.last_lines)[-3:])}",
            fix="Read the lines above; 137 usually means too little memory.",
        )
