"""The rehearsal cluster: start, copy a checkout and an image to it, submit jobs, remove."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.models.containers import Container

from slurm.errors import ClusterNotReady, CommandFailed, JobUnfinished, SlurmError
from slurm.testbed import compose
from slurm.testbed.compose import wait_until
from slurm.testbed.hosts import Host, Output

MAX_NODES = 8
ANSWER_S = 20
END = "=end-of-answer="
# The parts of a checkout that a launch needs on the cluster.
CHECKOUT_PARTS = ("slurm", "entrypoints")
_CHECKOUT = Path(__file__).parents[2]
# Slurm's base states that a job does not leave (man scontrol, JOB STATES).
ENDED = frozenset(
    ["BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"]
)


@dataclass(frozen=True)
class Job:
    """A job as ``scontrol show job`` prints it."""

    id: int
    state: str
    code: int
    signal: int
    nodes: str
    output: str

    @property
    def ended(self) -> bool:
        """Whether the job has reached a final state."""
        return self.state in ENDED

    @classmethod
    def parse(cls, record: str) -> Job:
        """Parse the output of ``scontrol show job``.

        The job's name, its arguments and its comment may have words and lines that look like fields: only whole lines
        of Slurm's form count, the last of each.
        """

        def last(line: str) -> str:
            found = [match[1] for match in re.finditer(f"^{line}$", record, re.MULTILINE)]
            return found[-1] if found else ""

        code, signal = map(int, last(r"   Requeue=\d+ Restarts=.* ExitCode=(\d+:\d+)").split(":"))
        number, state = last(r"JobId=(\d+) .*"), last(r"   JobState=(\w+) Reason=.* Dependency=.*")
        nodes = last(r"   NodeList=(\S*)").replace("(null)", "")
        return cls(int(number), state, code, signal, nodes, last(r"   StdOut=(.*)"))


class Cluster:
    """A login node, a registry and up to eight compute nodes under one name.

    Clusters of different names share only the volume of the registry, which outlives them.
    """

    def __init__(self, nodes: int = 2, *, name: str | None = None) -> None:
        if not 1 <= nodes <= MAX_NODES:
            raise SlurmError(f"{nodes} nodes were requested; the rehearsal cluster has 1 to {MAX_NODES}.")
        self.name = name or os.environ.get("VERLJOB_TESTBED") or "verljob"
        self.nodes = [f"n{index}" for index in range(1, nodes + 1)]
        self._docker = docker.from_env(timeout=compose.CLIENT_TIMEOUT_S)

    @classmethod
    def running(cls, *, name: str | None = None) -> Cluster:
        """Return the cluster that runs under ``name``; raises ClusterNotReady if none does."""
        cluster = cls(MAX_NODES, name=name)
        cluster.nodes = [node for node in cluster.nodes if cluster._containers(node)]
        if not cluster.nodes:
            raise ClusterNotReady(f"No rehearsal cluster {cluster.name!r} runs. Start one: invoke testbed.up --nodes 2")
        return cluster

    # --- start and stop -----------------------------------------------------------------------------------------

    def up(self, base: str, *, timeout_s: float = 120) -> None:
        """Build the cluster's images on ``base``, start it and wait until every node accepts jobs.

        :param base: an image of Debian's release compose.debian(), as of debootstrap.
        """
        compose.build_images(base)
        compose.make_volumes()
        compose.compose(self.name, compose.up_arguments(len(self.nodes)), nodes=len(self.nodes))
        self.wait_ready(timeout_s=timeout_s)

    def wait_ready(self, *, timeout_s: float) -> None:
        """Wait until Slurm reports every node idle and their engines answer; raises ClusterNotReady."""
        missing: list[str] = []

        def is_complete() -> bool:
            missing[:] = self._not_ready()
            return not missing

        if not wait_until(is_complete, timeout_s):
            raise ClusterNotReady(
                f"After {timeout_s:.0f} s the rehearsal cluster {self.name!r} still waits for: {', '.join(missing)}. "
                f"See `docker logs` of the containers of project {self.name!r}."
            )

    def down(self, *, caches: bool = False) -> None:
        """Remove containers, networks and volumes; with ``caches`` also the images and the registry's content."""
        compose.compose(self.name, compose.down_arguments(), nodes=len(self.nodes))
        if caches:
            compose.remove_caches()

    # --- hosts --------------------------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """Return ``login``, ``registry`` or a node by its name."""
        containers = self._containers(name)
        if not containers:
            raise ClusterNotReady(f"The rehearsal cluster {self.name!r} has no {name!r}; its nodes: {self.nodes}.")
        return Host(name, containers[0], self._docker.api)

    def shell(self, host: str, user: str) -> list[str]:
        """Return the command that opens a terminal on a host."""
        container = self.host(host).container
        return [compose.docker_command(), "exec", "-it", "--user", user, f"{container.id}", "bash", "--login"]

    def sync_checkout(self, *, user: str = "submitter") -> str:
        """Copy this checkout into the account's home, which all nodes share; return the folder."""
        folder = f"/home/{user}/verljob"
        self.host("login").run(["rm", "-rf", *(f"{folder}/{part}" for part in CHECKOUT_PARTS)], user=user)
        self.host("login").put([_CHECKOUT / part for part in CHECKOUT_PARTS], folder, user=user)
        return folder

    def push(self, image: str) -> str:
        """Push an image of this machine's engine and return the reference for the nodes."""
        remote = f"{self.registry()}/{image}"
        client = compose.docker_command()
        compose.run([client, "tag", image, remote], {})
        try:
            compose.run([client, "push", "--quiet", remote], {})
        finally:
            compose.run([client, "rmi", "--no-prune", remote], {})
        return f"registry:5000/{image}"

    def registry(self) -> str:
        """Return the registry's address on this machine; the nodes use `registry:5000`."""
        ports = self.host("registry").container.ports["5000/tcp"]
        if not ports:
            raise ClusterNotReady(f"The registry of {self.name!r} publishes no port on this machine.")
        return f"127.0.0.1:{ports[0]['HostPort']}"

    # --- jobs ---------------------------------------------------------------------------------------------------

    def sbatch(
        self,
        arguments: Sequence[str],
        *,
        user: str = "submitter",
        folder: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Submit a job from the login node, by default from the account's checkout, and return its number."""
        argv = ["sbatch", "--parsable", *arguments]
        folder = folder or f"/home/{user}/verljob"
        output = self.host("login").run(argv, user=user, folder=folder, environment=environment)
        return int(output.stdout.split(";")[0])

    def job(self, job: int) -> Job:
        """Return a job as Slurm knows it; Slurm forgets an ended one after an hour (MinJobAge in slurm.conf)."""
        return Job.parse(self._query(["scontrol", "show", "job", str(job)]))

    def wait_job(self, job: int, *, timeout_s: float) -> Job:
        """Wait for the end of a job; raises JobUnfinished and leaves it running at the deadline."""
        if not wait_until(lambda: self.job(job).ended, timeout_s):
            raise JobUnfinished(f"Job {job} is still {self.job(job).state} after {timeout_s:.0f} s.")
        return self.job(job)

    def read(self, path: str) -> str:
        """Return a file of the shared /home; empty if it does not exist."""
        return self._query(["bash", "-c", '[[ ! -e $1 ]] || cat -- "$1"', "read", path])

    # --- inside -------------------------------------------------------------------------------------------------

    def _containers(self, service: str) -> list[Container]:
        labels = [f"com.docker.compose.project={self.name}", f"com.docker.compose.service={service}"]
        return self._docker.containers.list(filters={"label": labels})

    def _query(self, argv: Sequence[str]) -> str:
        """Run a command without side effects on the login node, again if necessary, and return its output.

        On a busy machine Slurm's controller may answer too late, and Docker 20.10 may close a command's output before
        all of it arrived. The output is complete when it ends with END.
        """
        outputs: list[Output] = []

        def is_complete() -> bool:
            outputs.append(self.host("login").run(["bash", "-c", f'"$@" && printf {END}', "query", *argv], check=False))
            return outputs[-1].code == 0 and outputs[-1].stdout.endswith(END)

        if not wait_until(is_complete, ANSWER_S):
            raise CommandFailed(argv, outputs[-1].code, outputs[-1].stdout + outputs[-1].stderr, where="login")
        return outputs[-1].stdout[: -len(END)]

    def _not_ready(self) -> list[str]:
        try:
            states = self.host("login").run(["sinfo", "--noheader", "--Node", "--format=%N %T"], timeout_s=10).stdout
        except (ClusterNotReady, CommandFailed):
            return ["login"]
        idle = {line.split()[0] for line in states.splitlines() if line.split()[1:] == ["idle"]}
        return [node for node in self.nodes if node not in idle or not self._has_engine(node)]

    def _has_engine(self, node: str) -> bool:
        return self.host(node).run(["docker", "info"], timeout_s=10, check=False).code == 0


def exported_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a job gets from this environment, as from a shell on the login node."""
    ours = ("VERLJOB_DOCKER", "VERLJOB_SOURCES", "VERLJOB_TESTBED", "VERLJOB_TESTBED_DEBIAN")
    return {name: value for name, value in environment.items() if name.startswith("VERLJOB_") and name not in ours}
