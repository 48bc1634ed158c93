"""Waits on the head until the cluster has formed, by the Ray driver in driver_main.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from verl_node.errors import CheckFailed
from verl_node.supervision.child import Process
from verl_node.supervision.waiting import Deadline, until


class Driver:
    """A Ray driver in a child process, and the latest of each kind of its reports."""

    def __init__(self, process: Process, reports: dict[str, dict[str, Any]]) -> None:
        self._process = process
        self._reports = reports

    @classmethod
    async def prime(cls, env: Mapping[str, str]) -> Driver:
        """Start the driver, which imports Ray and waits for `watch_cluster`; its other output is shown if it fails."""
        reports: dict[str, dict[str, Any]] = {}

        def on_line(line: str) -> None:
            if line.startswith('{"kind"'):
                report = json.loads(line)
                reports[report["kind"]] = report

        argv = ["python3", "-m", "verl_node.ray_node.driver_main"]
        # The driver is not a worker of the training: a RAY_START_HOOK or a device mask has no effect on it.
        return cls(await Process.start(argv, env, on_line=on_line, waits=True), reports)

    def watch_cluster(self, *, gcs: str, nodes: Sequence[str], gpus: int) -> None:
        """Watch the nodes with these addresses, that of this machine first, and ``gpus`` GPUs each."""
        self._process.send_order(gcs=gcs, nodes=list(nodes), gpus=gpus)

    async def complete(self, deadline: Deadline) -> bool:
        """Wait until all nodes are alive with their GPUs; False at the deadline. Raises CheckFailed."""
        return await self._reported("complete", deadline)

    def alive(self) -> dict[str, int]:
        """Return the number of GPUs by address of the nodes that were alive in the last report."""
        return {node["address"]: node["gpus"] for node in self._reports.get("alive", {}).get("nodes", [])}

    async def actors(self, deadline: Deadline) -> list[dict[str, Any]]:
        """Return the report of an actor on each node. Raises CheckFailed if one does not answer in time."""
        if not await self._reported("actors", deadline):
            raise CheckFailed(
                f"An actor on each of {', '.join(sorted(self.alive()))} did not answer in {deadline.timeout_s:.0f} s.",
                fix="Look into raylet.out and worker-*.err of the run directory's nodes/*/ray; "
                "VERLJOB_RAY_TIMEOUT_S gives it longer.",
            )
        await asyncio.wait({asyncio.ensure_future(self._process.ended())}, timeout=deadline.left_s())
        return list(self._reports["actors"]["nodes"])

    async def _reported(self, kind: str, deadline: Deadline) -> bool:
        await until(lambda: kind in self._reports or not self._process.running, deadline=deadline, poll_s=0.05)
        code = None if self._process.running else await self._process.ended()
        if kind in self._reports:
            return True
        if code is not None:
            lines = [line for line in self._process.last_lines if line.strip()][-3:]
            raise CheckFailed(
                f"A driver on the head could not use the cluster and ended with {code}: {' | '.join(lines)}",
                fix="Look into nodes/0-*/ray of the run directory (gcs_server.out, raylet.out).",
            )
        return False
