"""Nodes of a job on one machine with several GPUs: one namespace each for network, processes, shared memory and name.

They are joined by a bridge, so NCCL and Gloo have TCP only, and KILL to a node ends all that it runs. Needs root,
iproute2 and util-linux, and does not change the machine's own network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.gpu.gpu_job import Job, minor

PREFIX = "verljob-bench"
NETWORK = "198.18.77"  # of the range for benchmarks of networks, RFC 2544
# $1 is the node's name, $2 its hosts file, $3 an empty folder. A new /sys shows the node's interfaces, but no cgroups.
ENTER = """\
mount --rbind /sys/fs/cgroup "$3"
mount -t sysfs sysfs /sys
mount --move "$3" /sys/fs/cgroup
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount --bind "$2" /etc/hosts
hostname "$1"
shift 3
exec "$@"
"""


@dataclass
class VirtualNode:
    """A network namespace with an address, and the node-local folder."""

    name: str
    address: str
    folder: Path

    @property
    def local(self) -> Path:
        """VERLJOB_LOCAL."""
        return self.folder / "l"

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs ``argv`` as the first process of this node."""
        enter = ["sh", "-ec", ENTER, "-", self.name, str(self.folder / "hosts"), str(self.folder / "cgroup"), *argv]
        unshare = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return ["nsenter", f"--net=/run/netns/{self.name}", *unshare, *enter]


@contextmanager
def virtual_nodes(count: int) -> Iterator[list[VirtualNode]]:
    """Make nodes with a common network, and remove them at the end."""
    switch = f"{PREFIX}-switch"
    # Short: the paths of Ray's sockets have 107 bytes.
    top = Path(tempfile.mkdtemp(prefix="n"))
    nodes = [VirtualNode(f"{PREFIX}-{number}", f"{NETWORK}.{number + 1}", top / str(number)) for number in range(count)]
    with ExitStack() as made:
        made.callback(shutil.rmtree, top)
        for name in (switch, *(node.name for node in nodes)):
            ip("netns", "add", name)
            made.callback(ip, "netns", "delete", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for number, node in enumerate(nodes):
            (node.folder / "cgroup").mkdir(parents=True)
            node.local.mkdir()
            hosts = ["127.0.0.1 localhost", *(f"{each.address} {each.name}" for each in nodes)]
            (node.folder / "hosts").write_text("\n".join(hosts) + "\n")
            port = f"port{number}"
            ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", node.name)
            ip("-n", switch, "link", "set", port, "master", "bridge", "up")
            ip("-n", node.name, "address", "add", f"{node.address}/24", "dev", "eth0")
            ip("-n", node.name, "link", "set", "eth0", "up")
        yield nodes


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def environment(job: Job, nodes: Sequence[VirtualNode], number: int, gpu: str | None) -> dict[str, str]:
    """Return the environment of the job's node.sh on a node, as srun gives it to each task of a step."""
    names = ",".join(node.name for node in nodes)
    cpus = len(os.sched_getaffinity(0)) // len(nodes)
    node = nodes[number]
    return job.environment | {
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODEID": str(number),
        "SLURM_NNODES": str(len(nodes)),
        "SLURMD_NODENAME": node.name,
        "SLURM_CPUS_PER_TASK": str(max(cpus, 8)),
        "SLURM_GPUS_ON_NODE": "1",
        "SLURM_STEP_GPUS": str(minor(gpu)) if gpu else "0",
        "VERLJOB_HEAD_NODE": nodes[0].name,
        "VERLJOB_LOCAL": str(node.local),
        "VERLJOB_NODELIST_HOSTS": names,
    }
