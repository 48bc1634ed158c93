"""Container, ports and listening sockets of a job on a node of the rehearsal cluster."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slurm.testbed import Cluster
from slurm.testbed.hosts import Output

LISTENING = "0A"  # include/net/tcp_states.h

# Prints the sockets of every process of a container, then the kernel's tables; a process may end meanwhile.
SOCKETS = """
for pid in $(docker top "$1" -o pid | tail -n +2); do
    find "/proc/$pid/fd" -lname 'socket:*' -printf '%l\\n' 2> /dev/null
done | sort -u
cat /proc/net/tcp /proc/net/tcp6
"""


@dataclass(frozen=True)
class Listener:
    """A listening socket; ``address`` as the kernel prints it, all zeros for every interface."""

    address: str
    port: int

    @property
    def everywhere(self) -> bool:
        return set(self.address) == {"0"}


@dataclass(frozen=True)
class Tenant:
    """The container of one job on one node."""

    cluster: Cluster
    node: str
    container: str

    @classmethod
    def find(cls, cluster: Cluster, node: str, job: int) -> Tenant:
        """Find the one container of a job on a node."""
        argv = ["docker", "ps", "--quiet", "--filter", f"label=verljob.job={job}"]
        containers = cluster.host(node).run(argv).stdout.split()
        assert len(containers) == 1, f"job {job} has {len(containers)} containers on {node}"
        return cls(cluster, node, containers[0])

    def inspect(self) -> dict[str, Any]:
        answer = self.cluster.host(self.node).run(["docker", "inspect", self.container]).stdout
        return dict(json.loads(answer)[0])

    def environ(self) -> dict[str, str]:
        return dict(line.partition("=")[::2] for line in self.inspect()["Config"]["Env"])

    def run(self, argv: Sequence[str], *, user: str = "root") -> Output:
        """Run a command in the container, as its account; ``user`` runs the Docker client."""
        return self.cluster.host(self.node).run(["docker", "exec", self.container, *argv], user=user, check=False)

    def ports(self) -> set[int]:
        """Return the ports of this job on the node: the block, and on the head the three head ports."""
        environ = self.environ()
        first, last = map(int, environ["VERLJOB_PORT_BLOCK"].split("-"))
        head_ports = map(int, environ["VERLJOB_HEAD_PORTS"].split(",")) if environ["SLURM_NODEID"] == "0" else ()
        return {*range(first, last + 1), *head_ports}

    def listeners(self) -> set[Listener]:
        """Return the listening sockets of the job's processes, by their inodes in /proc/net/tcp and tcp6."""
        output = self.cluster.host(self.node).run(["bash", "-c", SOCKETS, "sockets", self.container]).stdout
        inodes = set(re.findall(r"^socket:\[(\d+)\]$", output, re.MULTILINE))
        rows = [line.split() for line in output.splitlines() if re.match(r"\s*\d+: ", line)]
        listening = [row[1].split(":") for row in rows if row[3] == LISTENING and row[9] in inodes]
        return {Listener(address, int(port, 16)) for address, port in listening}


def as_neighbour(
    cluster: Cluster, node: str, image: str, script: str, *arguments: str, user: str = "neighbour", uid: int = 2002
) -> Output:
    """Run a Python script on a node beside the jobs, in a container of the second account."""
    argv = ["docker", "run", "--rm", "--network", "host", "--user", str(uid), "--entrypoint", "python3", image]
    line = shlex.join([*argv, "-c", script, *arguments])
    return cluster.host(node).run(["bash", "-c", line], user=user, check=False)
