"""Waits on the head until the whole cluster is up, by the Ray driver in driver_main.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from verl_node.errors import CheckFailed
from verl_node.supervision.child import Process
from verl_node.supervision.waiting import Deadline, until


class Driver:
    """A driver that looks at the cluster: first for its nodes, then from inside each of them."""

    def __init__(self, process: Process, reports: dict[str, dict[str, Any]]) -> None:
        self._process = process
        self._reports = reports

    @classmethod
    async def prime(cls, env: Mapping[str, str]) -> Driver:
        """Have it import Ray; what it says that is no report is shown only if it fails."""
        reports: dict[str, dict[str, Any]] = {}

        def take(line: str) -> None:
            if line.startswith('{"kind"'):
                report = json.loads(line)
                reports[report["kind"]] = report

        argv = ["python3", "-m", "verl_node.ray_node.driver_main"]
        # The driver is no worker of the training: a RAY_START_HOOK or a mask is nothing to it.
        return cls(await Process.start("cluster driver", argv, env, on_line=take, waits=True), reports)

    def look(self, *, gcs: str, nodes: Sequence[str], gpus: int) -> None:
        """Look at the cluster of these ``nodes``, addresses, that of this machine first, with ``gpus`` GPUs each."""
        self._process.order(gcs=gcs, nodes=list(nodes), gpus=gpus)

    async def whole(self, deadline: Deadline) -> bool:
        """Wait until every node is alive with its GPUs; False at the deadline. Raises CheckFailed if it dies."""
        return await self._reported("whole", deadline)

    def alive(self) -> dict[str, int]:
        """Return the addresses that are alive and how many GPUs each has, as last seen."""
        return {node["address"]: node["gpus"] for node in self._reports.get("alive", {}).get("nodes", [])}

    async def tasks(self, deadline: Deadline) -> list[dict[str, Any]]:
        """Return what a task on each node saw. Raises CheckFailed naming the nodes when they do not all answer."""
        if not await self._reported("tasks", deadline):
            raise CheckFailed(
                f"A task on each of {', '.join(sorted(self.alive()))} did not come back in {deadline.timeout_s:.0f} s.",
                fix="Look into raylet.out and worker-*.err of the run directory's nodes/*/ray; "
                "VERLJOB_RAY_TIMEOUT_S gives it longer.",
            )
        await asyncio.wait({asyncio.ensure_future(self._process.ended())}, timeout=deadline.left_s())
        return list(self._reports["tasks"]["nodes"])

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
