"""The rehearsal cluster: start, copy a checkout and an image to it, submit, remove."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import docker
from docker.models.containers import Container

from slurm.errors import ClusterNotReady, CommandFailed, JobUnfinished, SlurmError
from slurm.testbed import compose
from slurm.testbed.hosts import Host, Output
from slurm.testbed.jobs import Job
from slurm.testbed.waiting import wait_until

MAX_NODES = 8
ANSWER_S = 20
END = "=end-of-answer="
# What a launch needs of a checkout: the shell that Slurm starts, and nothing that a node could not run.
CHECKOUT_PARTS = ("slurm", "entrypoints")
_CHECKOUT = Path(__file__).parents[2]


class Cluster:
    """A login node, a registry and up to eight compute nodes under one name.

    Two clusters of different names do not meet, but for the registry's volume, which outlives both.
    """

    def __init__(self, nodes: int = 2, *, name: str | None = None) -> None:
        if not 1 <= nodes <= MAX_NODES:
            raise SlurmError(f"{nodes} nodes were asked for; the rehearsal cluster has 1 to {MAX_NODES}.")
        self.name = name or os.environ.get("VERLJOB_TESTBED") or "verljob"
        self.nodes = [f"n{index}" for index in range(1, nodes + 1)]
        self._docker = docker.from_env(timeout=compose.PATIENCE_S)

    @classmethod
    def running(cls, *, name: str | None = None) -> Cluster:
        """Return the cluster that runs under ``name``; raises ClusterNotReady where there is none."""
        cluster = cls(MAX_NODES, name=name)
        cluster.nodes = [node for node in cluster.nodes if cluster._containers(node)]
        if not cluster.nodes:
            raise ClusterNotReady(f"No rehearsal cluster {cluster.name!r} runs. Start one: invoke testbed.up --nodes 2")
        return cluster

    # --- its life -----------------------------------------------------------------------------------------------

    def up(self, base: str, *, timeout_s: float = 120) -> None:
        """Build the cluster's images on ``base``, a Debian 12, start it and wait until every node takes jobs."""
        compose.build_images(base)
        compose.make_volumes()
        compose.compose(self.name, compose.up_words(len(self.nodes)), nodes=len(self.nodes))
        self.wait_ready(timeout_s=timeout_s)

    def wait_ready(self, *, timeout_s: float) -> None:
        """Wait until Slurm calls every node idle, their engines answer and the registry listens; names who is not."""
        missing: list[str] = []

        def whole() -> bool:
            missing[:] = self._not_ready()
            return not missing

        if not wait_until(whole, timeout_s):
            raise ClusterNotReady(
                f"After {timeout_s:.0f} s the rehearsal cluster {self.name!r} still waits for: {', '.join(missing)}. "
                f"Their own words: docker logs, for the containers of project {self.name!r}."
            )

    def down(self, *, caches: bool = False) -> None:
        """Remove containers, networks and volumes; the images and what was pushed stay, unless ``caches`` go too."""
        compose.compose(self.name, compose.down_words(), nodes=len(self.nodes))
        if caches:
            compose.remove_caches()

    # --- its machines -------------------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """Return ``login``, ``registry`` or a node by its name."""
        found = self._containers(name)
        if not found:
            raise ClusterNotReady(f"The rehearsal cluster {self.name!r} has no {name!r}; its nodes: {self.nodes}.")
        return Host(name, found[0], self._docker.api)

    def shell(self, host: str, user: str) -> list[str]:
        """Return the command that opens a terminal on a host."""
        container = self.host(host).container
        return [compose.docker_command(), "exec", "-it", "--user", user, f"{container.id}", "bash", "--login"]

    def sync_checkout(self, *, user: str = "submitter") -> str:
        """Copy what a launch needs of this checkout into the account's home, which all nodes see; return where."""
        folder = f"/home/{user}/verljob"
        self.host("login").run(["rm", "-rf", *(f"{folder}/{part}" for part in CHECKOUT_PARTS)], user=user)
        self.host("login").put([_CHECKOUT / part for part in CHECKOUT_PARTS], folder, user=user)
        return folder

    def push(self, image: str) -> str:
        """Push an image of this machine's engine and return the reference by which the nodes pull it."""
        remote = f"{self.registry()}/{image}"
        client = compose.docker_command()
        compose.run([client, "tag", image, remote], {})
        try:
            compose.run([client, "push", "--quiet", remote], {})
        finally:
            compose.run([client, "rmi", "--no-prune", remote], {})
        return f"registry:5000/{image}"

    def registry(self) -> str:
        """Return the address at which this machine reaches the nodes' `registry:5000`."""
        ports = self.host("registry").container.ports["5000/tcp"]
        if not ports:
            raise ClusterNotReady(f"The registry of {self.name!r} publishes no port on this machine.")
        return f"127.0.0.1:{ports[0]['HostPort']}"

    # --- its jobs -----------------------------------------------------------------------------------------------

    def sbatch(
        self,
        words: Sequence[str],
        *,
        user: str = "submitter",
        folder: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Submit a job from the login node, by default from the account's checkout, and return its number."""
        argv = ["sbatch", "--parsable", *words]
        folder = folder or f"/home/{user}/verljob"
        output = self.host("login").run(argv, user=user, folder=folder, environment=environment)
        return int(output.stdout.split(";")[0])

    def job(self, job: int) -> Job:
        """Return what Slurm knows of a job; it forgets an ended one after an hour (MinJobAge in slurm.conf)."""
        return Job.parse(self._ask([*Job.LINE.split(), str(job)]))

    def wait_job(self, job: int, *, timeout_s: float) -> Job:
        """Wait for the end of a job; at the deadline it is left as it is."""
        if not wait_until(lambda: self.job(job).ended, timeout_s):
            raise JobUnfinished(f"Job {job} is still {self.job(job).state} after {timeout_s:.0f} s.")
        return self.job(job)

    def read(self, path: str) -> str:
        """Return a file of the /home that all nodes share; what is not there yet is empty."""
        return self._ask(["bash", "-c", '[[ ! -e $1 ]] || cat -- "$1"', "read", path])

    # --- inside -------------------------------------------------------------------------------------------------

    def _containers(self, service: str) -> list[Container]:
        labels = [f"com.docker.compose.project={self.name}", f"com.docker.compose.service={service}"]
        return self._docker.containers.list(filters={"label": labels})

    def _ask(self, argv: Sequence[str]) -> str:
        """Ask the login node what may be asked twice.

        On a busy machine Slurm's controller may not answer in time, and Docker 20.10 may close a command's output
        before all of it arrived: an answer counts when its end is there.
        """
        said: list[Output] = []

        def answered() -> bool:
            said.append(self.host("login").run(["bash", "-c", f'"$@" && printf {END}', "ask", *argv], check=False))
            return said[-1].code == 0 and said[-1].stdout.endswith(END)

        if not wait_until(answered, ANSWER_S):
            raise CommandFailed(argv, said[-1].code, said[-1].stdout + said[-1].stderr, where="login")
        return said[-1].stdout[: -len(END)]

    def _not_ready(self) -> list[str]:
        try:
            seen = self.host("login").run(["sinfo", "--noheader", "--Node", "--format=%N %T"], timeout_s=10).stdout
        except (ClusterNotReady, CommandFailed):
            return ["login"]
        idle = {line.split()[0] for line in seen.splitlines() if line.split()[1:] == ["idle"]}
        without_engine = [
            node
            for node in self.nodes
            if node in idle and self.host(node).run(["docker", "info"], timeout_s=10, check=False).code
        ]
        return [node for node in self.nodes if node not in idle] + without_engine


def handed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a job gets from whoever submits it here, as it would from a shell on the login node."""
    ours = ("VERLJOB_DOCKER", "VERLJOB_TESTBED")
    return {name: value for name, value in environment.items() if name.startswith("VERLJOB_") and name not in ours}
