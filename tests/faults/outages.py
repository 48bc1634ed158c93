"""Outages that begin, last and end while a training runs, which has to survive them."""

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
# Arguments of pgrep for the processes of verl that train.
TRAINERS = ("-f", "^ray::.*WorkerDict")
HOUR_S = 3600

Make = Callable[[Scene, str, float], None]
"""Makes the outage on a node, waits for that many seconds, and undoes it."""


@dataclass(frozen=True)
class Outage:
    """One outage; ``nodes`` are those on which it can be made, the first by default."""

    name: str
    description: str
    lasts_s: float
    make: Make
    nodes: tuple[str, ...] = (WORKER, HEAD)
    runtimes: tuple[str, ...] = ALL


def dropped(*filters: str) -> Make:
    """Drop packets to and from the node that match ``filters`` of iptables.

    Each is dropped by its receiver, as if it had been lost on the way. A packet that the sender's firewall drops is an
    error to the sender's TCP, and Linux (6.18) then counts TCP_USER_TIMEOUT from the connection's first such error,
    also of an earlier outage: of 30 connections 30 ended 5 s after the second outage began, with 24 s for each.
    """

    def make(scene: Scene, node: str, lasts_s: float) -> None:
        address = scene.on(node, "hostname", "-i").stdout.strip()
        with ExitStack() as undo:
            for receiver in scene.cluster.nodes:
                source = ["!", "-i", "lo"] if receiver == node else ["-s", address]
                rule = ["INPUT", *source, *filters, "-j", "DROP"]
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
    """Freeze the file system of the job's node-local folder: writers block and cannot be killed."""
    with _undo_by(scene, node, [["fsfreeze", "--unfreeze", outage_setup.DISK]]):
        scene.on(node, "fsfreeze", "--freeze", outage_setup.DISK)
        time.sleep(lasts_s)


def folder_hangs(scene: Scene, _: str, lasts_s: float) -> None:
    """Stop the process that serves the shared folder, on all nodes at once: every access blocks."""
    nodes = scene.cluster.nodes
    try:
        for node in nodes:
            scene.on(node, "pkill", "-STOP", "-x", "bindfs")
        time.sleep(lasts_s)
    finally:
        for node in nodes:
            scene.on(node, "pkill", "-CONT", "-x", "bindfs")


def stopped(selection: tuple[str, ...]) -> Make:
    """Send SIGSTOP, later SIGCONT, to the oldest process that pgrep finds by ``selection``."""

    def make(scene: Scene, node: str, lasts_s: float) -> None:
        pid = scene.pids(node, selection)[0]
        with _undo_by(scene, node, [["kill", "-CONT", pid]]):
            scene.on(node, "kill", "-STOP", pid)
            time.sleep(lasts_s)

    return make


def traced(scene: Scene, node: str, lasts_s: float) -> None:
    """Attach gdb to a process that trains, which stops it for that time."""
    pid = scene.pids(node, TRAINERS)[0]
    commands = ("set auto-solib-add off", f"attach {pid}", f"shell sleep {lasts_s:.0f}", "detach")
    scene.on(node, "gdb", "-nx", "-batch", *(part for command in commands for part in ("-ex", command)))


def clock_jumps(scene: Scene, node: str, lasts_s: float) -> None:
    """Set the wall clock of the node's container an hour ahead, then an hour back, then to the right time."""
    try:
        for offset_s in (HOUR_S, -HOUR_S):
            outage_setup.set_clock(scene.cluster, node, offset_s)
            time.sleep(lasts_s / 2)
    finally:
        outage_setup.set_clock(scene.cluster, node, 0)


def cores_taken(scene: Scene, node: str, lasts_s: float) -> None:
    """Run 64 busy loops."""
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
def _undo_by(scene: Scene, node: str, commands: Sequence[Sequence[str]]) -> Iterator[None]:
    try:
        yield
    finally:
        for command in commands:
            scene.on(node, *command)


OUTAGES: tuple[Outage, ...] = (
    Outage("network-gone", "all packets between the nodes are dropped, both ways", 45, dropped()),
    Outage("packets-lost", "30 % of packets are lost, both ways", 120,
           dropped("-m", "statistic", "--mode", "random", "--probability", "0.3")),
    Outage("machine-frozen", "a whole machine is frozen (cgroup freezer)", 45, frozen),
    Outage("disk-hangs", "writes to a node's disk block (fsfreeze)", 45, disk_hangs),
    Outage("folder-hangs", "every access to the shared folder blocks, on all nodes", 45, folder_hangs, (HEAD,)),
    Outage("supervisor-paused", "SIGSTOP of verl_node, then SIGCONT", 15, stopped(SUPERVISOR)),
    Outage("node-sh-paused", "SIGSTOP of node.sh, then SIGCONT", 15, stopped(NODE_SH)),
    Outage("raylet-paused", "SIGSTOP of a raylet, then SIGCONT", 15, stopped(RAYLET)),
    Outage("worker-traced", "gdb is attached to a process that trains", 60, traced, runtimes=CONTAINERS),
    Outage("clock-jumps", "the wall clock of a node's container an hour ahead, an hour back, then right", 60,
           clock_jumps, runtimes=CONTAINERS),
    Outage("cores-taken", "64 busy processes occupy every core", 90, cores_taken),
    Outage("connection-reset", "the control channel's TCP connection is reset", 1, connection_reset, (WORKER,)),
)  # fmt: skip


def named(name: str) -> Outage:
    """Return the outage of this name. Raises SlurmError, which lists all names."""
    for outage in OUTAGES:
        if outage.name == name:
            return outage
    raise SlurmError(f"unknown outage {name!r}; choose from: {', '.join(outage.name for outage in OUTAGES)}")
