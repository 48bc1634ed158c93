"""A Slurm cluster of many nodes on one machine, with a stand-in for Ray, for growth.py."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slurm.testbed.compose import wait_until

FOLDER = Path(__file__).parent
CHECKOUT = FOLDER.parent
HOME = "/home/submitter"
SITE, WORK = f"{HOME}/ray", f"{HOME}/verljob"
SUBMITTER = "submitter"
FLAGS = ["--ntasks-per-node=1", "--cpus-per-task=4", "--mem=8G"]
OUTPUT = "job-{job}.out"
LAUNCH_S = 200
# Prints the line of the check, or the job's last one. The kernel tells of new lines: nothing polls while a launch runs.
FOLLOW = """pattern=$1 && shift
exec 3< <(exec tail --quiet --lines=+1 --follow=name --retry "$@" 2> /dev/null)
follower=$!
grep --max-count=1 -e "$pattern" -e '^verdict: ' <&3
kill "$follower" """
# The checkout's modules are compiled, as in an image.
INSTALL = r"""python3 -m venv --without-pip --system-site-packages "$1"
site=$("$1/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mv standin_ray.py "$site/ray.py"
mkdir "$site/ray-2.60.0.dist-info"
printf 'Name: ray\nVersion: 2.60.0\n' > "$site/ray-2.60.0.dist-info/METADATA"
printf '#!/bin/sh\nexec %s/bin/python3 -m ray "$@"\n' "$1" > "$1/bin/ray"
chmod +x "$1/bin/ray"
python3 -m compileall -q "$site" verljob"""


@dataclass(frozen=True)
class Launch:
    """From sbatch to the check: seconds, CPU seconds of the whole cluster, and RPCs to slurmctld."""

    seconds: float
    cpu_s: float
    rpcs: Mapping[str, int]


class LaunchFailed(Exception):
    """A launch that did not come to its check."""


class Said(Protocol):
    """What a command said."""

    @property
    def stdout(self) -> str: ...


class Machine(Protocol):
    """Where the cluster is: container.py or root.py. ``run`` and ``put`` are as in slurm/testbed/hosts.py."""

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str = ...,
        folder: str = ...,
        environment: Mapping[str, str] | None = ...,
        timeout_s: float = ...,
        check: bool = ...,
    ) -> Said: ...

    def put(self, sources: Iterable[Path], folder: str, *, user: str = ...) -> None: ...

    def said(self) -> str: ...

    def cpu_s(self) -> float: ...

    def down(self) -> None: ...


class Crowd:
    """A cluster of ``nodes`` nodes on a machine, and what is done on it. ``ray`` are the stand-in's settings."""

    def __init__(self, machine: Machine, nodes: int, ray: Mapping[str, str]) -> None:
        self.host, self.nodes = machine, nodes
        self._ray = dict(ray)

    def wait_ready(self) -> None:
        """Wait until every node takes jobs, and install this checkout, a Python and the stand-in."""
        if not wait_until(self._idle, 60):
            raise LaunchFailed(f"not all of {self.nodes} nodes are idle:\n{self.host.said()}")
        by_hand = [FOLDER / "by_hand.sh", FOLDER / "guide.sh"]
        self.host.put([CHECKOUT / "slurm", CHECKOUT / "entrypoints", *by_hand], WORK, user=SUBMITTER)
        self.host.put([FOLDER / "standin_ray.py"], HOME, user=SUBMITTER)
        self.host.run(["bash", "-euc", INSTALL, "install", SITE], user=SUBMITTER, folder=HOME)

    def ours(self, nodes: int) -> Launch:
        """`sbatch slurm/launch.sh cluster`, until the head's event that an actor has run on every node."""
        environment = {"VERLJOB_RUNTIME": "bare", "VERLJOB_IMAGE": SITE, "VERLJOB_PLATFORM": "cpu"}
        events, end = "verljob/{job}/attempt-1/events.jsonl", '"phase": "cluster", "event": "end"'
        return self._launch(nodes, ["slurm/launch.sh", "cluster"], environment, (events, end, '"time": '))

    def guide(self, nodes: int) -> Launch:
        """`sbatch bench/launch/guide.sh`, until the moment that it calls CHECKED; its containers take no time."""
        return self._launch(nodes, ["guide.sh"], {"BENCH_IMAGE": SITE}, (OUTPUT, "^CHECKED ", "CHECKED "))

    def _launch(self, nodes: int, words: list[str], environment: dict[str, str], check: tuple[str, str, str]) -> Launch:
        """``check``: the file that tells of it, the pattern of its line, and what stands there before its time."""
        file, end, before = check
        sbatch = ["sbatch", "--parsable", f"--nodes={nodes}", *FLAGS, f"--output={OUTPUT.format(job='%j')}", *words]
        self.host.run(["sdiag", "--reset"])
        began, cpu_s = time.time(), self.host.cpu_s()
        submitted = self.host.run(sbatch, user=SUBMITTER, folder=WORK, environment={**environment, **self._ray})
        job = submitted.stdout.strip()
        files = sorted({f"{WORK}/{name.format(job=job)}" for name in (file, OUTPUT)})
        seen = self.host.run(["bash", "-c", FOLLOW, "follow", end, *files], timeout_s=LAUNCH_S, check=False).stdout
        cpu_s, rpcs = self.host.cpu_s() - cpu_s, self._rpcs()
        self.host.run(["scancel", job], check=False)
        checked = re.search(f"{before}([0-9.]+)", seen)
        if not wait_until(self._idle, LAUNCH_S) or checked is None:
            raise LaunchFailed(f"job {job} on {nodes} nodes was not checked, or did not end: {seen}")
        return Launch(float(checked[1]) - began, cpu_s, rpcs)

    def _idle(self) -> bool:
        """Whether every node takes jobs; one that is completing is mixed, or has a mark behind its state."""
        states = self.host.run(["sinfo", "--noheader", "--format=%D %t"], check=False).stdout
        return states.split() == [str(self.nodes), "idle"]

    def _rpcs(self) -> dict[str, int]:
        """Messages by type since the last reset, but for the question itself."""
        told = self.host.run(["sdiag"]).stdout
        told = told[told.index("by message type") : told.index("by user")]
        found = {name: int(count) for name, count in re.findall(r"^\s+(\w+)\s.*count:(\d+)", told, re.MULTILINE)}
        return {name: count for name, count in found.items() if name != "REQUEST_STATS_INFO"}
