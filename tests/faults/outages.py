"""Outages: what comes, lasts and goes again while a training runs. Nothing may end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from slurm.errors import SlurmError
from tests.faults import outage_setup
from tests.faults.injections import FREEZES_S, NODE_SH, RAYLET, SUPERVISOR, pause
from tests.faults.scene import HEAD, WORKER, Scene
from tests.support.cluster.launches import wait_until

ALL, CONTAINERS = ("docker", "podman", "bare"), ("docker", "podman")
# As pgrep takes it: the processes of verl's that train.
TRAINS = ("-f", "^ray::.*WorkerDict")
HOUR_S = 3600

Make = Callable[[Scene, str, float], None]
"""Makes it on a node, stays for that many seconds, and puts it right."""


@dataclass(frozen=True)
class Outage:
    """One outage; ``nodes`` are those on which it is made, the first where one has to be chosen."""

    name: str
    what: str
    lasts_s: float
    make: Make
    nodes: tuple[str, ...] = (WORKER, HEAD)
    runtimes: tuple[str, ...] = ALL


def dropped(*filter_words: str) -> Make:
    """Drop packets that come to the node and that leave it, those that ``filter_words`` of iptables choose.

    Each is dropped where it arrives, as if it had been lost on the way. What a firewall drops where it is sent is an
    error to the TCP of that machine, and Linux (6.18) then counts TCP_USER_TIMEOUT from the first such error of the
    connection, an earlier outage's too: of 30 connections 30 ended 5 s after the second began, with 24 s for each.
    """

    def make(scene: Scene, node: str, lasts_s: float) -> None:
        address = scene.on(node, "hostname", "-i").stdout.strip()
        with ExitStack() as undo:
            for receiver in scene.cluster.nodes:
                from_where = ["!", "-i", "lo"] if receiver == node else ["-s", address]
                rule = ["INPUT", *from_where, *filter_words, "-j", "DROP"]
                scene.on(receiver, "iptables", "-w", "-I", *rule)
                undo.callback(scene.on, receiver, "iptables", "-w", "-D", *rule)
            time.sleep(lasts_s)

    return make


def frozen(scene: Scene, node: str, lasts_s: float) -> None:
    """Freeze all processes of the machine (cgroup freezer)."""
    container = scene.cluster.host(node).container
    wait_until(lambda: pause(container), FREEZES_S, f"pause of {node}")
    try:
        time.sleep(lasts_s)
    finally:
        container.unpause()


def disk_hangs(scene: Scene, node: str, lasts_s: float) -> None:
    """Freeze the file system of the job's node-local folder: whoever writes there waits, and nothing ends that."""
    with _undone(scene, node, [["fsfreeze", "--unfreeze", outage_setup.DISK]]):
        scene.on(node, "fsfreeze", "--freeze", outage_setup.DISK)
        time.sleep(lasts_s)


def folder_hangs(scene: Scene, _: str, lasts_s: float) -> None:
    """Stop what serves the shared folder, on all nodes at once: who reads, writes or looks there waits."""
    nodes = scene.cluster.nodes
    try:
        for node in nodes:
            scene.on(node, "pkill", "-STOP", "-x", "bindfs")
        time.sleep(lasts_s)
    finally:
        for node in nodes:
            scene.on(node, "pkill", "-CONT", "-x", "bindfs")


def stopped(words: tuple[str, ...]) -> Make:
    """SIGSTOP, and SIGCONT."""

    def make(scene: Scene, node: str, lasts_s: float) -> None:
        pid = scene.pids(node, words)[0]
        with _undone(scene, node, [["kill", "-CONT", pid]]):
            scene.on(node, "kill", "-STOP", pid)
            time.sleep(lasts_s)

    return make


def traced(scene: Scene, node: str, lasts_s: float) -> None:
    """Attach gdb to a process that trains, which stands still for that time."""
    words = ("set auto-solib-add off", f"attach {scene.pids(node, TRAINS)[0]}", f"shell sleep {lasts_s:.0f}", "detach")
    scene.on(node, "gdb", "-nx", "-batch", *(part for word in words for part in ("-ex", word)))


def clock_jumps(scene: Scene, node: str, lasts_s: float) -> None:
    """Set the wall clock of the node's container an hour ahead, then an hour back, then right."""
    try:
        for offset_s in (HOUR_S, -HOUR_S):
            outage_setup.set_clock(scene.cluster, node, offset_s)
            time.sleep(lasts_s / 2)
    finally:
        outage_setup.set_clock(scene.cluster, node, 0)


def cores_taken(scene: Scene, node: str, lasts_s: float) -> None:
    """64 processes that only count."""
    busy = "for _ in {1..64}; do while :; do :; done & done; wait"
    scene.on(node, "timeout", f"{lasts_s:.0f}", "bash", "-c", busy, check=False)


def connection_reset(scene: Scene, _: str, lasts_s: float) -> None:
    """Reset the TCP connections between the supervisors, once (`ss --kill`)."""
    supervisor = scene.pids(WORKER, SUPERVISOR)[0]
    environ = scene.sh(WORKER, 'tr "\\0" "\\n" < "/proc/$1/environ"', supervisor).stdout
    ports = next(line for line in environ.splitlines() if line.startswith("VERLJOB_HEAD_PORTS="))
    control = ports.partition("=")[2].split(",")[0]
    killed = scene.on(WORKER, "ss", "--kill", "--no-header", "--tcp", "state", "established", f"( dport = :{control} )")
    assert control in killed.stdout, f"no connection to the control port {control} was reset: {killed}"
    time.sleep(lasts_s)


@contextmanager
def _undone(scene: Scene, node: str, commands: Sequence[Sequence[str]]) -> Iterator[None]:
    try:
        yield
    finally:
        for command in commands:
            scene.on(node, *command)


OUTAGES: tuple[Outage, ...] = (
    Outage("network-gone", "the network between the nodes is gone: all packets dropped, both ways", 45, dropped()),
    Outage("packets-lost", "30 % of packets are lost, both ways", 120,
           dropped("-m", "statistic", "--mode", "random", "--probability", "0.3")),
    Outage("machine-frozen", "a whole machine is frozen (cgroup freezer)", 45, frozen),
    Outage("disk-hangs", "a node's disk answers nobody who writes (fsfreeze)", 45, disk_hangs),
    Outage("folder-hangs", "the shared folder answers nobody, on all nodes", 45, folder_hangs, (HEAD,)),
    Outage("supervisor-paused", "SIGSTOP of verl_node, then SIGCONT", 15, stopped(SUPERVISOR)),
    Outage("node-sh-paused", "SIGSTOP of node.sh, then SIGCONT", 15, stopped(NODE_SH)),
    Outage("raylet-paused", "SIGSTOP of a raylet, then SIGCONT", 15, stopped(RAYLET)),
    Outage("worker-traced", "gdb is attached to a process that trains", 60, traced, runtimes=CONTAINERS),
    Outage("clock-jumps", "the wall clock of a node's container an hour ahead, an hour back, and right again", 60,
           clock_jumps, runtimes=CONTAINERS),
    Outage("cores-taken", "every core is taken by 64 busy processes", 90, cores_taken),
    Outage("connection-reset", "the control channel's TCP connection is reset", 1, connection_reset, (WORKER,)),
)  # fmt: skip


def named(name: str) -> Outage:
    """Return the outage of this name; raises SlurmError with all of them."""
    for outage in OUTAGES:
        if outage.name == name:
            return outage
    raise SlurmError(f"There is no outage {name!r}; there are: {', '.join(outage.name for outage in OUTAGES)}")
