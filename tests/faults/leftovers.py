"""Processes, containers, mounts, files and ports that a job has left on a node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from slurm.testbed import Cluster

CLEAN_S = 30.0
# Prints a line for each thing of the account on a node, where the tests' own processes are root's. Podman keeps its
# list of images and containers in /tmp if no systemd gives the account a runtime folder.
_LIST = r"""
ps -u submitter -o pid=,stat=,args= | sed 's/^/process /'
ours=(docker ps --all --filter label=verljob.job --format 'container {{.Names}} {{.Status}}')
timeout 10 "${ours[@]}" || echo "engine: no answer"
grep -E 'verljob-[0-9]' /proc/mounts | sed 's/^/mount /'
running=$(timeout 10 docker ps --all --quiet | wc -l)
mounted=$(grep -c '^overlay /var/lib/docker/overlay2' /proc/mounts)
((mounted <= running)) || echo "mount $mounted overlays of $running containers"
for folder in /tmp /var/tmp /dev/shm /small; do
    [[ ! -d $folder ]] || find "$folder" -mindepth 1 -maxdepth 2 -user submitter ! -name guard ! -name verljob-ports \
        ! -path '/tmp/podman-run-*' ! -path '/tmp/containers-user-*' ! -name 'libpod_rootless_lock_*' \
        ! -path '/tmp/verljob-cache-*'
done | sed 's/^/file /'
ls -A /tmp/verljob-ports 2> /dev/null | grep -v '^guard$' | sed 's/^/port lock /'
awk '$4 == "0A" && $8 == 2001 {print "listener " $2}' /proc/net/tcp /proc/net/tcp6
"""


def leftovers(cluster: Cluster, nodes: Iterable[str]) -> list[str]:
    """List everything of the account that is still on these nodes, a line each."""
    found = []
    for node in nodes:
        lines = cluster.host(node).run(["bash", "-c", _LIST], check=False).stdout.splitlines()
        found += [f"{node}: {line}" for line in lines]
    return found


def active(lines: Iterable[str]) -> list[str]:
    """Filter out plain files, and podman's process that sleeps between commands: the rest runs or holds a resource.

    Podman's process has no argument and is started by its own cleanup. With proctrack/cgroup Slurm kills it with the
    step. The rehearsal cluster has proctrack/linuxproc, which knows only processes that have a parent in the step.
    """
    return [line for line in lines if line.split()[1] not in ("file", "port") and not line.endswith(" podman")]


def wait_clean(cluster: Cluster, nodes: Iterable[str], timeout_s: float) -> tuple[float, list[str]]:
    """Wait until nothing is left; return the seconds that took, and what is left at the deadline."""
    nodes = list(nodes)
    return wait_for_none(lambda: leftovers(cluster, nodes), timeout_s)


def wait_for_none(problems: Callable[[], list[str]], timeout_s: float) -> tuple[float, list[str]]:
    """Poll until the list is empty; return the seconds that took, and the list at the deadline."""
    began = time.monotonic()
    while True:
        waited_s = time.monotonic() - began
        found = problems()
        if not found or waited_s > timeout_s:
            return waited_s, found
        time.sleep(0.3)
