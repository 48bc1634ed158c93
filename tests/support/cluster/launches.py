"""A launch on the rehearsal cluster: submit it, wait, read its files, list what it left on the nodes."""

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
STEPS = 8
"""Steps of verl's own training: enough that it is not at the last step when it is preempted after the first."""
LAST_LINES = 40
PROCESSES = "[v]erl_node|[g]cs_server|[r]aylet|[r]ay::|[l]aunch.sh|[n]ode.sh|[d]ocker run"
"""Pattern of `pgrep -f` for the processes that a launch starts; it does not match pgrep's own command line."""


@dataclass(frozen=True)
class Launch:
    """A submitted job of launch.sh, and one of its attempts."""

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

    def with_attempt(self, number: int) -> Launch:
        """Return the same job with the run directory of another attempt."""
        return replace(self, attempt=number)

    def wait(self, timeout_s: float) -> Job:
        return self.cluster.wait_job(self.id, timeout_s=timeout_s)

    def output(self) -> str:
        path = self.cluster.job(self.id).output
        return self.read(path, missing="")

    def end_of_output(self) -> str:
        """Return the last lines of the output and Slurm's record, for a test's message: pytest cuts its start."""
        return "\n".join(["", *self.output().splitlines()[-LAST_LINES:], str(self.cluster.job(self.id))])

    def read(self, path: str, *, missing: str | None = None) -> str:
        """Return the text of a file on the login node; ``path`` is relative to the run directory."""
        output = self.cluster.host("login").run(["cat", path], folder=self._run_dir_or_root(), check=missing is None)
        return output.stdout if output.code == 0 else str(missing)

    def _run_dir_or_root(self) -> str:
        exists = self.cluster.host("login").run(["test", "-d", self.run_dir], check=False)
        return self.run_dir if exists.code == 0 else "/"

    def result(self) -> dict[str, Any]:
        return dict(json.loads(self.read("result.json")))

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.read(name, missing="").splitlines()]

    def wait_for(self, text: str, timeout_s: float) -> None:
        wait_until(
            lambda: text in self.output(), timeout_s, f"{text!r} in the output of job {self.id}", self.end_of_output
        )

    def cancel(self) -> None:
        self.cluster.host("login").run(["scancel", str(self.id)])


def submit(
    cluster: Cluster,
    arguments: Sequence[str],
    *,
    flags: Sequence[str] = ("--nodes=2", "--gpus-per-node=1"),
    environment: Mapping[str, str] | None = None,
    folder: str = WORK,
    script: str = f"{HOME}/slurm/launch.sh",
    user: str = "submitter",
) -> Launch:
    """Run `sbatch FLAGS launch.sh ARGUMENTS` on the login node, in ``folder``, as ``user``."""
    job = cluster.sbatch([*FLAGS, *flags, script, *arguments], user=user, folder=folder, environment=environment)
    return Launch(cluster, job, folder, user)


def saved_step(launch: Launch) -> int:
    """Return the step of the last complete checkpoint of an attempt, 0 for none."""
    return int(launch.read("checkpoint", missing="0"))


def leftovers(cluster: Cluster) -> dict[str, str]:
    """List the containers, processes and node-local folders that jobs left on the nodes, by kind and node."""
    commands = {
        "containers": ["docker", "ps", "--all", "--quiet"],
        "processes": ["pgrep", "--ignore-ancestors", "-af", PROCESSES],
        "folders": ["find", "/tmp", "/dev/shm", "-maxdepth", "1", "-name", "*verljob-[0-9n]*"],  # noqa: S108
    }
    listed = {}
    for node in cluster.nodes:
        for kind, argv in commands.items():
            output = cluster.host(node).run(argv, check=False).stdout.strip()
            listed.update({f"{kind} of {node}": output} if output else {})
    return listed


def wait_until(
    condition: Callable[[], bool], timeout_s: float, awaited: str, details: Callable[[], object] = lambda: ""
) -> None:
    """Poll until ``condition`` holds; at the deadline fail with the name of the ``awaited`` event and ``details()``."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"no {awaited} after {timeout_s:.0f} s\n{details()}"
        time.sleep(0.25)
