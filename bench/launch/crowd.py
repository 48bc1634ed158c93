"""A Slurm cluster of many nodes on one machine, with a stand-in for Ray, for growth.py."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slurm.testbed.compose import wait_until

FOLDER = Path(__file__).resolve().parent
CHECKOUT = FOLDER.parents[1]
HOME = "/home/submitter"
SITE, WORK = f"{HOME}/ray", f"{HOME}/verljob"
SUBMITTER = "submitter"
FLAGS = ["--ntasks-per-node=1", "--cpus-per-task=4", "--mem=8G"]
OUTPUT = "job-{job}.out"
LAUNCH_S = 200
# Prints the line of the check, or the verdict. `tail` waits with inotify, so that nothing polls while a launch runs.
FOLLOW = """pattern=$1 && shift
exec 3< <(exec tail --quiet --lines=+1 --follow=name --retry "$@" 2> /dev/null)
follower=$!
grep --max-count=1 -e "$pattern" -e '^verdict: ' <&3
kill "$follower" """
# Compiles the modules of the checkout, as an image does.
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
    """Seconds from sbatch to the check, and CPU seconds of the cluster and RPCs to slurmctld in that time."""

    seconds: float
    cpu_s: float
    rpcs: Mapping[str, int]


class LaunchFailed(Exception):
    """A launch ended without its check."""


class Completed(Protocol):
    """A command that has ended."""

    @property
    def stdout(self) -> str: ...


class Machine(Protocol):
    """Runs the cluster: container.py or root.py. ``run`` and ``put`` are as in slurm/testbed/hosts.py."""

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str = ...,
        folder: str = ...,
        environment: Mapping[str, str] | None = ...,
        timeout_s: float = ...,
        check: bool = ...,
    ) -> Completed: ...

    def put(self, sources: Iterable[Path], folder: str, *, user: str = ...) -> None: ...

    def daemon_log(self) -> str: ...

    def cpu_s(self) -> float: ...

    def down(self) -> None: ...


class Crowd:
    """A cluster of ``nodes`` nodes on a machine, and launches on it. ``ray`` are the stand-in's settings."""

    def __init__(self, machine: Machine, nodes: int, ray: Mapping[str, str]) -> None:
        self.host, self.nodes = machine, nodes
        self._ray = dict(ray)

    def wait_ready(self) -> None:
        """Wait until every node accepts jobs, and install this checkout, a Python and the stand-in."""
        if not wait_until(self._idle, 60):
            raise LaunchFailed(f"not all of {self.nodes} nodes are idle:\n{self.host.daemon_log()}")
        scripts = [FOLDER / "containers.sh", FOLDER / "guide.sh"]
        self.host.put([CHECKOUT / "slurm", CHECKOUT / "entrypoints", *scripts], WORK, user=SUBMITTER)
        self.host.put([FOLDER / "standin_ray.py"], HOME, user=SUBMITTER)
        self.host.run(["bash", "-euc", INSTALL, "install", SITE], user=SUBMITTER, folder=HOME)

    def launch_ours(self, nodes: int) -> Launch:
        """Run `sbatch slurm/launch.sh cluster`, until the head's event that an actor has run on every node."""
        settings = {"VERLJOB_RUNTIME": "bare", "VERLJOB_IMAGE": SITE, "VERLJOB_PLATFORM": "cpu"}
        events, end = "verljob/{job}/attempt-1/events.jsonl", '"phase": "cluster", "event": "end"'
        return self._launch(nodes, ["slurm/launch.sh", "cluster"], settings, (events, end, '"time": '))

    def launch_guide(self, nodes: int) -> Launch:
        """Run `sbatch guide.sh`, until the time that it prints after CHECKED; its containers start at once."""
        return self._launch(nodes, ["guide.sh"], {"BENCH_IMAGE": SITE}, (OUTPUT, "^CHECKED ", "CHECKED "))

    def _launch(self, nodes: int, script: list[str], settings: dict[str, str], check: tuple[str, str, str]) -> Launch:
        """Launch until the check: ``check`` is its file, the pattern of its line, and the text before its time."""
        file, pattern, before = check
        sbatch = ["sbatch", "--parsable", f"--nodes={nodes}", *FLAGS, f"--output={OUTPUT.format(job='%j')}", *script]
        self.host.run(["sdiag", "--reset"])
        began, cpu_s = time.time(), self.host.cpu_s()
        submitted = self.host.run(sbatch, user=SUBMITTER, folder=WORK, environment={**settings, **self._ray})
        job = submitted.stdout.strip()
        files = sorted({f"{WORK}/{name.format(job=job)}" for name in (file, OUTPUT)})
        follow = ["bash", "-c", FOLLOW, "follow", pattern, *files]
        line = self.host.run(follow, timeout_s=LAUNCH_S, check=False).stdout
        cpu_s, rpcs = self.host.cpu_s() - cpu_s, self._rpcs()
        self.host.run(["scancel", job], check=False)
        checked = re.search(f"{before}([0-9.]+)", line)
        if not wait_until(self._idle, LAUNCH_S) or checked is None:
            raise LaunchFailed(f"job {job} on {nodes} nodes was not checked, or did not end: {line}")
        return Launch(float(checked[1]) - began, cpu_s, rpcs)

    def _idle(self) -> bool:
        """Whether every node is idle; a node that is completing is mixed, or has a suffix behind its state."""
        states = self.host.run(["sinfo", "--noheader", "--format=%D %t"], check=False).stdout
        return states.split() == [str(self.nodes), "idle"]

    def _rpcs(self) -> dict[str, int]:
        """Count the messages by type since the last reset, without sdiag's own."""
        report = self.host.run(["sdiag"]).stdout
        by_type = report[report.index("by message type") : report.index("by user")]
        counts = {name: int(count) for name, count in re.findall(r"^\s+(\w+)\s.*count:(\d+)", by_type, re.MULTILINE)}
        return {name: count for name, count in counts.items() if name != "REQUEST_STATS_INFO"}
