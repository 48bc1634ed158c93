"""Runs `ray start --block` as a child process: start, readiness, watch."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from verl_node.errors import ClusterLost, NodeError, RayNotStarted
from verl_node.network import address
from verl_node.ray_node import deferred_start
from verl_node.supervision import process_tree
from verl_node.supervision.child import Process
from verl_node.supervision.waiting import Deadline, until

_LOOK_S = 0.5
_RAYLET = "raylet"
_DAEMONS = {_RAYLET, "gcs_server"}
# How often in a row a daemon is seen ended before that is said for `ray start`, which tells more about it, within 2 s.
_ENDED_LOOKS = 8
# What `ray start` says at length; of a process that died it also shows the end of its C++ log.
_ROUTINE = re.compile(r"\b(INFO|SUCC)\b|^\[\S+ \S+ [IW] \d+ \d+\] |\b(total \(\d+ active\)|mean = |Event stats:)")
_TOLD_LINES = 3


def require_free(own_address: str, port: int, host: str) -> None:
    """Find somebody else on the GCS port, who would be taken for the GCS. Raises RayNotStarted."""
    if address.answers(own_address, port):
        raise RayNotStarted(
            f"The port {port} for Ray's GCS was taken on {host} by another process, after it had been found free.",
            fix="Start the job again; who listens there: `ss -lptn` on that node. VERLJOB_PORT_RANGE moves the ports.",
            host=host,
        )


class Ray:
    """Ray on this node: one `ray start --block` with a raylet, and on the head the GCS, below it."""

    def __init__(self, process: Process, host: str) -> None:
        self._process = process
        self._host = host
        self._formed = False
        self._raylet: int | None = None
        self._standby: deferred_start.Standby | None = None

    @classmethod
    async def prime(cls, env: Mapping[str, str], *, host: str) -> Ray:
        """Have a process import Ray, which is to start as soon as it is known with what."""
        argv = ["python3", "-m", "verl_node.ray_node.start"]
        return cls(await Process.start("ray start", argv, env, on_line=_say, waits=True), host)

    def start(self, argv: Sequence[str], env: Mapping[str, str], temp_dir: Path) -> None:
        """Start it by this `ray start` command, with its files in ``temp_dir``; how that goes, `watch` tells."""
        self._standby = deferred_start.Standby(temp_dir)
        self._process.order(argv=list(argv), env={**env, deferred_start.VARIABLE: str(self._standby.path)})

    async def answering(self, host: str, port: int, deadline: Deadline) -> None:
        """Wait until a service of Ray takes connections; `ray start` itself returns seconds later.

        Raises RayNotStarted at the deadline.
        """
        if not await until(lambda: address.answers(host, port), deadline=deadline):
            raise self._not_started(f"did not answer at {address.join(host, port)} in {deadline.timeout_s:.0f} s")

    def formed(self) -> None:
        """Note that the node was seen in the cluster: from now on an end of Ray is a loss, not a failed start."""
        self._formed = True

    def checked(self) -> None:
        """Have what stood by start, now that nobody waits for the cluster any more."""
        if self._standby is not None:
            self._standby.release()

    async def watch(self) -> None:
        """Wait until Ray ends here or its raylet is gone. Raises RayNotStarted or ClusterLost.

        `ray start --block` takes a raylet that was ended by TERM for a graceful stop and goes on without it, so the
        raylet is looked for by itself. And until it has started everything it does not look at what it started: for a
        GCS that has ended it would wait as long as for a network that is gone (environment.py).
        """
        orphan = looks = 0
        while self._process.running:
            orphan = process_tree.reap_orphans(Process.started, orphan)
            ended = set() if self._formed else process_tree.uncollected(self._process.pid) & _DAEMONS
            looks = looks + 1 if ended else 0
            if looks == _ENDED_LOOKS:
                raise self._gone(f"lost what it had started: {', '.join(sorted(ended))} ended")
            if self._formed and not self._has_raylet():
                raise self._gone("its raylet is gone")
            await asyncio.sleep(_LOOK_S)
        code = await self._process.ended()
        raise self._gone(f"`ray start --block` ended with {code}")

    def _has_raylet(self) -> bool:
        if self._raylet is None or not process_tree.lives(self._raylet, _RAYLET):
            self._raylet = next((pid for pid, name in process_tree.descendants().items() if name == _RAYLET), None)
        return self._raylet is not None

    def _gone(self, what: str) -> NodeError:
        if not self._formed:
            return self._not_started(what.replace("`ray start --block` ", ""))
        return ClusterLost(
            f"Ray on {self._host} is gone: {what}. {self._last_words()}",
            fix="Look for an OOM kill, and into that node's ray/ folder (raylet.out, gcs_server.out).",
            host=self._host,
        )

    def _not_started(self, what: str) -> RayNotStarted:
        return RayNotStarted(
            f"`ray start` on {self._host} {what}. {self._last_words()}",
            fix="Read what `ray start` said above, and Ray's logs; VERLJOB_RAY_TIMEOUT_S gives it longer.",
            host=self._host,
        )

    def _last_words(self) -> str:
        lines = [" ".join(line.split()) for line in self._process.last_lines if _matters(line)][-_TOLD_LINES:]
        return f"Its last lines: {' | '.join(lines)}" if lines else "It said nothing of it."


def _matters(line: str) -> bool:
    """Tell what is not routine: `ray start` says in 30 lines how to use a cluster, which our own lines do better."""
    return any(map(str.isalpha, line)) and not _ROUTINE.search(line)


def _say(line: str) -> None:
    if _matters(line):
        print(f"    ray: {line}", flush=True)  # noqa: T201
