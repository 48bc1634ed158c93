"""What a job holds on a node of the rehearsal cluster: its container, its ports and who listens there."""

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

# The sockets of every process of a container, then the kernel's tables; a process may end meanwhile.
SOCKETS = """
for pid in $(docker top "$1" -o pid | tail -n +2); do
    find "/proc/$pid/fd" -lname 'socket:*' -printf '%l\\n' 2> /dev/null
done | sort -u
cat /proc/net/tcp /proc/net/tcp6
"""


@dataclass(frozen=True)
class Listener:
    """A listening socket; ``address`` as the kernel writes it, all zeros for every interface."""

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
    def of(cls, cluster: Cluster, node: str, job: int) -> Tenant:
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
        """A command in the container, as its account; ``user`` is whose Docker client it is."""
        return self.cluster.host(self.node).run(["docker", "exec", self.container, *argv], user=user, check=False)

    def ports(self) -> set[int]:
        """The ports that are this job's here: the node's block and, on the head, its three more."""
        environ = self.environ()
        first, last = map(int, environ["VERLJOB_PORT_BLOCK"].split("-"))
        of_head = map(int, environ["VERLJOB_HEAD_PORTS"].split(",")) if environ["SLURM_NODEID"] == "0" else ()
        return {*range(first, last + 1), *of_head}

    def listeners(self) -> set[Listener]:
        """What the job's processes listen on, by the inodes of their sockets in /proc/net/tcp and tcp6."""
        told = self.cluster.host(self.node).run(["bash", "-c", SOCKETS, "sockets", self.container]).stdout
        inodes = set(re.findall(r"^socket:\[(\d+)\]$", told, re.MULTILINE))
        rows = [line.split() for line in told.splitlines() if re.match(r"\s*\d+: ", line)]
        ours = [row[1].split(":") for row in rows if row[3] == LISTENING and row[9] in inodes]
        return {Listener(address, int(port, 16)) for address, port in ours}


def as_neighbour(
    cluster: Cluster, node: str, image: str, script: str, *arguments: str, user: str = "neighbour", uid: int = 2002
) -> Output:
    """Python beside the jobs of a node, in a container of the second account's own."""
    words = ["docker", "run", "--rm", "--network", "host", "--user", str(uid), "--entrypoint", "python3", image]
    line = shlex.join([*words, "-c", script, *arguments])
    return cluster.host(node).run(["bash", "-c", line], user=user, check=False)
