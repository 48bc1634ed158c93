"""What is looked at after every fault, whichever it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from slurm.testbed import Cluster

CLEAN_S = 30.0
# One line for each thing of the account on a node; what the tests themselves run there is root's, and where no
# systemd gives the account a folder for it, podman keeps its list of images and containers in /tmp.
_LOOK = r"""
ps -u submitter -o pid=,stat=,args= | sed 's/^/process /'
ours=(docker ps --all --filter label=verljob.job --format 'container {{.Names}} {{.Status}}')
timeout 10 "${ours[@]}" || echo "engine: no answer"
grep -E 'verljob-[0-9]' /proc/mounts | sed 's/^/mount /'
running=$(timeout 10 docker ps --all --quiet | wc -l)
mounted=$(grep -c '^overlay /var/lib/docker/overlay2' /proc/mounts)
((mounted <= running)) || echo "mount $mounted overlays of $running containers"
for folder in /tmp /var/tmp /dev/shm /small; do
    [[ ! -d $folder ]] || find "$folder" -mindepth 1 -maxdepth 2 -user submitter ! -name guard ! -name verljob-ports \
        ! -path '/tmp/podman-run-*' ! -path '/tmp/containers-user-*' ! -name 'libpod_rootless_lock_*'
done | sed 's/^/file /'
ls -A /tmp/verljob-ports 2> /dev/null | grep -v '^guard$' | sed 's/^/port lock /'
awk '$4 == "0A" && $8 == 2001 {print "listener " $2}' /proc/net/tcp /proc/net/tcp6
"""


def left(cluster: Cluster, nodes: Iterable[str]) -> list[str]:
    """Everything of the account that is still on these nodes, a line each."""
    found = []
    for node in nodes:
        lines = cluster.host(node).run(["bash", "-c", _LOOK], check=False).stdout.splitlines()
        found += [f"{node}: {line}" for line in lines]
    return found


def at_work(found: Iterable[str]) -> list[str]:
    """Those among them that work, or hold something: no mere files, nor podman's process that sleeps between commands.

    That one has no argument, and podman's own tidying up starts it. Where Slurm knows the step's processes by their
    cgroup it is killed with them; here (proctrack/linuxproc) Slurm knows those that have a parent in the step.
    """
    return [line for line in found if line.split()[1] not in ("file", "port") and not line.endswith(" podman")]


def wait_clean(cluster: Cluster, nodes: Iterable[str], timeout_s: float) -> tuple[float, list[str]]:
    """Wait until nothing is left; return how long that took, and what is left at the deadline."""
    nodes = list(nodes)
    return wait_for(lambda: left(cluster, nodes), timeout_s)


def wait_for(problems: Callable[[], list[str]], timeout_s: float) -> tuple[float, list[str]]:
    """Ask until there are no problems; return the seconds that took, and what there is at the deadline."""
    began = time.monotonic()
    while True:
        asked = time.monotonic() - began
        found = problems()
        if not found or asked > timeout_s:
            return asked, found
        time.sleep(0.3)
