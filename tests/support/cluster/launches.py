"""One launch on the rehearsal cluster, and what a test asks of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slurm.testbed import Cluster, Job

HOME = "/home/submitter/verljob"
WORK = "/home/submitter/work"
FLAGS = ("--ntasks-per-node=1", "--cpus-per-task=8", "--mem=16G", "--time=30")
STEPS = 4
"""Of verl's own training: so many that none is the last one when it is told, after the first, to end."""
LAST_LINES = 40
OURS = "[v]erl_node|[g]cs_server|[r]aylet|[r]ay::|[l]aunch.sh|[n]ode.sh|[d]ocker run"
"""Processes that a launch starts, as `pgrep -f` finds them, and not the command line of the search itself."""


@dataclass(frozen=True)
class Launch:
    """A submitted job of launch.sh."""

    cluster: Cluster
    id: int
    folder: str
    user: str = "submitter"
    attempt: int = 1

    @property
    def job_dir(self) -> str:
        return f"{self.folder}/verljob/{self.id}"

    @property
    def run_dir(self) -> str:
        return f"{self.job_dir}/attempt-{self.attempt}"

    def of_attempt(self, number: int) -> Launch:
        """The same job, whose run directory is that of another attempt."""
        return replace(self, attempt=number)

    def wait(self, timeout_s: float) -> Job:
        return self.cluster.wait_job(self.id, timeout_s=timeout_s)

    def output(self) -> str:
        path = self.cluster.job(self.id).output
        return self.read(path, missing="")

    def last_words(self) -> str:
        """The end of its output and what Slurm says, for a test's message: reports are cut from the front."""
        return "\n".join(["", *self.output().splitlines()[-LAST_LINES:], str(self.cluster.job(self.id))])

    def read(self, path: str, *, missing: str | None = None) -> str:
        """A file of the login node; ``path`` is taken from the run directory."""
        output = self.cluster.host("login").run(["cat", path], folder=self.run_folder(), check=missing is None)
        return output.stdout if output.code == 0 else str(missing)

    def run_folder(self) -> str:
        found = self.cluster.host("login").run(["test", "-d", self.run_dir], check=False)
        return self.run_dir if found.code == 0 else "/"

    def result(self) -> dict[str, Any]:
        return dict(json.loads(self.read("result.json")))

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.read(name, missing="").splitlines()]

    def wait_for(self, text: str, timeout_s: float) -> None:
        wait_until(
            lambda: text in self.output(), timeout_s, f"{text!r} in the output of job {self.id}", self.last_words
        )

    def cancel(self) -> None:
        self.cluster.host("login").run(["scancel", str(self.id)])


def submit(
    cluster: Cluster,
    words: Sequence[str],
    *,
    flags: Sequence[str] = ("--nodes=2", "--gpus-per-node=1"),
    environment: Mapping[str, str] | None = None,
    folder: str = WORK,
    script: str = f"{HOME}/slurm/launch.sh",
    user: str = "submitter",
) -> Launch:
    """`sbatch FLAGS launch.sh WORDS` from the login node, in ``folder``, as ``user``."""
    job = cluster.sbatch([*FLAGS, *flags, script, *words], user=user, folder=folder, environment=environment)
    return Launch(cluster, job, folder, user)


def saved(launch: Launch) -> int:
    """The step that an attempt noted as saved and whole, 0 for none."""
    return int(launch.read("checkpoint", missing="0"))


def leftovers(cluster: Cluster) -> dict[str, str]:
    """What a job left on the nodes: containers, processes, node-local folders; empty where there is nothing."""
    commands = {
        "containers": ["docker", "ps", "--all", "--quiet"],
        "processes": ["pgrep", "--ignore-ancestors", "-af", OURS],
        "folders": ["find", "/tmp", "/dev/shm", "-maxdepth", "1", "-name", "*verljob-[0-9n]*"],  # noqa: S108
    }
    found = {}
    for node in cluster.nodes:
        for what, argv in commands.items():
            seen = cluster.host(node).run(argv, check=False).stdout.strip()
            found.update({f"{what} of {node}": seen} if seen else {})
    return found


def wait_until(done: Callable[[], bool], timeout_s: float, what: str, more: Callable[[], object] = lambda: "") -> None:
    """Poll until ``done``; fails with ``what`` was waited for and what ``more`` knows."""
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline, f"no {what} after {timeout_s:.0f} s\n{more()}"
        time.sleep(0.25)
