"""Runs `ray start --block` as a child process: start, readiness, watch."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from verl_node.errors import ClusterLost, NodeError, RayNotStarted
from verl_node.network import address
from verl_node.ray_node.fast_start import LOCK_VARIABLE, StartLock
from verl_node.supervision import process_tree
from verl_node.supervision.child import Process
from verl_node.supervision.waiting import Deadline, until

_POLL_S = 0.5
_RAYLET = "raylet"
_DAEMONS = {_RAYLET, "gcs_server"}
# Polls in a row that see an ended daemon before we report it: within 2 s `ray start` itself says more about it.
_ENDED_POLLS = 8
# Routine output of `ray start`; for a process that died it also shows the end of its C++ log.
_ROUTINE = re.compile(r"\b(INFO|SUCC)\b|^\[\S+ \S+ [IW] \d+ \d+\] |\b(total \(\d+ active\)|mean = |Event stats:)")
_QUOTED_LINES = 3


def require_free(own_address: str, port: int, host: str) -> None:
    """Raise RayNotStarted if another process listens on the GCS port: it would be mistaken for the GCS."""
    if address.answers(own_address, port):
        raise RayNotStarted(
            f"The port {port} for Ray's GCS was taken on {host} by another process, after it had been found free.",
            fix="Start the job again; `ss -lptn` on that node shows who listens. VERLJOB_PORT_RANGE moves the ports.",
            host=host,
        )


class Ray:
    """Ray on this node: `ray start --block` and, below it, a raylet and (on the head) the GCS."""

    def __init__(self, process: Process, host: str) -> None:
        self._process = process
        self._host = host
        self._formed = False
        self._raylet: int | None = None
        self._start_lock: StartLock | None = None

    @classmethod
    async def prime(cls, env: Mapping[str, str], *, host: str) -> Ray:
        """Start a process that imports Ray and waits for `start`."""
        argv = ["python3", "-m", "verl_node.ray_node.start"]
        return cls(await Process.start(argv, env, on_line=_print, waits=True), host)

    def start(self, argv: Sequence[str], env: Mapping[str, str], temp_dir: Path, *, delay_helpers: bool) -> None:
        """Run this `ray start` command, with its files in ``temp_dir``; `watch` reports its failure.

        With ``delay_helpers`` (`fast_start.supported`) Ray's helpers start with `checked`.
        """
        if delay_helpers:
            self._start_lock = StartLock(temp_dir)
            env = {**env, LOCK_VARIABLE: str(self._start_lock.path)}
        self._process.send_order(argv=list(argv), env=dict(env))

    async def answering(self, host: str, port: int, deadline: Deadline) -> None:
        """Wait until a service of Ray accepts connections; `ray start` itself returns seconds later.

        Raises RayNotStarted at the deadline.
        """
        if not await until(lambda: address.answers(host, port), deadline=deadline):
            raise self._not_started(f"did not answer at {address.join(host, port)} in {deadline.timeout_s:.0f} s")

    def formed(self) -> None:
        """Record that the node has joined: from now on an end of Ray is a loss, not a failed start."""
        self._formed = True

    def checked(self) -> None:
        """Start the helpers that were delayed until the cluster is checked."""
        if self._start_lock is not None:
            self._start_lock.release()

    async def watch(self) -> None:
        """Wait until Ray or its raylet ends. Raises RayNotStarted or ClusterLost.

        `ray start --block` takes a raylet that was ended by TERM for a graceful stop and continues without it, so the
        raylet is watched separately. And until it has started everything it does not check its children: for a GCS that
        has ended it would wait as long as for a network that is down (environment.py).
        """
        orphan = polls = 0
        while self._process.running:
            orphan = process_tree.reap_orphans(Process.started, orphan)
            ended = set() if self._formed else process_tree.uncollected(self._process.pid) & _DAEMONS
            polls = polls + 1 if ended else 0
            if polls == _ENDED_POLLS:
                raise self._failure(f"lost a process that it had started: {', '.join(sorted(ended))} ended")
            if self._formed and not self._has_raylet():
                raise self._failure("its raylet is gone")
            await asyncio.sleep(_POLL_S)
        code = await self._process.ended()
        raise self._failure(f"`ray start --block` ended with {code}")

    def _has_raylet(self) -> bool:
        if self._raylet is None or not process_tree.lives(self._raylet, _RAYLET):
            self._raylet = next((pid for pid, name in process_tree.descendants().items() if name == _RAYLET), None)
        return self._raylet is not None

    def _failure(self, what: str) -> NodeError:
        if not self._formed:
            return self._not_started(what.replace("`ray start --block` ", ""))
        return ClusterLost(
            f"Ray on {self._host} is gone: {what}. {self._quote()}",
            fix="Look for an OOM kill, and into that node's ray/ folder (raylet.out, gcs_server.out).",
            host=self._host,
        )

    def _not_started(self, what: str) -> RayNotStarted:
        return RayNotStarted(
            f"`ray start` on {self._host} {what}. {self._quote()}",
            fix="Read the output of `ray start` above, and Ray's logs; VERLJOB_RAY_TIMEOUT_S gives it longer.",
            host=self._host,
        )

    def _quote(self) -> str:
        lines = [" ".join(line.split()) for line in self._process.last_lines if _matters(line)][-_QUOTED_LINES:]
        return f"Its last lines: {' | '.join(lines)}" if lines else "It printed nothing about it."


def _matters(line: str) -> bool:
    """Return whether a line is not routine: `ray start` prints 30 lines on how to use a cluster, as our banner does."""
    return any(map(str.isalpha, line)) and not _ROUTINE.search(line)


def _print(line: str) -> None:
    if _matters(line):
        print(f"    ray: {line}", flush=True)  # noqa: T201
